#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tern/data/support/memory.h"
#include "tern/learner/model.h"

namespace tern {

/// One layer of a model.
struct LayerSummary {
  std::string name;  // "layer1.0.conv1"
  std::string kind;  // "Conv2d"; empty in a TorchScript model
  /// Shape of its output; empty for a layer without parameters that is not in a
  /// Sequential.
  std::vector<int64_t> output;
  int64_t parameters = 0;     // its own, without those of layers in it
  int64_t trainable = 0;      // of these, those that are not frozen
  int64_t multiply_adds = 0;  // of its matrix products and convolutions
};

/// A model layer by layer, for one batch.
struct ModelSummary {
  std::vector<LayerSummary> layers;
  std::vector<std::vector<int64_t>> inputs;  // their sizes
  int64_t parameters = 0, trainable = 0;
  /// Of the whole model, also of operations outside any layer.
  int64_t multiply_adds = 0;
  int64_t parameter_bytes = 0, buffer_bytes = 0;
  /// Outputs of the operations of a forward pass; backward needs most of them.
  int64_t activation_bytes = 0;

  /// A table with the totals.
  std::string to_string() const;
};

/// Runs `model` once on `inputs`, in eval and without gradients, and records
/// the outputs of its layers and operations. A layer is a module with
/// parameters of its own or without submodules. Attention and recurrent layers
/// as one fused operation count no multiply-adds; `to_string` names the latter.
/// \param inputs  On the model's device, in a dtype that it takes.
ModelSummary summarize(Model& model, const Tensors& inputs);
/// "1,234,567".
std::string with_commas(int64_t number);
/// "1 epoch", "2,000 batches".
std::string counted(int64_t number, const std::string& noun);

}  // namespace tern
