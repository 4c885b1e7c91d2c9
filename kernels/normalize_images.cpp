#include "tern/kernels/normalize_images.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/kernels/checks.h"
#include "tern/kernels/normalize_images_math.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

void normalize_images_cpu(const NormalizeArgs& args) {
  // A multiple of the channels (for whole periods), of 16 (for whole vectors),
  // and near 768 floats, which stay in L1 with their input and output.
  const int64_t period = 16 * args.channels;
  const int64_t size = period * std::max<int64_t>(1, 768 / period);
  std::vector<float> scale(size), offset(size);
  for (int64_t i = 0; i < size; ++i) {
    scale[i] = args.scale[i % args.channels];
    offset[i] = args.offset[i % args.channels];
  }
  const NormalizePattern pattern{scale.data(), offset.data(), size};
  const NormalizeLoops& loops = TERN_SELECT_LOOPS(normalize_loops);
  const int64_t periods = (args.size + size - 1) / size;
  parallel_for(
      0,
      periods,
      std::max<int64_t>(1, kElementGrain / size),
      [&](int64_t first, int64_t last) {
        const int64_t begin = first * size;
        const int64_t end = std::min(last * size, args.size);
        loops.normalize(
            args.images + begin,
            static_cast<char*>(args.out) + begin * size_in_bytes(args.out_type),
            args.out_type,
            end - begin,
            pattern);
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
  TORCH_CHECK_VALUE(
      mean.size() == channels && stddev.size() == channels,
      fmt::format(
          "[{}] {} values of mean and {} of stddev; expected {}, one per "
          "channel of images {}. Pass one value per channel.",
          where,
          mean.size(),
          stddev.size(),
          channels,
          describe(images)));
  TORCH_CHECK_VALUE(
      std::all_of(
          mean.begin(),
          mean.end(),
          [](double v) { return std::isfinite(v); }),
      fmt::format(
          "[{}] mean is [{}]; expected finite values, in units of 0..1.",
          where,
          fmt::join(mean, ", ")));
  TORCH_CHECK_VALUE(
      std::all_of(
          stddev.begin(),
          stddev.end(),
          [](double v) { return std::isfinite(v) && v > 0; }),
      fmt::format(
          "[{}] stddev is [{}]; expected values > 0, in units of 0..1. Use 1 "
          "for a channel that does not vary.",
          where,
          fmt::join(stddev, ", ")));
  TORCH_CHECK_VALUE(
      dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16,
      fmt::format(
          "[{}] dtype is k{}; expected kFloat, kHalf or kBFloat16. Convert the "
          "result for other types.",
          where,
          c10::toString(dtype)));
}

torch::Tensor normalize_images(
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      images.defined() && images.dim() == 4 &&
          images.scalar_type() == at::kByte && images.is_contiguous(),
      fmt::format(
          "[normalize_images] images is {}{}; expected contiguous [N, H, W, C] "
          "kByte. Permute it to channels last and call contiguous().",
          describe(images),
          images.defined() && !images.is_contiguous() ? ", not contiguous"
                                                      : ""));
  check_normalization("normalize_images", images, mean, stddev, dtype);
  check_device("normalize_images", images.device());
  const int64_t channels = images.size(3);
  TORCH_CHECK_VALUE(
      images.is_cpu() || channels <= kMaxCudaChannels,
      fmt::format(
          "[normalize_images] images is {}; expected at most {} channels on a "
          "CUDA device. Normalise slices of the channels.",
          describe(images),
          kMaxCudaChannels));

  std::vector<float> scale(channels), offset(channels);
  for (int64_t c = 0; c < channels; ++c) {
    set_normalize_factors(mean[c], stddev[c], scale[c], offset[c]);
  }
  torch::Tensor out = at::empty(
      {images.size(0), channels, images.size(1), images.size(2)},
      images.options().dtype(dtype).memory_format(
          at::MemoryFormat::ChannelsLast));
  if (images.numel() == 0) {
    return out;
  }
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
