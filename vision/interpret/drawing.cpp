#include "tern/vision/interpret/drawing.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/file_io.h"

namespace tern {
namespace {

std::string hex(Rgb color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]);
}

/// Returns a view of a contiguous [H, W, C] kByte image.
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
  torch::Tensor result =
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

cv::Scalar scalar_of(Rgb color) {
  return {
      static_cast<double>(color[0]),
      static_cast<double>(color[1]),
      static_cast<double>(color[2])};
}

constexpr double kTagSize = 10, kTagHeight = 13, kTagMargin = 3;

/// Renders a tag: [height, width, 3] kByte.
torch::Tensor tag_picture(const std::string& name, Rgb color, int64_t scale) {
  const double width = text_width(name, kTagSize) + 2 * kTagMargin;
  // ITU-R 601-2 weights, as in fastai's grayscale.
  const double brightness =
      0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2];
  const std::string elements =
      fmt::format(
          "<rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
          hex(color)) +
      svg_text(
          {name, kTagMargin, kTagHeight - 3, kTagSize},
          brightness > 140 ? "#000000" : "#ffffff");
  const int64_t rows = std::llround(kTagHeight * static_cast<double>(scale));
  const int64_t columns = std::llround(width * static_cast<double>(scale));
  std::vector<uint8_t> pixels = render_svg(
      svg_document(width, kTagHeight, "", /*is_on_white=*/true, elements),
      columns,
      rows);
  return torch::from_blob(pixels.data(), {rows, columns, 3}, torch::kByte)
      .clone();
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

void Page::frame(double x, double y, double width, double height, Rgb color) {
  marks_.push_back({Mark::Kind::frame, x, y, width, height, "", color});
}

void Page::dot(double x, double y, Rgb color) {
  marks_.push_back({Mark::Kind::dot, x, y, 0, 0, "", color});
}

void Page::tag(double x, double y, const std::string& name, Rgb color) {
  marks_.push_back({Mark::Kind::tag, x, y, 0, 0, name, color});
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
  torch::Tensor page =
      torch::from_blob(drawn.data(), {height, width, 3}, torch::kByte).clone();
  for (const Image& image : images_) {
    const int64_t rows = scale * image.height, columns = scale * image.width;
    page.narrow(0, scale * image.y, rows)
        .narrow(1, scale * image.x, columns)
        .copy_(resized(image.pixels, rows, columns));
  }
  cv::Mat canvas = mat_of(page);
  const auto pixel = [scale](double place) {
    return static_cast<int>(std::lround(place * static_cast<double>(scale)));
  };
  for (const Mark& mark : marks_) {
    const cv::Point at(pixel(mark.x), pixel(mark.y));
    const cv::Scalar color = scalar_of(mark.color);
    if (mark.kind == Mark::Kind::frame) {
      const cv::Point end(
          pixel(mark.x + mark.width) - 1,
          pixel(mark.y + mark.height) - 1);
      cv::rectangle(canvas, at, end, color, pixel(2));
    } else if (mark.kind == Mark::Kind::dot) {
      cv::circle(canvas, at, pixel(4), {255, 255, 255}, -1, cv::LINE_AA);
      cv::circle(canvas, at, pixel(3), color, -1, cv::LINE_AA);
    } else {
      const torch::Tensor tag = tag_picture(mark.name, mark.color, scale);
      const cv::Mat strip = mat_of(tag);
      const cv::Rect page_area(0, 0, canvas.cols, canvas.rows);
      const cv::Rect place(at.x, at.y - strip.rows, strip.cols, strip.rows);
      const cv::Rect shown = place & page_area;
      if (shown.empty()) continue;
      strip(shown - place.tl()).copyTo(canvas(shown));
    }
  }
  return page;
}

void Page::save_svg(const std::filesystem::path& file) const {
  write_file(file, svg());
}

}  // namespace tern
