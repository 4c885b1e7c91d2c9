#include "tern/vision/models/matting_decoder.h"

#include <fmt/format.h>

namespace tern {

MattingDecoderImpl::MattingDecoderImpl(
    const std::array<int64_t, 5>& channels,
    const std::array<int64_t, 4>& skips)
    : channels_(channels), skips_(skips) {
  reset();
}

void MattingDecoderImpl::reset() {
  for (size_t i = 0; i < convs_.size(); ++i) {
    const bool is_last = i + 1 == convs_.size();
    convs_[i] = register_module(
        fmt::format("conv{}", i + 1),
        torch::nn::Conv2d(torch::nn::Conv2dOptions(
                              channels_[i] + skips_[i],
                              channels_[i + 1],
                              3)
                              .padding(1)
                              .bias(is_last)));
    if (is_last) continue;
    norms_[i] = register_module(
        fmt::format("bn{}", i + 1),
        torch::nn::BatchNorm2d(channels_[i + 1]));
  }
}

torch::Tensor MattingDecoderImpl::forward(
    torch::Tensor x,
    const Tensors& skips) {
  for (size_t i = 0; i < convs_.size(); ++i) {
    x = torch::upsample_bilinear2d(
        x,
        skips[i].sizes().slice(2),
        /*align_corners=*/false);
    x = convs_[i]->forward(torch::cat({x, skips[i]}, 1));
    if (i < norms_.size()) x = norms_[i]->forward(x).relu_();
  }
  return x;
}

}  // namespace tern
