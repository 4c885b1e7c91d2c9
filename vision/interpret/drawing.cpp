#include "tern/vision/interpret/drawing.h"

#include <algorithm>

#include <fmt/format.h>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/file_io.h"

namespace tern {
namespace {

std::string hex(Rgb color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]);
}

/// A view of [H, W, C] kByte, contiguous.
cv::Mat mat_of(const torch::Tensor& image) {
  return {
      static_cast<int>(image.size(0)),
      static_cast<int>(image.size(1)),
      CV_MAKETYPE(CV_8U, static_cast<int>(image.size(2))),
      const_cast<uint8_t*>(image.const_data_ptr<uint8_t>())};
}

torch::Tensor
resized(const torch::Tensor& image, int64_t height, int64_t width) {
  const double factor = std::min(
      static_cast<double>(height) / static_cast<double>(image.size(0)),
      static_cast<double>(width) / static_cast<double>(image.size(1)));
  const torch::Tensor result =
      torch::empty({height, width, image.size(2)}, torch::kByte);
  cv::Mat out = mat_of(result);
  cv::resize(
      mat_of(image),
      out,
      out.size(),
      0,
      0,
      factor >= 3  ? cv::INTER_NEAREST
      : factor > 1 ? cv::INTER_CUBIC
                   : cv::INTER_AREA);
  return result;
}

}  // namespace

void Page::text(const SvgText& text, Rgb color) {
  elements_ += svg_text(text, hex(color));
}

void Page::box(int64_t x, int64_t y, int64_t width, int64_t height, Rgb color) {
  elements_ += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
      x,
      y,
      width,
      height,
      hex(color));
}

void Page::image(
    const torch::Tensor& image,
    int64_t x,
    int64_t y,
    int64_t width,
    int64_t height) {
  images_.push_back({image.contiguous(), x, y, width, height});
}

std::string Page::svg() const {
  return svg_document(
      static_cast<double>(width_),
      static_cast<double>(height_),
      "",
      /*is_on_white=*/true,
      elements_);
}

torch::Tensor Page::pixels(int64_t scale) const {
  const int64_t height = scale * height_, width = scale * width_;
  std::vector<uint8_t> drawn = render_svg(svg(), width, height);
  const torch::Tensor page =
      torch::from_blob(drawn.data(), {height, width, 3}, torch::kByte).clone();
  for (const Image& image : images_) {
    const int64_t rows = scale * image.height, columns = scale * image.width;
    page.narrow(0, scale * image.y, rows)
        .narrow(1, scale * image.x, columns)
        .copy_(resized(image.pixels, rows, columns));
  }
  return page;
}

void Page::save_svg(const std::filesystem::path& file) const {
  write_file(file, svg());
}

}  // namespace tern
