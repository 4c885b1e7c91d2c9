#include "tern/vision/interpret/confusion_picture.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tern {

namespace {

constexpr int64_t kTop = 44, kBottom = 34, kRight = 20, kLeft = 34;
constexpr double kSmallFont = 10;
constexpr double kNameWidth = 140;
// Of more classes the matrix would be too large if each cell had its number.
constexpr int64_t kMaxNumbered = 60;
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

std::string cell_text(int64_t count, double share, bool normalize) {
  if (!normalize) return fmt::format("{}", count);
  return count == 0 ? "0" : fmt::format("{:.2f}", share);
}

}  // namespace

Page draw_confusion_matrix(
    const torch::Tensor& counts,
    const std::vector<std::string>& names,
    bool normalize) {
  const int64_t classes = counts.size(0);
  const bool is_numbered = classes <= kMaxNumbered;
  const double font = classes <= 14 ? kTextSize : kSmallFont;
  const std::string longest =
      normalize ? "0.00" : std::to_string(counts.max().item<int64_t>());
  const auto number_width =
      is_numbered ? std::llround(text_width(longest, font)) + 8 : 0;
  const int64_t cell = std::max<int64_t>(
      std::clamp<int64_t>(520 / classes, 10, 64),
      number_width);
  std::vector<std::string> shown;
  double name_width = 0;
  for (const std::string& name : names) {
    shown.push_back(wrap_text(name, kNameWidth, kTextSize, 1).front());
    name_width = std::max(name_width, text_width(shown.back(), kTextSize));
  }
  const int64_t left = kLeft + std::llround(name_width) + 8;
  const int64_t side = classes * cell;
  const int64_t names_top = kTop + side + 8;
  const std::string title = normalize
                                ? "Confusion matrix, share of the actual class"
                                : "Confusion matrix";
  const int64_t title_half =
      std::llround(text_width(title, kTitleSize) / 2) + 8;
  const int64_t title_x = std::max(title_half, left + side / 2);
  const int64_t width = std::max(left + side + kRight, title_x + title_half);
  const bool is_turned = name_width > static_cast<double>(cell - 4);
  const int64_t height =
      names_top + kBottom + (is_turned ? std::llround(name_width) : 9);

  const torch::Tensor in_class = counts.sum(1, true).clamp_min(1);
  const torch::Tensor share = counts.to(torch::kDouble) / in_class;
  const auto shares = share.accessor<double, 2>();
  const auto numbers = counts.accessor<int64_t, 2>();
  Page page(height, width);
  const auto write = [&](std::string text,
                         int64_t x,
                         int64_t y,
                         double size,
                         Anchor anchor = Anchor::middle,
                         bool upwards = false,
                         Rgb color = kTextColor) {
    page.text(
        {std::move(text),
         static_cast<double>(x),
         static_cast<double>(y),
         size,
         anchor,
         upwards},
        color);
  };
  page.box(left - 1, kTop - 1, side + 2, side + 2, kFrame);
  page.box(left, kTop, side, side, kWhite);
  for (int64_t row = 0; row < classes; ++row) {
    const int64_t middle = row * cell + cell / 2;
    for (int64_t column = 0; column < classes; ++column) {
      const int64_t count = numbers[row][column];
      const double part = shares[row][column];
      const int64_t x = left + column * cell, y = kTop + row * cell;
      if (count > 0) page.box(x, y, cell, cell, shade(part));
      if (!is_numbered) continue;
      write(
          cell_text(count, part, normalize),
          x + cell / 2,
          kTop + middle + 4,
          font,
          Anchor::middle,
          false,
          part > 0.5   ? kWhite
          : count == 0 ? kFrame
                       : kTextColor);
    }
    // Names that would lie over each other are left out.
    if (cell < 14) continue;
    write(shown[row], left - 8, kTop + middle + 4, kTextSize, Anchor::end);
    if (is_turned) {
      write(
          shown[row],
          left + middle + 4,
          names_top,
          kTextSize,
          Anchor::end,
          /*upwards=*/true);
    } else {
      write(shown[row], left + middle, names_top + 9, kTextSize);
    }
  }
  write(title, title_x, 26, kTitleSize);
  write("predicted", left + side / 2, height - 10, kTitleSize);
  write("actual", 20, kTop + side / 2, kTitleSize, Anchor::middle, true);
  return page;
}

}  // namespace tern
