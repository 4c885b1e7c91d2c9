#include "tern/kernels/convert_loops.h"
#include "tern/kernels/normalize_images_math.h"

namespace tern {
namespace {

void normalize_to_float(
    const uint8_t* __restrict images,
    float* __restrict out,
    int64_t size,
    const float* __restrict scale,
    const float* __restrict offset) {
  for (int64_t i = 0; i < size; ++i) {
    out[i] = static_cast<float>(images[i]) * scale[i] + offset[i];
  }
}

void normalize(
    const uint8_t* images,
    void* out,
    ElementType out_type,
    int64_t size,
    const NormalizePattern& pattern) {
  constexpr int64_t kBlock = 1024;
  alignas(64) float buffer[kBlock];
  char* bytes = static_cast<char*>(out);
  for (int64_t i = 0; i < size; i += pattern.size) {
    const int64_t end = size - i < pattern.size ? size - i : pattern.size;
    for (int64_t j = 0; j < end; j += kBlock) {
      const int64_t block = end - j < kBlock ? end - j : kBlock;
      char* to = bytes + (i + j) * size_in_bytes(out_type);
      const bool direct = out_type == ElementType::float32;
      void* floats = direct ? static_cast<void*>(to) : buffer;
      normalize_to_float(
          images + i + j,
          static_cast<float*>(floats),
          block,
          pattern.scale + j,
          pattern.offset + j);
      if (!direct) {
        from_floats(buffer, to, out_type, block);
      }
    }
  }
}

}  // namespace

namespace TERN_CPU_ISA {
extern const NormalizeLoops normalize_loops = {&normalize};
}

}  // namespace tern
