#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/layers.h"

namespace tern {

/// Multi-head attention of tokens among themselves, by PyTorch's
/// `scaled_dot_product_attention` (Vaswani et al., "Attention Is All You Need",
/// 2017).
///
/// \param qkv      [..., T, 3 * C]: queries, keys and values of all heads.
/// \param heads    Divides C.
/// \param bias     Added to the logits, can be expanded to [..., heads, T, T];
///                 of the type of `qkv`. May be undefined.
/// \param dropout  Share of the attention that is dropped.
/// \return         [..., T, C]
torch::Tensor attend(
    const torch::Tensor& qkv,
    int64_t heads,
    const torch::Tensor& bias = {},
    double dropout = 0);

/// PyTorch's MultiheadAttention of tokens among themselves, by `attend`, with
/// its names: [N, T, width] -> the same shape.
class SelfAttentionImpl : public torch::nn::MultiheadAttentionImpl {
 public:
  using MultiheadAttentionImpl::MultiheadAttentionImpl;
  torch::Tensor forward(const torch::Tensor& x);
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  /// MultiheadAttention's forward has them, for AnyModule.
  bool _forward_has_default_args() override { return false; }
};
TORCH_MODULE(SelfAttention);

/// The same with timm's names, "qkv" and "proj".
class QkvAttentionImpl : public torch::nn::Cloneable<QkvAttentionImpl> {
 public:
  explicit QkvAttentionImpl(const torch::nn::MultiheadAttentionOptions& options)
      : options_(options) {
    reset();
  }
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::nn::MultiheadAttentionOptions options_;
  torch::nn::Linear qkv_{nullptr}, proj_{nullptr};
};
TORCH_MODULE(QkvAttention);

struct TransformerBlockOptions {
  int64_t width;
  /// Makes the attention: [..., width] -> the same shape.
  std::function<torch::nn::AnyModule()> attention;
  double eps = 1e-5;   // of the norms
  double dropout = 0;  // behind linear layers
  std::string norm1 = "norm1", attention_name = "attn", norm2 = "norm2";
  std::string linear1 = "0", linear2 = "3";  // within "mlp"
};

/// Attention, then a perceptron four times as wide inside, each normalized
/// before and added to its input: [..., width] -> the same shape.
class TransformerBlockImpl : public torch::nn::Cloneable<TransformerBlockImpl>,
                             public StochasticDepth {
 public:
  explicit TransformerBlockImpl(const TransformerBlockOptions& options)
      : options(options) {
    reset();
  }
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);

  TransformerBlockOptions options;

 private:
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  torch::nn::AnyModule attention_;
  Layers mlp_{nullptr};
};
TORCH_MODULE(TransformerBlock);

/// Initializes all linear layers of a module as timm and torchvision's Swin:
/// normally distributed with a standard deviation of 0.02, biases 0.
void init_linear_layers(torch::nn::Module& module);

/// Returns a ViT's tokens with their position embeddings added: the class
/// token, then the patches row by row.
/// \param maps       [N, C, H, W], of the patches.
/// \param token      [1, 1, C]
/// \param positions  As `resize_positions` takes them, for another H and W too.
/// \return           [N, 1 + H * W, C]
torch::Tensor to_tokens(
    const torch::Tensor& maps,
    const torch::Tensor& token,
    const torch::Tensor& positions);

/// Interpolates a ViT's position embeddings as timm does, bicubically and with
/// anti-aliasing; the class token's stays.
///
///   resize_positions(state["encoder.pos_embedding"], 24, 24);   // for 384 px
///
/// \param positions      [1, 1 + n * n, C], of n x n patches row by row.
/// \param height, width  Patches of the image.
/// \return               [1, 1 + height * width, C] of the same type
/// \throws c10::ValueError if `positions` is not of a square of patches.
torch::Tensor
resize_positions(const torch::Tensor& positions, int64_t height, int64_t width);

}  // namespace tern
