#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <torch/types.h>

namespace tern {

/// Writes one picture as a PNG file; replaces the file. As
/// torchvision.utils.save_image for one image.
///
/// \param image  [H, W] or [1 or 3, H, W] floating, in 0..1, what lies outside
///               is clamped; or [H, W] or [H, W, 1 or 3] kByte. Any device.
/// \throws c10::ValueError for another shape, type or ending than .png, IoError
///         if the file cannot be written.
void save_image(const std::filesystem::path& file, const torch::Tensor& image);

/// The bytes of that file.
std::vector<uint8_t> png_of(const torch::Tensor& image);

}  // namespace tern
