#include "tern/vision/interpret/matrix_picture.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tern/kernels/check.h"
#include "tern/learner/decode_predictions.h"
#include "tern/vision/interpret/image_grid.h"

namespace tern {

namespace {

constexpr int64_t kTop = 44, kBottom = 34, kRight = 20, kLeft = 34;
constexpr double kSmallFont = 10;
constexpr double kNameWidth = 140;
// With more classes, cells wide enough for numbers would make the plot too
// large.
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

/// Positions and sizes of the parts of the plot, in pixels.
struct MatrixLayout {
  int64_t classes = 0, cell = 0;  // number of classes, side of a cell
  int64_t left = 0;               // left edge of the cells
  int64_t names_top = 0;          // top of the column names, below the cells
  int64_t title_x = 0;            // center of the title
  int64_t width = 0, height = 0;  // of the page
  double number_size = 0;         // font size of the numbers
  bool has_numbers = false;
  bool has_turned_names = false;  // column names read upwards

  int64_t side() const { return classes * cell; }
  /// False if names would overlap; they are then left out.
  bool has_names() const { return cell >= 14; }
};

/// \param longest_number  As written in a cell.
/// \param names_width     Width of the longest name.
MatrixLayout layout_of(
    int64_t classes,
    const std::string& longest_number,
    double names_width,
    const std::string& title) {
  MatrixLayout at;
  at.classes = classes;
  at.has_numbers = classes <= kMaxNumbered;
  at.number_size = classes <= 14 ? kTextSize : kSmallFont;
  const auto number_width =
      at.has_numbers
          ? std::llround(text_width(longest_number, at.number_size)) + 8
          : 0;
  at.cell = std::max<int64_t>(
      std::clamp<int64_t>(520 / classes, 10, 64),
      number_width);
  at.left = kLeft + std::llround(names_width) + 8;
  at.names_top = kTop + at.side() + 8;
  at.has_turned_names = names_width > static_cast<double>(at.cell - 4);
  at.height = at.names_top + kBottom +
              (at.has_turned_names ? std::llround(names_width) : 9);
  // Moves a title that is wider than the cells to the right, so that it stays
  // on the page.
  const int64_t half_title =
      std::llround(text_width(title, kTitleSize) / 2) + 8;
  at.title_x = std::max(half_title, at.left + at.side() / 2);
  at.width = std::max(at.left + at.side() + kRight, at.title_x + half_title);
  return at;
}

void write(
    Page& page,
    std::string text,
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
}

void draw_cells(
    Page& page,
    const MatrixLayout& at,
    const torch::Tensor& counts,
    const torch::Tensor& whole,
    bool normalize) {
  const torch::Tensor share =
      counts.to(torch::kDouble) / whole.clamp_min(1).unsqueeze(1);
  const auto shares = share.accessor<double, 2>();
  const auto numbers = counts.accessor<int64_t, 2>();
  page.box(at.left - 1, kTop - 1, at.side() + 2, at.side() + 2, kFrame);
  page.box(at.left, kTop, at.side(), at.side(), kWhite);
  for (int64_t row = 0; row < at.classes; ++row) {
    for (int64_t column = 0; column < at.classes; ++column) {
      const int64_t count = numbers[row][column];
      const double part = shares[row][column];
      const int64_t x = at.left + column * at.cell, y = kTop + row * at.cell;
      if (count > 0) page.box(x, y, at.cell, at.cell, shade(part));
      if (!at.has_numbers) continue;
      const Rgb color = part > 0.5 ? kWhite : count == 0 ? kFrame : kTextColor;
      write(
          page,
          cell_text(count, part, normalize),
          x + at.cell / 2,
          y + at.cell / 2 + 4,
          at.number_size,
          Anchor::middle,
          /*upwards=*/false,
          color);
    }
  }
}

/// Writes the row names on the left and the column names below the cells.
void draw_names(
    Page& page,
    const MatrixLayout& at,
    const std::vector<std::string>& names) {
  if (!at.has_names()) return;
  for (int64_t i = 0; i < at.classes; ++i) {
    const int64_t middle = i * at.cell + at.cell / 2;
    write(
        page,
        names[i],
        at.left - 8,
        kTop + middle + 4,
        kTextSize,
        Anchor::end);
    if (at.has_turned_names) {
      write(
          page,
          names[i],
          at.left + middle + 4,
          at.names_top,
          kTextSize,
          Anchor::end,
          /*upwards=*/true);
    } else {
      write(page, names[i], at.left + middle, at.names_top + 9, kTextSize);
    }
  }
}

void draw_titles(Page& page, const MatrixLayout& at, const MatrixTexts& texts) {
  const int64_t middle = at.side() / 2;
  write(page, texts.title, at.title_x, 26, kTitleSize);
  write(page, texts.columns, at.left + middle, at.height - 10, kTitleSize);
  write(
      page,
      texts.rows,
      20,
      kTop + middle,
      kTitleSize,
      Anchor::middle,
      /*upwards=*/true);
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
  std::vector<std::string> shown;
  double names_width = 0;
  for (const std::string& name : names) {
    shown.push_back(wrap_text(name, kNameWidth, kTextSize, 1).front());
    names_width = std::max(names_width, text_width(shown.back(), kTextSize));
  }
  const std::string longest_number =
      texts.normalize ? "0.00" : std::to_string(counts.max().item<int64_t>());
  const MatrixLayout at =
      layout_of(counts.size(0), longest_number, names_width, texts.title);
  Page page(at.height, at.width);
  draw_cells(page, at, counts, whole, texts.normalize);
  draw_names(page, at, shown);
  draw_titles(page, at, texts);
  return page;
}

Page draw_confusion_matrix(
    const torch::Tensor& matrix,
    const std::vector<std::string>& names,
    bool normalize) {
  return draw_matrix(
      matrix,
      matrix.sum(1),
      names,
      {.title = normalize ? "Confusion matrix, fraction of the actual class"
                          : "Confusion matrix",
       .rows = "actual",
       .columns = "predicted",
       .normalize = normalize});
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
