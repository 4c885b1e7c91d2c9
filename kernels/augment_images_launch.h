#pragma once

#include <cstdint>

#include "tern/kernels/element_type.h"
#include "tern/kernels/padding.h"
#include "tern/kernels/painted_rectangle.h"

struct CUstream_st;

// Between augment_images.cpp, which knows tensors, and the kernels, which know
// pointers. Nothing of LibTorch or CUDA is included.
namespace tern {

/// An ImageChange (augment_images.h) without what varies in size.
struct AugmentRecord {
  float matrix[9];
  float jitter_x, jitter_y;
  uint32_t jitter_key;
  Padding padding;
  bool mixes_colours;
  float scale, shift, saturation, hue;
  int32_t first_rectangle, rectangles;
};

struct AugmentArgs {
  const uint8_t* images;
  /// One an image, and 256 bytes of table an image.
  const AugmentRecord* records;
  const uint8_t* tables;
  const PaintedRectangle* rectangles;
  void* out;
  /// The changed bytes, or `byte * scale[c] + offset[c]` as out_type.
  bool to_bytes;
  ElementType out_type;
  int32_t count, height, width, channels;
  float scale[3], offset[3];
};

void augment_images_cpu(const AugmentArgs& args);

/// \return a cudaError_t.
int augment_images_cuda(const AugmentArgs& args, CUstream_st* stream);

}  // namespace tern
