#include "tern/vision/interpret/drawing.h"

#include <algorithm>

#include <fmt/format.h>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/file_io.h"
#include "tern/learner/report/html_page.h"

namespace tern {
namespace {

constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;

cv::Scalar scalar(Rgb color) {
  return cv::Scalar(color[0], color[1], color[2]);
}

cv::Point point(int64_t x, int64_t y) {
  return {static_cast<int>(x), static_cast<int>(y)};
}

// OpenCV's letters are 21 units high at scale 1.
double scale_of(double size) {
  return size / 21;
}

std::string ascii(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else if ((byte & 0xc0) != 0x80) {  // the first byte of a character
      out += '?';
    }
  }
  return out;
}

std::string hex(Rgb color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]);
}

void put_text(
    cv::Mat page,
    const std::string& text,
    cv::Point place,
    Rgb color,
    double size) {
  cv::putText(
      page,
      ascii(text),
      place,
      kFont,
      scale_of(size),
      scalar(color),
      /*thickness=*/1,
      cv::LINE_AA);
}

/// A view of [H, W, C] kByte, contiguous.
cv::Mat mat_of(const torch::Tensor& image) {
  return {
      static_cast<int>(image.size(0)),
      static_cast<int>(image.size(1)),
      CV_MAKETYPE(CV_8U, static_cast<int>(image.size(2))),
      const_cast<uint8_t*>(image.const_data_ptr<uint8_t>())};
}

}  // namespace

Page::Page(int64_t height, int64_t width)
    : pixels_(torch::full({height, width, 3}, 255, torch::kByte)) {}

int64_t Page::text_width(const std::string& text, double size) {
  int below = 0;
  return cv::getTextSize(
             ascii(text),
             kFont,
             scale_of(size),
             /*thickness=*/1,
             &below)
      .width;
}

void Page::text(
    const std::string& text,
    int64_t x,
    int64_t y,
    Anchor anchor,
    double size,
    Rgb color) {
  const bool is_turned = anchor == Anchor::upwards;
  svg_ += fmt::format(
      "<text {} text-anchor=\"{}\" font-size=\"{:.1f}\" fill=\"{}\">{}"
      "</text>\n",
      is_turned ? fmt::format(
                      "transform=\"translate({} {}) rotate(-90)\" "
                      "dy=\"{:.1f}\"",
                      x,
                      y,
                      size / 2)
                : fmt::format("x=\"{}\" y=\"{}\"", x, y),
      anchor == Anchor::left    ? "start"
      : anchor == Anchor::right ? "end"
                                : "middle",
      size / 0.7,  // a capital letter is 0.7 of a font's size high
      hex(color),
      html_escape(text));
  const int64_t width = text_width(text, size);
  if (!is_turned) {
    const int64_t before = anchor == Anchor::middle  ? width / 2
                           : anchor == Anchor::right ? width
                                                     : 0;
    put_text(mat_of(pixels_), text, point(x - before, y), color, size);
    return;
  }
  const auto height = static_cast<int64_t>(size * 1.6);
  const Page lying(height, width + 2);
  put_text(
      mat_of(lying.pixels_),
      text,
      point(1, static_cast<int64_t>(size * 1.2)),
      color,
      size);
  cv::Mat page = mat_of(pixels_), turned;
  cv::rotate(mat_of(lying.pixels_), turned, cv::ROTATE_90_COUNTERCLOCKWISE);
  const cv::Rect place(
      point(x - height / 2, y - (width + 2) / 2),
      turned.size());
  const cv::Rect seen = place & cv::Rect({0, 0}, page.size());
  if (!seen.empty()) turned(seen - place.tl()).copyTo(page(seen));
}

void Page::box(int64_t x, int64_t y, int64_t width, int64_t height, Rgb color) {
  svg_ += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
      x,
      y,
      width,
      height,
      hex(color));
  cv::rectangle(
      mat_of(pixels_),
      cv::Rect(point(x, y), point(x + width, y + height)),
      scalar(color),
      cv::FILLED);
}

void Page::image(
    const torch::Tensor& image,
    int64_t x,
    int64_t y,
    int64_t width,
    int64_t height) {
  const torch::Tensor source = image.contiguous();
  const double factor = std::min(
      static_cast<double>(height) / static_cast<double>(source.size(0)),
      static_cast<double>(width) / static_cast<double>(source.size(1)));
  const cv::Rect place(point(x, y), point(x + width, y + height));
  cv::Mat scaled;
  cv::resize(
      mat_of(source),
      scaled,
      place.size(),
      0,
      0,
      factor >= 3  ? cv::INTER_NEAREST
      : factor > 1 ? cv::INTER_CUBIC
                   : cv::INTER_AREA);
  if (scaled.channels() == 1) cv::cvtColor(scaled, scaled, cv::COLOR_GRAY2RGB);
  scaled.copyTo(mat_of(pixels_)(place));
}

void Page::save_svg(const std::filesystem::path& file) const {
  write_file(
      file,
      fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
          "width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\">\n"
          "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
          pixels_.size(1),
          pixels_.size(0),
          svg_));
}

std::string fit_text(const std::string& text, int64_t width) {
  const std::string whole = ascii(text);
  std::string fitting = whole;
  for (size_t kept = whole.size();
       kept > 1 && Page::text_width(fitting) > width;
       --kept) {
    fitting = whole.substr(0, kept / 2) + ".." +
              whole.substr(whole.size() - (kept - kept / 2));
  }
  return fitting;
}

}  // namespace tern
