#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/interpret/drawing.h"

namespace tern {

/// The names of classes 0 to `count` - 1.
std::vector<std::string> class_names(
    const std::vector<std::string>& classes,
    int64_t count);

/// The rows of a matrix as HtmlPage::matrix takes them.
std::vector<std::vector<double>> rows_of(const torch::Tensor& matrix);

/// The texts around a matrix of classes.
struct MatrixTexts {
  std::string title, rows, columns;
  /// Writes shares instead of counts.
  bool normalize = false;
};

/// Draws a matrix of classes, such as a confusion matrix. A cell is the darker
/// the larger its share is, and as wide as the longest number; beyond 60
/// classes there are no numbers.
/// \param counts  [C, C] kLong.
/// \param whole   [C] kLong: the cells of each row are shares of it.
/// \param names   Of the C classes.
Page draw_matrix(
    const torch::Tensor& counts,
    const torch::Tensor& whole,
    const std::vector<std::string>& names,
    const MatrixTexts& texts);

/// Draws a confusion matrix, of which rows are actual classes.
/// \param normalize  Writes fractions of the actual class instead of counts.
Page draw_confusion_matrix(
    const torch::Tensor& matrix,
    const std::vector<std::string>& names,
    bool normalize);

/// Writes a page as a PNG file or, by its suffix, an SVG.
/// \param who  The caller, for error messages.
/// \throws c10::ValueError for another suffix; IoError.
void save_page(
    const std::filesystem::path& file,
    const Page& page,
    const std::string& who);

}  // namespace tern
