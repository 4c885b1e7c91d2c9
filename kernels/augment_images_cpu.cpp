#include <type_traits>

#include <torch/types.h>

#include "tern/kernels/augment_images_launch.h"
#include "tern/kernels/augment_images_math.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

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

}  // namespace tern
