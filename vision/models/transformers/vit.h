#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct ViTOptions {
  /// 0: no classifier; `forward` then returns the class token, [N, width].
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Image height and width for which the position embeddings are stored. They
  /// are interpolated for images of other sizes.
  int64_t image_size = 224;
  /// Dropout after linear layers and position embeddings, and of the attention
  /// weights.
  double dropout = 0, attention_dropout = 0;
  /// Probability of dropping the last block's residual branches in training,
  /// see StochasticDepth. The probability rises linearly from 0 for the first
  /// block.
  double stochastic_depth = 0;
};

/// Size of a ViT; see `vit_b_16`.
struct ViTShape {
  int64_t patch = 16;  // side of a patch in pixels
  int64_t width = 768, depth = 12, heads = 12;
};

/// The library whose state-dict names and distribution of initial weights a ViT
/// matches.
enum class ViTNaming { torchvision, timm };

/// The transformer of Dosovitskiy et al., "An Image is Worth 16x16 Words"
/// (2021). Image patches and a class token pass through transformer blocks; the
/// classifier reads the class token.
///
/// As a Backbone it has no feature maps, see `Backbone::has_maps`.
template <ViTNaming naming>
class VisionTransformerImpl
    : public torch::nn::Cloneable<VisionTransformerImpl<naming>>,
      public Backbone {
 public:
  static constexpr bool kIsTimm = naming == ViTNaming::timm;
  static constexpr const char* kSecondGroup =
      kIsTimm ? "blocks.6" : "encoder.layers.encoder_layer_6";
  static constexpr const char* kClassifier = kIsTimm ? "head." : "heads.";

  /// \throws c10::ValueError for an invalid shape; the errors of `vit_b_16`.
  VisionTransformerImpl(const ViTShape& shape, const ViTOptions& options);
  void reset() override;
  /// [N, in_channels, H, W] -> [N, num_classes], logits.
  /// \throws c10::ValueError unless H and W are multiples of the patch size.
  torch::Tensor forward(const torch::Tensor& images);

  std::vector<int64_t> stage_channels() const override {
    return {shape_.width};
  }
  bool has_maps() const override { return false; }
  /// Returns the class token, [N, width].
  torch::Tensor stage(size_t index, const torch::Tensor& images) override;

 private:
  static const char* pick(const char* torchvision, const char* timm) {
    return kIsTimm ? timm : torchvision;
  }
  Layers make_blocks() const;

  ViTShape shape_;
  ViTOptions options_;
  torch::Tensor token_;
  Layers patches_{nullptr}, encoder_{nullptr}, head_{nullptr};
};

using ViTImpl = VisionTransformerImpl<ViTNaming::torchvision>;
using TimmViTImpl = VisionTransformerImpl<ViTNaming::timm>;
TORCH_MODULE(ViT);
TORCH_MODULE(TimmViT);

/// torchvision's vit_b_16 and vit_b_32.
/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0, image_size
///         is a positive multiple of the patch size, and the other options are
///         in [0, 1).
ViT vit_b_16(const ViTOptions& options = {});
ViT vit_b_32(const ViTOptions& options = {});
/// timm's vit_small_patch16_224, with width 384 and 6 heads.
/// \throws the errors of `vit_b_16`.
TimmViT vit_s_16(const ViTOptions& options = {});

}  // namespace tern
