#include "tern/vision/models/transformers/vit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include <fmt/ranges.h>
#include <torch/nn/init.h>

#include "tern/kernels/check.h"
#include "tern/vision/models/transformers/attention.h"

namespace tern {

namespace {

constexpr double kEps = 1e-6;      // of the LayerNorms
constexpr int64_t kMost = 10'000;  // of a size, which may be from a file

}  // namespace

template <ViTNaming naming>
VisionTransformerImpl<naming>::VisionTransformerImpl(
    const ViTShape& shape,
    const ViTOptions& options)
    : shape_(shape), options_(options) {
  check_network(
      "ViT",
      options.num_classes,
      options.in_channels,
      std::max(options.dropout, options.attention_dropout),
      options.stochastic_depth);
  const auto& [patch, width, depth, heads] = shape;
  const int64_t size = options.image_size;
  TERN_CHECK_VALUE(
      std::min({size, patch, width, depth, heads}) > 0 &&
          std::max({size, patch, width, depth, heads}) <= kMost &&
          size % patch == 0 && width % heads == 0,
      "[ViT] image_size is {}, patch, width, depth and heads are {}; "
      "expected numbers from 1 to {}, a size that is a multiple of the patch "
      "and a width that is one of the heads.",
      size,
      fmt::join({patch, width, depth, heads}, ", "),
      kMost);
  reset();
}

template <ViTNaming naming>
Layers VisionTransformerImpl<naming>::make_blocks() const {
  using Attention = std::conditional_t<kIsTimm, QkvAttention, SelfAttention>;
  const auto attention =
      torch::nn::MultiheadAttentionOptions(shape_.width, shape_.heads)
          .dropout(options_.attention_dropout);
  const TransformerBlockOptions block{
      .width = shape_.width,
      .attention = [=] { return torch::nn::AnyModule(Attention(attention)); },
      .eps = kEps,
      .dropout = options_.dropout,
      .norm1 = pick("ln_1", "norm1"),
      .attention_name = pick("self_attention", "attn"),
      .norm2 = pick("ln_2", "norm2"),
      .linear1 = pick("0", "fc1"),
      .linear2 = pick("3", "fc2")};
  Layers blocks;
  for (int64_t i = 0; i < shape_.depth; ++i) {
    blocks->push_back(
        pick("encoder_layer_", "") + std::to_string(i),
        TransformerBlock(block));
  }
  return blocks;
}

template <ViTNaming naming>
void VisionTransformerImpl<naming>::reset() {
  const int64_t patch = shape_.patch, width = shape_.width;
  token_ = this->register_parameter(
      pick("class_token", "cls_token"),
      torch::zeros({1, 1, width}));
  const torch::nn::Conv2d projection(
      torch::nn::Conv2dOptions(options_.in_channels, width, patch)
          .stride(patch));
  patches_ = Layers();
  patches_->push_back(pick("conv_proj", "proj"), projection);
  register_part(*this, pick("", "patch_embed"), patches_.ptr());
  encoder_ = Layers();
  const int64_t side = options_.image_size / patch;
  encoder_->register_parameter(
      pick("pos_embedding", "pos_embed"),
      0.02 * torch::randn({1, 1 + side * side, width}));
  encoder_->push_back(pick("layers", "blocks"), make_blocks());
  encoder_->push_back(
      pick("ln", "norm"),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(kEps)));
  register_part(*this, pick("encoder", ""), encoder_.ptr());
  set_stochastic_depth(*this, options_.stochastic_depth);

  head_ = nullptr;
  if (options_.num_classes > 0) {
    head_ = Layers();
    head_->push_back("head", torch::nn::Linear(width, options_.num_classes));
    for (const auto& weight : head_->parameters()) weight.detach().zero_();
    register_part(*this, pick("heads", ""), head_.ptr());
  }
  if (kIsTimm) {
    torch::nn::init::normal_(token_, 0, 1e-6);
    init_linear_layers(*this);
  } else {
    const auto fan_in = static_cast<double>(projection->weight[0].numel());
    torch::nn::init::normal_(projection->weight, 0, std::sqrt(1 / fan_in));
    torch::nn::init::zeros_(projection->bias);
  }
  store_channels_last(*this);
}

template <ViTNaming naming>
torch::Tensor VisionTransformerImpl<naming>::stage(
    size_t,
    const torch::Tensor& images) {
  const int64_t patch = shape_.patch;
  TERN_CHECK_VALUE(
      images.dim() == 4 && images.size(2) % patch == 0 &&
          images.size(3) % patch == 0,
      "[ViT] the images are [{}]; expected [N, {}, H, W] with H and W that "
      "are multiples of {}. Resize or crop them.",
      fmt::join(images.sizes(), ", "),
      options_.in_channels,
      patch);
  const torch::Tensor tokens = to_tokens(
      patches_->forward(images),
      token_,
      encoder_->parameters(/*recurse=*/false)[0]);
  const torch::Tensor placed =
      torch::dropout(tokens, options_.dropout, this->is_training());
  return encoder_->forward(placed).select(1, 0);
}

template <ViTNaming naming>
torch::Tensor VisionTransformerImpl<naming>::forward(
    const torch::Tensor& images) {
  const torch::Tensor token = stage(0, images);
  return head_ ? head_->forward(token) : token;
}

template class VisionTransformerImpl<ViTNaming::torchvision>;
template class VisionTransformerImpl<ViTNaming::timm>;

ViT vit_b_16(const ViTOptions& options) {
  return named<ViT>("vit_b_16", options, ViTShape{});
}

ViT vit_b_32(const ViTOptions& options) {
  return named<ViT>("vit_b_32", options, ViTShape{.patch = 32});
}

TimmViT vit_s_16(const ViTOptions& options) {
  return named<TimmViT>("vit_s_16", options, ViTShape{16, 384, 12, 6});
}

}  // namespace tern
