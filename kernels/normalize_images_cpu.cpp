#include <algorithm>
#include <vector>

#include "tern/kernels/normalize_images_launch.h"
#include "tern/kernels/normalize_images_loops.h"
#include "tern/kernels/parallel_for.h"

namespace tern {

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

}  // namespace tern
