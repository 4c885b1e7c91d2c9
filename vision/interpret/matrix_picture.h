#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/interpret/drawing.h"

namespace tern {

/// Returns the names of classes 0 to `count` - 1.
std::vector<std::string> class_names(
    const std::vector<std::string>& classes,
    int64_t count);

/// Converts the rows of a matrix for HtmlPage::matrix.
std::vector<std::vector<double>> rows_of(const torch::Tensor& matrix);

/// Text around a matrix of classes.
struct MatrixTexts {
  std::string title, rows, columns;
  /// Writes fractions instead of counts.
  bool normalize = false;
};

/// Draws a matrix of classes, such as a confusion matrix. Cells are darker for
/// larger fractions and as wide as the longest number. With more than 60
/// classes there are no numbers.
/// \param counts  [C, C] kLong.
/// \param whole   [C] kLong: the total of which a row's cells are fractions.
/// \param names   Names of the C classes.
Page draw_matrix(
    const torch::Tensor& counts,
    const torch::Tensor& whole,
    const std::vector<std::string>& names,
    const MatrixTexts& texts);

/// Draws a confusion matrix whose rows are the actual classes.
/// \param normalize  Writes fractions of the actual class instead of counts.
Page draw_confusion_matrix(
    const torch::Tensor& matrix,
    const std::vector<std::string>& names,
    bool normalize);

/// Writes a page as a PNG or SVG file, depending on the suffix.
/// \param who  Name of the caller, for error messages.
/// \throws c10::ValueError for any other suffix; IoError.
void save_page(
    const std::filesystem::path& file,
    const Page& page,
    const std::string& who);

}  // namespace tern
