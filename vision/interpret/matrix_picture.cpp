#include "tern/vision/interpret/matrix_picture.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tern/kernels/check.h"
#include "tern/learner/decode_predictions.h"
#include "tern/vision/interpret/picture_grid.h"

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

std::vector<std::string> class_names(
    const std::vector<std::string>& classes,
    int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(class_name(classes, i));
  return names;
}

std::vector<std::vector<double>> rows_of(const torch::Tensor& matrix) {
  std::vector<std::vector<double>> rows;
  for (int64_t i = 0; i < matrix.size(0); ++i) {
    const torch::Tensor row = matrix[i].to(torch::kDouble).contiguous();
    const auto* first = row.const_data_ptr<double>();
    rows.emplace_back(first, first + row.numel());
  }
  return rows;
}

Page draw_matrix(
    const torch::Tensor& counts,
    const torch::Tensor& whole,
    const std::vector<std::string>& names,
    const MatrixTexts& texts) {
  const int64_t classes = counts.size(0);
  const bool is_numbered = classes <= kMaxNumbered;
  const double font = classes <= 14 ? kTextSize : kSmallFont;
  const std::string longest =
      texts.normalize ? "0.00" : std::to_string(counts.max().item<int64_t>());
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
  const int64_t title_half =
      std::llround(text_width(texts.title, kTitleSize) / 2) + 8;
  const int64_t title_x = std::max(title_half, left + side / 2);
  const int64_t width = std::max(left + side + kRight, title_x + title_half);
  const bool is_turned = name_width > static_cast<double>(cell - 4);
  const int64_t height =
      names_top + kBottom + (is_turned ? std::llround(name_width) : 9);

  const torch::Tensor share =
      counts.to(torch::kDouble) / whole.clamp_min(1).unsqueeze(1);
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
          cell_text(count, part, texts.normalize),
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
  write(texts.title, title_x, 26, kTitleSize);
  write(texts.columns, left + side / 2, height - 10, kTitleSize);
  write(texts.rows, 20, kTop + side / 2, kTitleSize, Anchor::middle, true);
  return page;
}

void save_page(
    const std::filesystem::path& file,
    const Page& page,
    const std::string& who) {
  if (file.extension() == ".svg") return page.save_svg(file);
  TERN_CHECK_VALUE(
      file.extension() == ".png",
      "[{}] the file is {}; expected a name that ends in .png or .svg.",
      who,
      file.string());
  save_image(file, page.pixels(/*scale=*/2));
}

}  // namespace tern
