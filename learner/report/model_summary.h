#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tern/data/support/memory.h"
#include "tern/learner/model.h"

namespace tern {

struct LayerSummary {
  std::string name;  // "layer1.0.conv1"
  std::string kind;  // "Conv2d"; empty in a TorchScript model
  /// Shape of the output; empty for a layer without parameters outside a
  /// Sequential.
  std::vector<int64_t> output;
  int64_t parameters = 0;     // without its submodules' parameters
  int64_t trainable = 0;      // number of these that are not frozen
  int64_t multiply_adds = 0;  // of its matrix products and convolutions
};

/// A summary of a model, layer by layer, for one batch.
struct ModelSummary {
  std::vector<LayerSummary> layers;
  std::vector<std::vector<int64_t>> inputs;  // their sizes
  int64_t parameters = 0, trainable = 0;
  /// For the whole model, including operations outside its layers.
  int64_t multiply_adds = 0;
  int64_t parameter_bytes = 0, buffer_bytes = 0;
  /// Memory of the outputs of all operations in a forward pass, most of which
  /// backward needs.
  int64_t activation_bytes = 0;

  /// Returns a table of the layers and the totals.
  std::string to_string() const;
};

/// Runs `model` once on `inputs`, in eval mode and without gradients, and
/// records the outputs of its layers and operations. A layer is a module that
/// has its own parameters or no submodules. The multiply-adds of attention and
/// recurrent layers that run as one fused operation are not counted;
/// `to_string` lists these recurrent layers.
/// \param inputs  On the model's device, with a dtype that it accepts.
ModelSummary summarize(Model& model, const Tensors& inputs);
/// Returns, for example, "1,234,567".
std::string with_commas(int64_t number);
/// Returns, for example, "1 epoch" or "2,000 batches".
std::string counted(int64_t number, const std::string& noun);

}  // namespace tern
