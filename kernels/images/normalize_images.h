#pragma once

#include <torch/types.h>

namespace tern {

/// Converts a batch of 8-bit images to normalized floats:
/// `(image / 255 - mean) / stddev`, per channel.
///
/// \param images  [N, H, W, C] kByte, contiguous, on a CPU or a CUDA device.
/// \param mean    C values in units of 0..1.
/// \param stddev  C values in units of 0..1, all > 0.
/// \param dtype   kFloat, kHalf or kBFloat16.
/// \return        [N, C, H, W] of `dtype`, channels-last, same device.
/// \throws c10::ValueError if a shape, dtype or value differs from the above.
///
/// Computes in float and rounds once. Reads and writes the batch once, since
/// [N, H, W, C] in memory already is the channels-last layout of [N, C, H, W].
torch::Tensor normalize_images(
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype = torch::kFloat);

/// Checks the arguments of a normalization of [N, H, W, C] images.
/// \throws the errors of normalize_images, with the prefix `where`.
void check_normalization(
    const char* where,
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype);

/// Computes `scale` and `offset` for each channel, so that
/// (x / 255 - mean) / stddev is one multiplication and one addition.
void set_normalize_factors(
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    float* scale,
    float* offset);

}  // namespace tern
