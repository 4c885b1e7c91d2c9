#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern {

class Learner;

struct LoraOptions {
  /// Rows of A and columns of B.
  int64_t rank = 8;
  /// B * A is multiplied by alpha / rank.
  double alpha = 8;
  /// Layers that get adapters, by name or, as in PEFT, by what their names end
  /// in: "qkv" is each layer "blocks.0.attn.qkv". Linear and convolution
  /// layers, and MultiheadAttention, whose adapter is one for queries, keys and
  /// values together and whose `out_proj` gets another. Empty: all of them
  /// outside `train`.
  std::vector<std::string> targets = {};
  /// Modules that learn as they are, such as "head".
  std::vector<std::string> train = {};
};

/// Freezes a model and gives some of its layers adapters that learn instead:
/// the weight W becomes W + alpha / rank * B * A, where A has `rank` rows and B
/// as many columns (Hu et al., "LoRA: Low-Rank Adaptation of Large Language
/// Models", 2021). Initialisation, names and shapes are PEFT's: "fc.lora_A.
/// weight", [rank, in] or [rank, in, kh, kw], and "fc.lora_B.weight", [out,
/// rank] or [out, rank, 1, 1], 0 at first; `out` is three times the width for
/// an attention.
///
///   Learner learn(data, add_lora(net, {.rank = 8, .targets = {"qkv",
///   "proj"}}));
///
/// The adapters and what is in `train` are all that the model shows as its
/// parameters and in its state dict: the optimizer, master weights and
/// checkpoints hold nothing else. BatchNorm of the rest keeps its running
/// statistics. `to_fp16` and `to_bf16` round the frozen weights for good.
/// `export_model` and `export_torchscript` write merged weights.
///
/// A grouped convolution gets A of [rank, in / groups, kh, kw] and B of [out,
/// rank, 1, 1], which can be merged into its weight; PEFT's adapters of grouped
/// convolutions have other shapes and cannot.
///
/// \throws c10::ValueError unless rank > 0, alpha is finite, each name is a
///         module's and there is a layer to adapt; for layers in an
///         ActivationCheckpoint; after `to_parallel`, which may come later.
Model add_lora(const Model& model, const LoraOptions& options = {});

/// The same for the model of a Learner, before its first fit and before
/// `to_fp16`. Without `train`, its last layer group learns as it is, such as
/// the head of a `vision_learner`. There is one layer group then.
Learner& add_lora(Learner& learn, const LoraOptions& options = {});

/// Adds the adapters to the weights for good and returns the plain model, of
/// which all learns; another model as it is. As PEFT's merge_and_unload.
Model merge_lora(const Model& model);

/// While it lives, the adapters are in the weights of a model of `add_lora`, in
/// fp32, and its state is the plain model's. For exports.
class MergedLora {
 public:
  explicit MergedLora(const Model& model);
  ~MergedLora();
  MergedLora(const MergedLora&) = delete;
  MergedLora& operator=(const MergedLora&) = delete;

 private:
  std::shared_ptr<ModelImpl> model_;  // null: there is nothing to do
  Tensors before_;
};

}  // namespace tern
