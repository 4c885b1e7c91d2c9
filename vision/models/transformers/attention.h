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

/// Multi-head self-attention, computed by PyTorch's
/// `scaled_dot_product_attention` (Vaswani et al., "Attention Is All You Need",
/// 2017).
///
/// \param qkv      [..., T, 3 * C]: queries, keys and values of all heads.
/// \param heads    Number of heads, a divisor of C.
/// \param bias     Added to the attention logits. Broadcastable to [..., heads,
///                 T, T], same dtype as `qkv`. Can be undefined.
/// \param dropout  Probability of dropping an attention weight.
/// \return         [..., T, C]
torch::Tensor attend(
    const torch::Tensor& qkv,
    int64_t heads,
    const torch::Tensor& bias = {},
    double dropout = 0);

/// Self-attention with the parameter names of PyTorch's MultiheadAttention,
/// computed by `attend`. [N, T, width] -> the same shape.
class SelfAttentionImpl : public torch::nn::MultiheadAttentionImpl {
 public:
  using MultiheadAttentionImpl::MultiheadAttentionImpl;
  torch::Tensor forward(const torch::Tensor& x);
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  /// AnyModule would otherwise expect the default arguments of
  /// MultiheadAttention's forward.
  bool _forward_has_default_args() override { return false; }
};
TORCH_MODULE(SelfAttention);

/// Self-attention with timm's parameter names, "qkv" and "proj".
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
  /// Creates the attention module: [..., width] -> the same shape.
  std::function<torch::nn::AnyModule()> attention;
  double eps = 1e-5;   // of the LayerNorms
  double dropout = 0;  // after linear layers
  std::string norm1 = "norm1", attention_name = "attn", norm2 = "norm2";
  std::string linear1 = "0", linear2 = "3";  // names within "mlp"
};

/// A pre-norm transformer block: attention, then an MLP with a hidden width of
/// 4 * width. Each has a LayerNorm before it and a residual connection around
/// it. [..., width] -> the same shape.
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

/// Initializes all linear layers of a module as timm and torchvision's Swin do:
/// weights normal with a standard deviation of 0.02, biases 0.
void init_linear_layers(torch::nn::Module& module);

/// Flattens the patches of a ViT into tokens, prepends the class token and adds
/// the position embeddings.
/// \param maps       [N, C, H, W]: one pixel per patch.
/// \param token      [1, 1, C]
/// \param positions  As in `resize_positions`; interpolated if they are for a
///                   different H and W.
/// \return           [N, 1 + H * W, C], the patches row by row
torch::Tensor to_tokens(
    const torch::Tensor& maps,
    const torch::Tensor& token,
    const torch::Tensor& positions);

/// Interpolates a ViT's position embeddings as timm does, bicubically with
/// anti-aliasing. The class token's embedding is unchanged.
///
///   resize_positions(state["encoder.pos_embedding"], 24, 24);   // for 384 px
///
/// \param positions      [1, 1 + n * n, C], of n x n patches row by row.
/// \param height, width  Number of patches of the image.
/// \return               [1, 1 + height * width, C], same dtype
/// \throws c10::ValueError if the number of patches in `positions` is not a
///         square.
torch::Tensor
resize_positions(const torch::Tensor& positions, int64_t height, int64_t width);

}  // namespace tern
