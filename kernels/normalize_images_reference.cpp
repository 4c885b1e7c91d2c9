#include "tern/kernels/normalize_images_reference.h"

#include <ATen/ATen.h>

namespace tern::reference {

torch::Tensor normalize_images(
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype) {
  const auto channels = [&](c10::ArrayRef<double> values) {
    return at::tensor(values, at::kFloat)
        .view({1, -1, 1, 1})
        .to(images.device());
  };
  const at::Tensor unit = images.permute({0, 3, 1, 2}).to(at::kFloat) / 255;
  return ((unit - channels(mean)) / channels(stddev))
      .to(dtype, false, false, at::MemoryFormat::ChannelsLast);
}

}  // namespace tern::reference
