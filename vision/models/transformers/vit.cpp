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

constexpr double kEps = 1e-6;      // of the norms
constexpr int64_t kMost = 10'000;  // of any size: it may come from a file
constexpr double kStddev = 0.02;   // of initial embeddings; timm's of weights

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
  const auto attention =
      torch::nn::MultiheadAttentionOptions(shape_.width, shape_.heads)
          .dropout(options_.attention_dropout);
  TransformerBlockOptions block{
      .width = shape_.width,
      .attention =
          [attention] {
            using Attention =
                std::conditional_t<kIsTimm, QkvAttention, SelfAttention>;
            return torch::nn::AnyModule(Attention(attention));
          },
      .eps = kEps,
      .dropout = options_.dropout};
  if (kIsTimm) {
    block.linear1 = "fc1";
    block.linear2 = "fc2";
  } else {
    block.norm1 = "ln_1";
    block.attention_name = "self_attention";
    block.norm2 = "ln_2";
  }
  Layers blocks;
  for (int64_t i = 0; i < shape_.depth; ++i) {
    blocks->push_back(
        (kIsTimm ? "" : "encoder_layer_") + std::to_string(i),
        TransformerBlock(block));
  }
  return blocks;
}

template <ViTNaming naming>
void VisionTransformerImpl<naming>::reset() {
  const auto name = [](const char* torchvision, const char* timm) {
    return kIsTimm ? timm : torchvision;
  };
  const int64_t patch = shape_.patch, width = shape_.width;
  token_ = this->register_parameter(
      name("class_token", "cls_token"),
      torch::zeros({1, 1, width}));
  const torch::nn::Conv2d projection(
      torch::nn::Conv2dOptions(options_.in_channels, width, patch)
          .stride(patch));
  patches_ = Layers();
  patches_->push_back(name("conv_proj", "proj"), projection);
  register_part(*this, name("", "patch_embed"), patches_.ptr());

  encoder_ = Layers();
  const int64_t side = options_.image_size / patch;
  encoder_->register_parameter(
      name("pos_embedding", "pos_embed"),
      kStddev * torch::randn({1, 1 + side * side, width}));
  encoder_->push_back(name("layers", "blocks"), make_blocks());
  encoder_->push_back(
      name("ln", "norm"),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(kEps)));
  register_part(*this, name("encoder", ""), encoder_.ptr());
  set_stochastic_depth(*this, options_.stochastic_depth);

  head_ = nullptr;
  if (options_.num_classes > 0) {
    const torch::nn::Linear head(width, options_.num_classes);
    for (const auto& weight : head->parameters()) weight.detach().zero_();
    head_ = Layers();
    head_->push_back("head", head);
    register_part(*this, name("heads", ""), head_.ptr());
  }
  if (kIsTimm) {
    torch::nn::init::normal_(token_, 0, 1e-6);
    for (const auto& module : this->modules(/*include_self=*/false)) {
      auto* linear = module->template as<torch::nn::Linear>();
      if (!linear) continue;
      torch::nn::init::normal_(linear->weight, 0, kStddev);
      torch::nn::init::zeros_(linear->bias);
    }
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
  const torch::Tensor maps = patches_->forward(images);
  const torch::Tensor cells = maps.flatten(2).transpose(1, 2);
  // As, so that a traced graph takes any batch size.
  const torch::Tensor tokens =
      torch::cat({token_.expand_as(cells.slice(1, 0, 1)), cells}, 1);
  const torch::Tensor positions = resize_positions(
      encoder_->parameters(/*recurse=*/false)[0],
      maps.size(2),
      maps.size(3));
  const torch::Tensor placed =
      torch::dropout(tokens + positions, options_.dropout, this->is_training());
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

JsonFields fields_of(ViTOptions& options) {
  return {
      {"num_classes", &options.num_classes},
      {"in_channels", &options.in_channels},
      {"image_size", &options.image_size},
      {"dropout", &options.dropout},
      {"attention_dropout", &options.attention_dropout},
      {"stochastic_depth", &options.stochastic_depth}};
}

ViT vit_b_16(const ViTOptions& options) {
  return named<ViT>("vit_b_16", options, ViTShape{});
}

ViT vit_b_32(const ViTOptions& options) {
  return named<ViT>("vit_b_32", options, ViTShape{.patch = 32});
}

TimmViT vit_s_16(const ViTOptions& options) {
  return named<TimmViT>(
      "vit_s_16",
      options,
      ViTShape{.width = 384, .heads = 6});
}

}  // namespace tern
