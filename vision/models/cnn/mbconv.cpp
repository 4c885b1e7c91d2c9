#include "tern/vision/models/cnn/mbconv.h"

#include <algorithm>

namespace tern {

MBConvImpl::MBConvImpl(const MBConvOptions& options) : options_(options) {
  reset();
}

void MBConvImpl::reset() {
  const MBConvOptions& o = options_;
  ConvLayerOptions layer{
      .kernel_size = 1,
      .end = o.end,
      .eps = o.eps,
      .momentum = o.momentum};
  Layers block;
  if (o.wide != o.in) block->push_back(ConvLayer(o.in, o.wide, layer));
  ConvLayerOptions filter = layer;
  filter.kernel_size = o.kernel_size;
  filter.stride = o.stride;
  filter.groups = o.wide;
  block->push_back(ConvLayer(o.wide, o.wide, filter));
  if (o.squeezed > 0) {
    block->push_back(
        SqueezeExcitation(o.wide, o.squeezed, o.squeezed_end, o.gate));
  }
  layer.end = LayerEnd::linear;
  block->push_back(ConvLayer(o.wide, o.out, layer));
  block_ = register_module("block", block);
}

torch::Tensor MBConvImpl::forward(const torch::Tensor& x) {
  const torch::Tensor y = block_->forward(x);
  if (options_.stride != 1 || options_.in != options_.out) return y;
  return dropped(y, is_training()) + x;
}

int64_t round_to_eights(double channels) {
  const int64_t nearest = static_cast<int64_t>(channels + 4) / 8 * 8;
  const int64_t rounded = std::max<int64_t>(8, nearest);
  const bool is_too_few = static_cast<double>(rounded) < 0.9 * channels;
  return is_too_few ? rounded + 8 : rounded;
}

}  // namespace tern
