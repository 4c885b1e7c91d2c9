#include "tern/vision/models/transformers/attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/dropout.h>

#include "tern/kernels/check.h"

namespace tern {

torch::Tensor attend(
    const torch::Tensor& qkv,
    int64_t heads,
    const torch::Tensor& bias,
    double dropout) {
  const int64_t tokens = qkv.size(-2);
  // PyTorch has fused kernels only for four dimensions. `split` is [rows, T, 3,
  // heads, C / heads]; each part is [rows, heads, T, C / heads].
  const torch::Tensor split =
      qkv.reshape({-1, tokens, 3, heads, qkv.size(-1) / (3 * heads)});
  const auto part = [&](int64_t index) {
    return split.select(2, index).transpose(1, 2);
  };
  std::optional<torch::Tensor> mask;
  if (bias.defined()) {
    // Expands to [rows, heads, T, T] by the shape of a tensor, so that a traced
    // graph accepts any batch size.
    std::vector<int64_t> sizes(qkv.dim() - 2, -1);
    sizes.insert(sizes.end(), {heads, -1, tokens});
    const auto scores = [&] {
      return qkv.select(-1, 0).unsqueeze(-2).unsqueeze(-1).expand(sizes);
    };
    const bool is_common = bias.numel() == heads * tokens * tokens;
    mask = (is_common ? bias : bias.expand_as(scores()))
               .reshape({-1, heads, tokens, tokens});
  }
  const torch::Tensor y = at::scaled_dot_product_attention(
      part(0),
      part(1),
      part(2),
      mask,
      dropout);
  std::vector<int64_t> sizes = qkv.sizes().vec();
  sizes.back() /= 3;
  if (sizes.size() > 2) sizes[0] = -1;  // for a traced graph of any batch size
  return y.transpose(1, 2).reshape(sizes);
}

torch::Tensor SelfAttentionImpl::forward(const torch::Tensor& x) {
  return out_proj->forward(attend(
      torch::linear(x, in_proj_weight, in_proj_bias),
      options.num_heads(),
      {},
      is_training() ? options.dropout() : 0));
}

std::shared_ptr<torch::nn::Module> SelfAttentionImpl::clone(
    const std::optional<torch::Device>& device) const {
  using Base = torch::nn::MultiheadAttentionImpl;
  const auto copy = std::make_shared<SelfAttentionImpl>(options);
  static_cast<Base&>(*copy) = dynamic_cast<Base&>(*Base::clone(device));
  return copy;
}

void QkvAttentionImpl::reset() {
  const int64_t width = options_.embed_dim();
  qkv_ = register_module("qkv", torch::nn::Linear(width, 3 * width));
  proj_ = register_module("proj", torch::nn::Linear(width, width));
}

torch::Tensor QkvAttentionImpl::forward(const torch::Tensor& x) {
  const double dropout = is_training() ? options_.dropout() : 0;
  return proj_->forward(
      attend(qkv_->forward(x), options_.num_heads(), {}, dropout));
}

void TransformerBlockImpl::reset() {
  const auto norm = [this] {
    return torch::nn::LayerNorm(
        torch::nn::LayerNormOptions({options.width}).eps(options.eps));
  };
  const auto linear = [](int64_t in, int64_t out) {
    torch::nn::Linear layer(in, out);
    torch::nn::init::xavier_uniform_(layer->weight);
    torch::nn::init::normal_(layer->bias, 0, 1e-6);
    return layer;
  };
  const int64_t wide = 4 * options.width;
  norm1_ = register_module(options.norm1, norm());
  attention_ = options.attention();
  register_module(options.attention_name, attention_.ptr());
  norm2_ = register_module(options.norm2, norm());
  mlp_ = register_module("mlp", Layers());
  mlp_->push_back(std::string(options.linear1), linear(options.width, wide));
  mlp_->push_back("1", torch::nn::GELU());
  mlp_->push_back("2", torch::nn::Dropout(options.dropout));
  mlp_->push_back(std::string(options.linear2), linear(wide, options.width));
  mlp_->push_back("4", torch::nn::Dropout(options.dropout));
}

torch::Tensor TransformerBlockImpl::forward(const torch::Tensor& x) {
  const torch::Tensor mixed = torch::dropout(
      attention_.forward(norm1_->forward(x)),
      options.dropout,
      is_training());
  const torch::Tensor y = x + dropped(mixed, is_training());
  // Flattened to rows, so that only feature maps are 4-dim: `grad_cam` treats
  // every output [N, C, H, W] as a map.
  const torch::Tensor rows = norm2_->forward(y).flatten(0, -2);
  return y + dropped(mlp_->forward(rows).view_as(y), is_training());
}

void init_linear_layers(torch::nn::Module& module) {
  for (const auto& part : module.modules(/*include_self=*/false)) {
    const auto* linear = dynamic_cast<torch::nn::LinearImpl*>(part.get());
    if (!linear) continue;
    torch::nn::init::normal_(linear->weight, 0, 0.02);
    if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
  }
}

torch::Tensor to_tokens(
    const torch::Tensor& maps,
    const torch::Tensor& token,
    const torch::Tensor& positions) {
  const torch::Tensor cells = maps.flatten(2).transpose(1, 2);
  // expand_as instead of a size, so that a traced graph accepts any batch size.
  const torch::Tensor tokens =
      torch::cat({token.expand_as(cells.slice(1, 0, 1)), cells}, 1);
  return tokens + resize_positions(positions, maps.size(2), maps.size(3));
}

torch::Tensor resize_positions(
    const torch::Tensor& positions,
    int64_t height,
    int64_t width) {
  const int64_t patches = positions.dim() == 3 ? positions.size(1) - 1 : -1;
  const auto side =
      std::lround(std::sqrt(std::max(static_cast<double>(patches), 0.0)));
  TERN_CHECK_VALUE(
      side > 0 && side * side == patches,
      "[resize_positions] the position embeddings are [{}]; expected [1, 1 + n "
      "* n, C] for a class token and n rows of n patches.",
      fmt::join(positions.sizes(), ", "));
  if (height == side && width == side) return positions;
  const auto type = positions.scalar_type() == torch::kDouble ? torch::kDouble
                                                              : torch::kFloat;
  const torch::Tensor square = positions.slice(1, 1)
                                   .to(type)
                                   .reshape({1, side, side, -1})
                                   .permute({0, 3, 1, 2});
  const torch::Tensor resized = at::_upsample_bicubic2d_aa(
      square,
      {height, width},
      /*align_corners=*/false);
  return torch::cat(
      {positions.slice(1, 0, 1),
       resized.flatten(2).transpose(1, 2).to(positions.scalar_type())},
      1);
}

}  // namespace tern
