#include "tern/kernels/images/normalize_images.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

/// Scale and offset are repeated for `size` elements, so that the loop
/// vectorizes over all three arrays.
TERN_CPU_LOOP void normalize(
    const uint8_t* __restrict images,
    float* __restrict out,
    int64_t size,
    const float* __restrict scale,
    const float* __restrict offset) {
  for (int64_t i = 0; i < size; ++i) {
    out[i] = static_cast<float>(images[i]) * scale[i] + offset[i];
  }
}

void normalize_images_cpu(const NormalizeArgs& args) {
  // A multiple of the channels (for whole periods) and of 16 (for whole
  // vectors), near 768 floats, which stay in L1 with their input and output.
  const int64_t period = 16 * args.channels;
  const int64_t block = period * std::max<int64_t>(1, 768 / period);
  std::vector<float> scale(block), offset(block);
  for (int64_t i = 0; i < block; ++i) {
    scale[i] = args.scale[i % args.channels];
    offset[i] = args.offset[i % args.channels];
  }
  const bool is_direct = args.out_type == ElementType::float32;
  parallel_for(
      0,
      (args.size + block - 1) / block,
      std::max<int64_t>(1, kElementGrain / block),
      [&](int64_t first, int64_t last) {
        std::vector<float> buffer(is_direct ? 0 : block);
        for (int64_t i = first * block; i < std::min(last * block, args.size);
             i += block) {
          const int64_t size = std::min(block, args.size - i);
          void* const out =
              static_cast<char*>(args.out) + i * size_in_bytes(args.out_type);
          float* const floats =
              is_direct ? static_cast<float*>(out) : buffer.data();
          on_cpu_isa<normalize>(
              args.images + i,
              floats,
              size,
              scale.data(),
              offset.data());
          if (!is_direct) from_floats(floats, out, args.out_type, size);
        }
      });
}

}  // namespace

void check_normalization(
    const char* where,
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype) {
  const auto channels = static_cast<size_t>(images.size(3));
  TERN_CHECK_VALUE(
      mean.size() == channels && stddev.size() == channels,
      "[{}] {} values of mean and {} of stddev; expected {}, one per "
      "channel of images {}. Pass one value per channel.",
      where,
      mean.size(),
      stddev.size(),
      channels,
      describe(images));
  TERN_CHECK_VALUE(
      std::ranges::all_of(mean, [](double v) { return std::isfinite(v); }),
      "[{}] mean is [{}]; expected finite values on the scale of pixels "
      "divided by 255.",
      where,
      fmt::join(mean, ", "));
  TERN_CHECK_VALUE(
      std::ranges::all_of(
          stddev,
          [](double v) { return std::isfinite(v) && v > 0; }),
      "[{}] stddev is [{}]; expected values > 0 on the scale of pixels divided "
      "by 255. Use 1 for a constant channel.",
      where,
      fmt::join(stddev, ", "));
  TERN_CHECK_VALUE(
      dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
      "[{}] dtype is k{}; expected kFloat, kHalf or kBFloat16. Convert the "
      "result for other dtypes.",
      where,
      c10::toString(dtype));
}

void set_normalize_factors(
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    float* scale,
    float* offset) {
  for (size_t c = 0; c < mean.size(); ++c) {
    scale[c] = static_cast<float>(1 / (255 * stddev[c]));
    offset[c] = static_cast<float>(-mean[c] / stddev[c]);
  }
}

torch::Tensor normalize_images(
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype) {
  TERN_CHECK_VALUE(
      images.defined() && images.dim() == 4 &&
          images.scalar_type() == at::kByte && images.is_contiguous(),
      "[normalize_images] images is {}{}; expected contiguous [N, H, W, C] "
      "kByte. Permute it to channels last and call contiguous().",
      describe(images),
      images.defined() && !images.is_contiguous() ? ", not contiguous" : "");
  check_normalization("normalize_images", images, mean, stddev, dtype);
  check_device("normalize_images", images.device());
  const int64_t channels = images.size(3);
  TERN_CHECK_VALUE(
      images.is_cpu() || channels <= kMaxCudaChannels,
      "[normalize_images] images is {}; expected at most {} channels on a "
      "CUDA device. Normalize slices of the channels.",
      describe(images),
      kMaxCudaChannels);

  std::vector<float> scale(channels), offset(channels);
  set_normalize_factors(mean, stddev, scale.data(), offset.data());
  torch::Tensor out = at::empty(
      {images.size(0), channels, images.size(1), images.size(2)},
      images.options().dtype(dtype).memory_format(
          at::MemoryFormat::ChannelsLast));
  if (images.numel() == 0) return out;
  NormalizeArgs args{};
  args.images = images.const_data_ptr<uint8_t>();
  args.out = out.mutable_data_ptr();
  args.out_type = *element_type(dtype);
  args.size = images.numel();
  args.channels = channels;
  args.scale = scale.data();
  args.offset = offset.data();
  dispatch_device(
      images.device(),
      [&] { normalize_images_cpu(args); },
      [&](auto stream) { return normalize_images_cuda(args, stream); });
  return out;
}

}  // namespace tern
