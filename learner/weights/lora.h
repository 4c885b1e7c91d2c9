#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern {

class Learner;

struct LoraOptions {
  /// Number of rows of A and of columns of B.
  int64_t rank = 8;
  /// The update B * A is multiplied by alpha / rank.
  double alpha = 8;
  /// Layers to adapt, by name or, as in PEFT, by the end of the name: "qkv"
  /// matches every layer such as "blocks.0.attn.qkv". Linear layers,
  /// convolutions and MultiheadAttention can be adapted; the latter gets one
  /// adapter for `in_proj_weight` and one for `out_proj`. Empty: all such
  /// layers outside `train`, except layers that share their weight with a layer
  /// of a different kind, for example a head that shares it with an embedding.
  std::vector<std::string> targets = {};
  /// Modules to train in full, such as "head", like PEFT's modules_to_save.
  std::vector<std::string> train = {};
};

/// Freezes a model and adds trainable low-rank adapters to some of its layers:
/// the weight W becomes W + alpha / rank * B * A, where A has `rank` rows and B
/// has `rank` columns (Hu et al., "LoRA: Low-Rank Adaptation of Large Language
/// Models", 2021). Initialization, names, shapes and results match PEFT: A is
/// "fc.lora_A.weight", [rank, in] or [rank, in, kh, kw], and B is
/// "fc.lora_B.weight", [out, rank] or [out, rank, 1, 1], initially zero. For an
/// attention's `in_proj_weight`, `out` is three times the width.
///
///   Model adapted = add_lora(net, {.rank = 8, .targets = {"qkv", "proj"}});
///   Learner learn(data, adapted);
///
/// The model's parameters and state dict, the optimizer, the master weights and
/// checkpoints contain only the adapters and the modules in `train`. Frozen
/// BatchNorms keep their running statistics. `to_fp16` and `to_bf16` convert
/// the frozen weights to 16 bits without keeping master weights. To resume, a
/// program first loads the same frozen weights. `export_model`, `export_onnx`
/// and `export_torchscript` write merged weights.
///
/// There are three differences from PEFT 0.21. For a grouped convolution, A is
/// [rank, in / groups, kh, kw] and B is [out, rank, 1, 1], so that it can be
/// merged. The update of an attention's `out_proj` is added once, not twice.
/// Layers that share a weight share one adapter, named after the first of them.
///
/// \throws c10::ValueError unless rank > 0, alpha is finite, each name matches
///         a module and at least one layer can be adapted; if a layer is in an
///         ActivationCheckpoint; if a named target shares its weight with a
///         layer that is not a target; if the model already runs on several
///         devices (call `to_parallel` afterwards).
Model add_lora(const Model& model, const LoraOptions& options = {});

/// The same for a Learner's model. Call it before the first fit and before
/// `to_fp16`. If `train` is empty, the last layer group, such as the head of a
/// `vision_learner`, is trained in full. Afterwards the Learner has one layer
/// group.
Learner& add_lora(Learner& learn, const LoraOptions& options = {});

/// Adds the updates to the weights permanently and returns the plain model,
/// like PEFT's merge_and_unload. Its parameters are trainable, except those
/// that were frozen before `add_lora` (in a Learner: frozen by hand, not by
/// `freeze`). Returns a model without adapters unchanged.
Model merge_lora(const Model& model);

/// Merges a model's adapters into its weights, in fp32, for the lifetime of
/// this object; meanwhile the model has the plain model's state. For exports.
class MergedLora {
 public:
  /// \param exact  Master weights by name, which are merged in place of the
  ///               adapters rounded to 16 bits.
  explicit MergedLora(const Model& model, const StateDict& exact = {});
  ~MergedLora();
  MergedLora(const MergedLora&) = delete;
  MergedLora& operator=(const MergedLora&) = delete;

 private:
  std::shared_ptr<ModelImpl> model_;  // null without adapters
  Tensors before_;
};

}  // namespace tern
