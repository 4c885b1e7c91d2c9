#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

namespace tern {

/// How well each class, or each of several labels, is found: the numbers of
/// scikit-learn's classification_report, in which 0 / 0 is 0.
struct ClassificationReport {
  struct Row {
    std::string name;
    double precision = 0;  // fraction of what was called so that is
    double recall = 0;     // fraction of its samples that were found
    double f1 = 0;         // harmonic mean of both
    int64_t support = 0;   // its samples
  };

  std::vector<Row> classes;
  /// Of all counts in one pot, the mean over classes, and the mean weighted by
  /// support.
  Row micro, macro, weighted;

  /// A table with one line per class, and the averages below.
  std::string to_string() const;
};

/// Computes the report from counts, [C] kLong each.
/// \param names      Of the C classes.
/// \param hits       Samples that have the class and were called so.
/// \param predicted  Samples that were called so.
/// \param actual     Samples that have the class.
ClassificationReport classification_report(
    const std::vector<std::string>& names,
    const torch::Tensor& hits,
    const torch::Tensor& predicted,
    const torch::Tensor& actual);

}  // namespace tern
