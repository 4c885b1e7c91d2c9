#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

namespace tern {

/// Precision, recall and F1 of each class or label, as in scikit-learn's
/// classification_report. 0 / 0 counts as 0.
struct ClassificationReport {
  struct Row {
    std::string name;
    double precision = 0;  // fraction of its predictions that are right
    double recall = 0;     // fraction of its samples that are found
    double f1 = 0;         // harmonic mean of precision and recall
    int64_t support = 0;   // number of samples of this class
  };

  std::vector<Row> classes;
  /// Averages: from the summed counts of all classes, over the classes, and
  /// over the classes weighted by support.
  Row micro, macro, weighted;

  /// Formats a table with one line per class, followed by the averages.
  std::string to_string() const;
};

/// Computes the report from counts per class, each [C] kLong.
/// \param names      Names of the C classes.
/// \param hits       Samples of the class that were predicted as this class.
/// \param predicted  Samples that were predicted as this class.
/// \param actual     Samples of the class.
ClassificationReport classification_report(
    const std::vector<std::string>& names,
    const torch::Tensor& hits,
    const torch::Tensor& predicted,
    const torch::Tensor& actual);

}  // namespace tern
