#pragma once

#include <string>
#include <vector>

#include "tern/data/output_info.h"
#include "tern/vision/predict/predictor.h"

namespace tern {

/// Format of predictions for people or for other programs.
enum class PredictionFormat {
  /// One line per file: "cat.jpg: cat (0.973)". For masks, the fraction of each
  /// class that occurs, largest first.
  text,
  /// A header, then one row per file: path, label, value columns and error.
  /// Value columns are the probability of each class (for masks, its fraction
  /// of the pixels), each number, or x and y of each point. For a detector, one
  /// row per box: path, label, score, x1, y1, x2, y2, error.
  csv,
  /// JSON Lines: one object per file with the same values and the kind of
  /// output. Masks include the colors that `with_mask` draws. Several outputs
  /// form a list.
  json,
};

/// Formats predictions for files, depending on the kind of output.
///
///   const auto files = predictor.predict_folder("holidays");
///   fmt::print("{}", format_predictions(
///       files, predictor.card().outputs, PredictionFormat::csv));
///
/// \param outputs  Describes the model's outputs; outputs without a description
///                 are treated as numbers.
std::string format_predictions(
    const std::vector<FilePrediction>& files,
    const std::vector<OutputInfo>& outputs,
    PredictionFormat format);

}  // namespace tern
