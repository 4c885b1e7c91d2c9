#include "tern/vision/confusion_picture.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/report/html_text.h"
#include "tern/vision/drawing.h"

namespace tern {
namespace {

constexpr int64_t kTop = 44, kBottom = 30, kRight = 20, kLeft = 34;
constexpr int64_t kNameWidth = 140;
constexpr Rgb kWhite = {255, 255, 255}, kFull = {8, 69, 148},
              kFrame = {200, 200, 200};

Rgb shade(double share) {
  Rgb color{};
  for (size_t i = 0; i < color.size(); ++i) {
    color[i] = static_cast<uint8_t>(
        std::lround(kWhite[i] + share * (kFull[i] - kWhite[i])));
  }
  return color;
}

std::string hex(Rgb color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]);
}

std::string cell_text(int64_t count, double share, bool normalize) {
  if (!normalize) return fmt::format("{}", count);
  return count == 0 ? "0" : fmt::format("{:.2f}", share);
}

}  // namespace

ConfusionPicture::ConfusionPicture(
    const torch::Tensor& counts,
    const std::vector<std::string>& names,
    bool normalize) {
  const int64_t classes = counts.size(0);
  const int64_t cell = std::clamp<int64_t>(520 / classes, 10, 64);
  std::vector<std::string> shown;
  int64_t name_width = 0;
  for (const std::string& name : names) {
    shown.push_back(fit_text(name, kNameWidth));
    name_width = std::max(name_width, Page::text_width(shown.back()));
  }
  const int64_t left = kLeft + name_width + 8;
  const int64_t side = classes * cell;
  const int64_t names_top = kTop + side + 8;
  const std::string title = normalize
                                ? "Confusion matrix, share of the actual class"
                                : "Confusion matrix";
  const int64_t title_half = Page::text_width(title, 10) / 2 + 8;
  const int64_t title_x = std::max(title_half, left + side / 2);
  width_ = std::max(left + side + kRight, title_x + title_half);
  const bool is_turned = name_width > cell - 4;
  height_ = names_top + (is_turned ? name_width : 9) + kBottom;

  const torch::Tensor in_class = counts.sum(1, true).clamp_min(1);
  const torch::Tensor share = counts.to(torch::kDouble) / in_class;
  const auto shares = share.accessor<double, 2>();
  const auto numbers = counts.accessor<int64_t, 2>();
  boxes_.push_back({left - 1, kTop - 1, side + 2, side + 2, kFrame});
  for (int64_t row = 0; row < classes; ++row) {
    for (int64_t column = 0; column < classes; ++column) {
      const double part = shares[row][column];
      const int64_t x = left + column * cell, y = kTop + row * cell;
      boxes_.push_back({x, y, cell, cell, shade(part)});
      const std::string text = cell_text(numbers[row][column], part, normalize);
      const double size = cell >= 36 ? 9 : 7;
      if (Page::text_width(text, size) > cell - 2) continue;
      labels_.push_back(
          {text,
           x + cell / 2,
           y + cell / 2 + static_cast<int64_t>(size / 2),
           Place::around,
           size,
           part > 0.5                  ? kWhite
           : numbers[row][column] == 0 ? kFrame
                                       : kTextColor});
    }
    // Names that would lie over each other are left out.
    if (cell < 14) continue;
    const int64_t middle = row * cell + cell / 2;
    labels_.push_back(
        {shown[static_cast<size_t>(row)],
         left - 8,
         kTop + middle + 4,
         Place::up_to,
         Page::kTextSize,
         kTextColor});
    const std::string& name = shown[static_cast<size_t>(row)];
    labels_.push_back(
        {name,
         left + middle,
         names_top + (is_turned ? Page::text_width(name) / 2 : 9),
         is_turned ? Place::upwards : Place::around,
         Page::kTextSize,
         kTextColor});
  }
  labels_.push_back({title, title_x, 26, Place::around, 10, kTextColor});
  labels_.push_back(
      {"predicted",
       left + side / 2,
       height_ - 10,
       Place::around,
       10,
       kTextColor});
  labels_.push_back(
      {"actual", 16, kTop + side / 2, Place::upwards, 10, kTextColor});
}

void ConfusionPicture::save_svg(const std::filesystem::path& file) const {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width_,
      height_);
  for (const Box& box : boxes_) {
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
        box.x,
        box.y,
        box.width,
        box.height,
        hex(box.color));
  }
  for (const Label& label : labels_) {
    // A capital letter is 0.7 of a font's size high.
    const double size = label.size / 0.7;
    const std::string place =
        label.place == Place::upwards
            ? fmt::format(
                  "transform=\"translate({} {}) rotate(-90)\" dy=\"{:.1f}\"",
                  label.x,
                  label.y,
                  label.size / 2)
            : fmt::format("x=\"{}\" y=\"{}\"", label.x, label.y);
    svg += fmt::format(
        "<text {} text-anchor=\"{}\" font-size=\"{:.1f}\" fill=\"{}\">{}"
        "</text>\n",
        place,
        label.place == Place::up_to ? "end" : "middle",
        size,
        hex(label.color),
        html_escape(label.text));
  }
  write_file(file, svg + "</svg>\n");
}

torch::Tensor ConfusionPicture::pixels() const {
  Page page(height_, width_);
  for (const Box& box : boxes_) {
    page.box(box.x, box.y, box.width, box.height, box.color);
  }
  for (const Label& label : labels_) {
    const auto draw = label.place == Place::around  ? &Page::text_around
                      : label.place == Place::up_to ? &Page::text_up_to
                                                    : &Page::text_upwards;
    (page.*draw)(label.text, label.x, label.y, label.color, label.size);
  }
  return page.pixels();
}

}  // namespace tern
