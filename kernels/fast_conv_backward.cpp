#include "tern/kernels/fast_conv_backward.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/ops/convolution_backward_native.h>
#include <ATen/record_function.h>
#include <torch/library.h>
#include <torch/types.h>

#include "tern/kernels/conv_weight_gradient.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/depthwise_weight_gradient.h"

namespace tern {
namespace {

thread_local bool is_fast = false;

/// True if each pixel is in at most one patch, as in the first layer of a ViT,
/// if the patches are large enough for a matrix product, and if the processor
/// has one for bfloat16.
bool has_separate_patches(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry) {
  constexpr int64_t kLeastColumns = 32;
  const auto are = [](at::IntArrayRef numbers, int64_t value) {
    return std::ranges::all_of(numbers, [value](int64_t number) {
      return number == value;
    });
  };
  return multiplies_bfloat16() && images.dim() == 4 &&
         images.device().is_cpu() && gradient.numel() > 0 &&
         images.scalar_type() == torch::kBFloat16 &&
         gradient.scalar_type() == torch::kBFloat16 &&
         geometry.kernel_size == geometry.stride && are(geometry.padding, 0) &&
         are(geometry.dilation, 1) && !are(geometry.kernel_size, 1) &&
         images.size(1) * geometry.kernel_size[0] * geometry.kernel_size[1] >=
             kLeastColumns;
}

/// Returns the weight gradient of such a convolution.
torch::Tensor patch_weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    at::IntArrayRef kernel_size) {
  RECORD_FUNCTION("tern::patch_weight_gradient", std::vector<c10::IValue>());
  const int64_t rows = gradient.size(2), columns = gradient.size(3);
  const int64_t height = kernel_size[0], width = kernel_size[1];
  const torch::Tensor patches =
      images.narrow(2, 0, rows * height)
          .narrow(3, 0, columns * width)
          .permute({0, 2, 3, 1})
          .reshape({-1, rows, height, columns, width, images.size(1)})
          .transpose(2, 3)
          .reshape({-1, height * width * images.size(1)});
  const torch::Tensor given =
      gradient.permute({0, 2, 3, 1}).reshape({-1, gradient.size(1)});
  return given.t()
      .matmul(patches)
      .view({gradient.size(1), height, width, images.size(1)})
      .permute({0, 3, 1, 2});
}

/// Returns values for height and width from one or two numbers; unset for any
/// other count.
std::optional<std::array<int64_t, 2>> for_both(at::IntArrayRef numbers) {
  if (numbers.size() == 1) return std::array{numbers[0], numbers[0]};
  if (numbers.size() == 2) return std::array{numbers[0], numbers[1]};
  return std::nullopt;
}

/// Returns an undefined tensor if oneDNN should compute it.
torch::Tensor weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry,
    int64_t groups) {
  if (groups == 1 && has_separate_patches(images, gradient, geometry)) {
    return patch_weight_gradient(images, gradient, geometry.kernel_size);
  }
  if (groups == 1 && conv_weight_gradient_pays(images, gradient)) {
    return conv_weight_gradient(images, gradient, geometry);
  }
  if (groups > 1 && groups == images.size(1) &&
      depthwise_weight_gradient_pays(images, gradient, geometry.kernel_size)) {
    return depthwise_weight_gradient(images, gradient, geometry);
  }
  return {};
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> convolution_backward(
    const torch::Tensor& gradient,
    const torch::Tensor& images,
    const torch::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> wanted) {
  torch::Tensor of_weight, of_bias;
  const auto strides = for_both(stride), paddings = for_both(padding);
  const auto dilations = for_both(dilation);
  if (is_fast && wanted[1] && !transposed && weight.dim() == 4 &&
      weight.scalar_type() == torch::kBFloat16 && strides && paddings &&
      dilations) {
    of_weight = weight_gradient(
        images,
        gradient,
        {weight.sizes().slice(2), *strides, *paddings, *dilations},
        groups);
  }
  if (of_weight.defined()) {
    // oneDNN would compute it together with the weight's.
    if (wanted[2]) of_bias = gradient.sum({0, 2, 3});
    wanted[1] = wanted[2] = false;
    if (!wanted[0]) return {torch::Tensor(), of_weight, of_bias};
  }
  auto gradients = at::native::convolution_backward(
      gradient,
      images,
      weight,
      bias_sizes,
      stride,
      padding,
      dilation,
      transposed,
      output_padding,
      groups,
      wanted);
  if (of_weight.defined()) {
    std::get<1>(gradients) = of_weight;
    std::get<2>(gradients) = of_bias;
  }
  return gradients;
}

// LibTorch has one kernel for all devices, so the slot for the CPU is free.
// Other devices never reach it.
void take_over_convolution_backward() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never removed: another thread may be running it when the program ends.
    auto* const library = new torch::Library(
        torch::Library::IMPL,
        "aten",
        c10::DispatchKey::CPU,
        __FILE__,
        __LINE__);
    library->impl("convolution_backward", &convolution_backward);
  });
}

}  // namespace

void FastConvBackward::prepare() {
  take_over_convolution_backward();
}

FastConvBackward::FastConvBackward() : outer_(is_fast) {
  prepare();
  is_fast = true;
}

FastConvBackward::~FastConvBackward() {
  is_fast = outer_;
}

bool FastConvBackward::is_on() {
  return is_fast;
}

}  // namespace tern
