#include "tern/kernels/images/augment_images.h"

#include <algorithm>
#include <type_traits>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "tern/kernels/check.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/images/augment_images_math.h"
#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

void check_images(const torch::Tensor& images, size_t changes) {
  TERN_CHECK_VALUE(
      images.defined() && images.dim() == 4 &&
          images.scalar_type() == at::kByte && images.is_contiguous() &&
          (images.size(3) == 1 || images.size(3) == 3),
      "[augment_images] images is {}; expected contiguous [N, H, W, 1 or "
      "3] kByte.",
      describe(images));
  TERN_CHECK_VALUE(
      changes == static_cast<size_t>(images.size(0)),
      "[augment_images] got {} changes for images {}; expected one per image.",
      changes,
      describe(images));
  constexpr int64_t kMaxPixels = int64_t{1} << 30;
  TERN_CHECK_VALUE(
      images.size(1) * images.size(2) <= kMaxPixels &&
          images.numel() / images.size(3) <= kMaxPixels,
      "[augment_images] images is {}; expected at most 2^30 pixels. Use a "
      "smaller batch.",
      describe(images));
}

AugmentRecord record_of(const ImageChange& change, size_t first_rectangle) {
  AugmentRecord record{};
  std::ranges::copy(change.warp.matrix.values, record.matrix);
  record.jitter_x = change.warp.jitter_x;
  record.jitter_y = change.warp.jitter_y;
  record.jitter_key = change.warp.jitter_key;
  record.padding = change.warp.padding;
  record.mixes_colors = change.mixes_colors;
  record.scale = change.scale;
  record.shift = change.shift;
  record.saturation = change.saturation;
  record.hue = change.hue;
  record.first_rectangle = static_cast<int32_t>(first_rectangle);
  record.rectangles = static_cast<int32_t>(change.rectangles.size());
  return record;
}

/// Records, rectangles and tables in a single buffer, so that one copy brings
/// them to a device.
class PackedChanges {
 public:
  PackedChanges(const std::vector<ImageChange>& changes, torch::Device device) {
    std::vector<AugmentRecord> records;
    std::vector<PaintedRectangle> rectangles;
    for (const ImageChange& change : changes) {
      records.push_back(record_of(change, rectangles.size()));
      rectangles.insert(
          rectangles.end(),
          change.rectangles.begin(),
          change.rectangles.end());
    }
    std::vector<uint8_t> bytes;
    const auto append = [&bytes](const void* from, size_t size) {
      const auto* const begin = static_cast<const uint8_t*>(from);
      bytes.insert(bytes.end(), begin, begin + size);
      return bytes.size();
    };
    rectangles_at_ =
        append(records.data(), records.size() * sizeof(AugmentRecord));
    tables_at_ =
        append(rectangles.data(), rectangles.size() * sizeof(PaintedRectangle));
    for (const ImageChange& change : changes) {
      append(change.table.data(), change.table.size());
    }
    const torch::Tensor packed = at::from_blob(
        bytes.data(),
        {static_cast<int64_t>(bytes.size())},
        at::kByte);
    bytes_ = device.is_cuda()
                 ? packed.pin_memory().to(device, /*non_blocking=*/true)
                 : packed.clone();
  }

  const AugmentRecord* records() const { return at<AugmentRecord>(0); }
  const PaintedRectangle* rectangles() const {
    return at<PaintedRectangle>(rectangles_at_);
  }
  const uint8_t* tables() const { return at<uint8_t>(tables_at_); }

 private:
  template <class T>
  const T* at(size_t place) const {
    return reinterpret_cast<const T*>(bytes_.const_data_ptr<uint8_t>() + place);
  }

  torch::Tensor bytes_;
  size_t rectangles_at_ = 0, tables_at_ = 0;
};

template <class Out, int kChannels>
void augment(const AugmentArgs& args) {
  const int64_t rows = int64_t{args.count} * args.height;
  const int64_t image_bytes = int64_t{args.height} * args.width * kChannels;
  parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / args.height;
      Out* out = static_cast<Out*>(args.out) + i * args.width * kChannels;
      for (int32_t x = 0; x < args.width; ++x) {
        uint8_t pixel[kChannels];
        augment_pixel<kChannels>(
            args,
            args.records[image],
            args.images + image * image_bytes,
            args.tables + image * 256,
            static_cast<int32_t>(i % args.height),
            x,
            pixel);
        for (int c = 0; c < kChannels; ++c, ++out) {
          if constexpr (std::is_same_v<Out, uint8_t>) {
            *out = pixel[c];
          } else {
            *out = static_cast<Out>(
                static_cast<float>(pixel[c]) * args.scale[c] + args.offset[c]);
          }
        }
      }
    }
  });
}

template <class Out>
void augment(const AugmentArgs& args) {
  args.channels == 3 ? augment<Out, 3>(args) : augment<Out, 1>(args);
}

}  // namespace

void augment_images_cpu(const AugmentArgs& args) {
  if (args.to_bytes) return augment<uint8_t>(args);
  switch (args.out_type) {
    case ElementType::float16:
      return augment<c10::Half>(args);
    case ElementType::bfloat16:
      return augment<c10::BFloat16>(args);
    default:
      return augment<float>(args);
  }
}

torch::Tensor augment_images(
    const torch::Tensor& images,
    const std::vector<ImageChange>& changes,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype) {
  check_images(images, changes.size());
  check_device("augment_images", images.device());
  const bool to_bytes = dtype == at::kByte;
  if (!to_bytes) {
    check_normalization("augment_images", images, mean, stddev, dtype);
  }

  AugmentArgs args{};
  args.to_bytes = to_bytes;
  args.count = static_cast<int32_t>(images.size(0));
  args.height = static_cast<int32_t>(images.size(1));
  args.width = static_cast<int32_t>(images.size(2));
  args.channels = static_cast<int32_t>(images.size(3));
  torch::Tensor out;
  if (to_bytes) {
    out = at::empty(images.sizes(), images.options());
  } else {
    out = at::empty(
        {args.count, args.channels, args.height, args.width},
        images.options().dtype(dtype).memory_format(
            at::MemoryFormat::ChannelsLast));
    args.out_type = *element_type(dtype);
    set_normalize_factors(mean, stddev, args.scale, args.offset);
  }
  if (images.numel() == 0) return out;
  const PackedChanges packed(changes, images.device());
  args.images = images.const_data_ptr<uint8_t>();
  args.records = packed.records();
  args.rectangles = packed.rectangles();
  args.tables = packed.tables();
  args.out = out.mutable_data_ptr();
  dispatch_device(
      images.device(),
      [&] { augment_images_cpu(args); },
      [&](auto stream) { return augment_images_cuda(args, stream); });
  return out;
}

}  // namespace tern
