#pragma once

#include <string>
#include <vector>

#include "tern/data/output_info.h"
#include "tern/vision/predict/predictor.h"

namespace tern {

/// How predictions are written for people or other programs.
enum class PredictionFormat {
  /// A line for each file: "cat.jpg: cat (0.973)"; of masks the share of each
  /// class that occurs, largest first.
  text,
  /// A header, then a row for each file: path, label, and a column for each
  /// class with its probability (of masks its share of the pixels) or for each
  /// number, or x and y of a point, with its value; an error where there is one.
  /// Of a detector a row for each box: path, label, score, x1, y1, x2, y2.
  csv,
  /// JSON Lines: an object for each file with the same, the kind of output, and
  /// for masks the colors that `with_mask` draws. Several outputs are a list.
  json,
};

/// Formats the answers for files by what they are about: a class, several
/// above the threshold, numbers with their names, or masks.
///
///   const auto files = predictor.predict_folder("holidays");
///   fmt::print("{}", format_predictions(
///       files, predictor.card().outputs, PredictionFormat::csv));
///
/// \param outputs  What the model's outputs predict; others are numbers.
std::string format_predictions(
    const std::vector<FilePrediction>& files,
    const std::vector<OutputInfo>& outputs,
    PredictionFormat format);

}  // namespace tern
