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
  /// The update B * A is multiplied by alpha / rank.
  double alpha = 8;
  /// Layers to adapt, by name or, as in PEFT, by the end of their name: "qkv"
  /// is each layer "blocks.0.attn.qkv". Linear layers, convolutions and
  /// MultiheadAttention, which gets one adapter for `in_proj_weight` and one
  /// for `out_proj`. Empty: all such layers outside `train`, without those that
  /// share their weight with another kind of layer, as a head with an embedding.
  std::vector<std::string> targets = {};
  /// Modules that are trained in full, such as "head"; PEFT's modules_to_save.
  std::vector<std::string> train = {};
};

/// Freezes a model and adds trainable low-rank adapters to some of its layers:
/// the weight W becomes W + alpha / rank * B * A, where A has `rank` rows and B
/// has `rank` columns (Hu et al., "LoRA: Low-Rank Adaptation of Large Language
/// Models", 2021). Initialization, names, shapes and results are PEFT's: A is
/// "fc.lora_A.weight", [rank, in] or [rank, in, kh, kw], and B is
/// "fc.lora_B.weight", [out, rank] or [out, rank, 1, 1], initially zero. For
/// the `in_proj_weight` of an attention, `out` is three times the width.
///
///   Model adapted = add_lora(net, {.rank = 8, .targets = {"qkv", "proj"}});
///   Learner learn(data, adapted);
///
/// The model's parameters and state dict are the adapters and what is in
/// `train`: the optimizer, master weights and checkpoints hold nothing else.
/// Frozen BatchNorms keep their running statistics. `to_fp16` and `to_bf16`
/// convert the frozen weights to 16 bits without keeping master weights. A
/// program that resumes loads the same frozen weights first.
/// `export_model`, `export_onnx` and `export_torchscript` write merged weights.
///
/// Three differences from PEFT 0.21: a grouped convolution gets A of [rank, in /
/// groups, kh, kw] and B of [out, rank, 1, 1], so that it can be merged; the
/// update of an attention's `out_proj` is added once, not twice; and layers that
/// share a weight share one adapter, by the name of the first.
///
/// \throws c10::ValueError unless rank > 0, alpha is finite, each name matches
///         a module and at least one layer can be adapted; for layers in an
///         ActivationCheckpoint; for a named target that shares its weight with
///         a layer that is none; after `to_parallel`, which may come later.
Model add_lora(const Model& model, const LoraOptions& options = {});

/// The same for the model of a Learner, before its first fit and before
/// `to_fp16`. If `train` is empty, its last layer group is trained in full,
/// such as the head of a `vision_learner`. One layer group remains.
Learner& add_lora(Learner& learn, const LoraOptions& options = {});

/// Adds the updates to the weights permanently and returns the plain model with
/// all parameters trainable, as PEFT's merge_and_unload. A model without
/// adapters is returned unchanged.
Model merge_lora(const Model& model);

/// Merges the adapters of a model into its weights, in fp32, for the lifetime
/// of this object; its state is the plain model's meanwhile. For exports.
class MergedLora {
 public:
  /// \param exact  What to merge instead of adapters that are rounded to 16
  ///               bits: the master weights, by name.
  explicit MergedLora(const Model& model, const StateDict& exact = {});
  ~MergedLora();
  MergedLora(const MergedLora&) = delete;
  MergedLora& operator=(const MergedLora&) = delete;

 private:
  std::shared_ptr<ModelImpl> model_;  // null without adapters
  Tensors before_;
};

}  // namespace tern
