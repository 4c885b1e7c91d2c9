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

  /// Read from a file without checksums: a flipped bit there is a wrong value
  /// that nothing notices.
  bool unverified = false;
};

/// How a state dict is put into a model.
struct LoadOptions {
  /// Every tensor of the model is given, and every tensor given is one of the
  /// model's. Without it, what is missing keeps its value.
  bool strict = true;

  /// Only names that begin so are looked at, and they lose it: "backbone."
  /// takes the backbone out of a larger model. Without a prefix, "module." and
  /// "_orig_mod.", which PyTorch's wrappers put before every name, are dropped
  /// by themselves.
  std::string prefix = {};

  /// Leave out tensors of the wrong shape, as of a head for 1000 classes in a
  /// model for 10, and load the rest.
  bool ignore_mismatched_sizes = false;
};

/// What became of the names of a state dict.
struct LoadReport {
  struct Mismatch {
    std::string name;
    std::string given;     // "[1000, 512] float"
    std::string expected;  // "[10, 512] float"
  };

  /// Names of the model that were given and fit.
  int64_t loaded = 0;
  /// Names of the model that were not given; their tensors keep their values.
  std::vector<std::string> missing;
  /// Names given that the model does not have.
  std::vector<std::string> unexpected;
  /// Names of both with another shape, or a type that cannot be converted
  /// without loss of meaning, such as float to integer.
  std::vector<Mismatch> mismatched;
  /// Names given that are left out on purpose, see VisionArch::load_pretrained.
  std::vector<std::string> skipped;
  /// As StateDict::unverified.
  bool unverified = false;

  /// Whether every name was on both sides, and fit.
  bool is_complete() const {
    return missing.empty() && unexpected.empty() && mismatched.empty();
  }
  /// One sentence with the first names of each kind.
  std::string to_string() const;
};

}  // namespace tern
