#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>  // ordered_dict.h uses it
#include <torch/ordered_dict.h>
#include <torch/types.h>

namespace tern {

/// Tensors by name.
struct StateDict : torch::OrderedDict<std::string, torch::Tensor> {
  using OrderedDict::OrderedDict;
  StateDict() = default;
  StateDict(OrderedDict tensors)  // NOLINT: implicit on purpose
      : OrderedDict(std::move(tensors)) {}

  /// True if the tensors were read from a file without checksums, in which a
  /// flipped bit is not detected.
  bool unverified = false;
};

/// How a state dict is loaded into a model.
struct LoadOptions {
  /// Require that the state dict has every tensor of the model, and no other
  /// tensors. If false, tensors that are missing keep their values.
  bool strict = true;

  /// Load only names with this prefix, and remove it from them: "backbone."
  /// loads the backbone of a larger model. Without a prefix, "module." and
  /// "_orig_mod.", which PyTorch's wrappers put before every name, are removed
  /// automatically.
  std::string prefix = {};

  /// Skip tensors of the wrong shape, such as a head for 1000 classes when the
  /// model has 10, and load the rest.
  bool ignore_mismatched_sizes = false;
};

/// Result of loading a state dict.
struct LoadReport {
  struct Mismatch {
    std::string name;
    std::string given;     // "[1000, 512] float"
    std::string expected;  // "[10, 512] float"
  };

  /// Number of the model's names for which the state dict has a matching
  /// tensor.
  int64_t loaded = 0;
  /// Names of the model that the state dict does not have. Their tensors keep
  /// their values.
  std::vector<std::string> missing;
  /// Names in the state dict that the model does not have.
  std::vector<std::string> unexpected;
  /// Names in both whose shapes differ, or whose dtype cannot be converted
  /// meaningfully, such as float to integer.
  std::vector<Mismatch> mismatched;
  /// Names in the state dict that are skipped on purpose; see
  /// VisionArch::load_pretrained.
  std::vector<std::string> skipped;
  /// Like StateDict::unverified.
  bool unverified = false;

  /// True if model and state dict have the same names with matching tensors.
  bool is_complete() const {
    return missing.empty() && unexpected.empty() && mismatched.empty();
  }
  /// Returns one sentence with the first names of each kind.
  std::string to_string() const;
};

}  // namespace tern
