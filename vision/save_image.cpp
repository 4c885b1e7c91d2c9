#include "tern/vision/save_image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/png_write.h"

namespace tern {

namespace {

std::vector<uint8_t> encoded(
    const torch::Tensor& image,
    const std::string& who) {
  const bool is_floating = image.defined() && image.is_floating_point();
  const bool is_byte = image.defined() && image.scalar_type() == torch::kByte;
  const int64_t channels = !image.defined() || image.dim() != 3
                               ? 1
                               : image.size(is_floating ? 0 : 2);
  TORCH_CHECK_VALUE(
      (is_floating || is_byte) && (image.dim() == 2 || image.dim() == 3) &&
          (channels == 1 || channels == 3) && image.numel() > 0,
      fmt::format(
          "{} the image is {}; expected [H, W] or [1 or 3, H, W] "
          "floating in 0..1, or [H, W] or [H, W, 1 or 3] kByte.",
          who,
          image.defined() ? fmt::format(
                                "[{}] {}",
                                fmt::join(image.sizes(), ", "),
                                c10::toString(image.scalar_type()))
                          : "undefined"));
  torch::Tensor bytes = image.detach();
  if (is_floating) {
    bytes = bytes.to(torch::kFloat).clamp(0, 1).mul(255).round();
    if (bytes.dim() == 3) bytes = bytes.permute({1, 2, 0});
  }
  bytes = bytes.to(torch::kCPU, torch::kByte).contiguous();
  const std::span<const uint8_t> pixels(
      bytes.const_data_ptr<uint8_t>(),
      static_cast<size_t>(bytes.numel()));
  return encode_png(pixels, bytes.size(1), bytes.size(0), channels);
}

}  // namespace

std::vector<uint8_t> png_of(const torch::Tensor& image) {
  return encoded(image, "[png_of]");
}

void save_image(const std::filesystem::path& file, const torch::Tensor& image) {
  TORCH_CHECK_VALUE(
      file.extension() == ".png" || file.extension() == ".PNG",
      fmt::format(
          "[save_image] the file is {}; expected a name that ends in .png, "
          "which is what is written.",
          file.string()));
  write_file(file, encoded(image, "[save_image] " + file.string() + ":"));
}

}  // namespace tern
