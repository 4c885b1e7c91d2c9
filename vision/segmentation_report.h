#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tern/learner/learner.h"

namespace tern {

/// How well each class of pixels is found.
struct SegmentationReport {
  struct Row {
    std::string name;
    int64_t pixels = 0;   // that are of the class
    double accuracy = 0;  // share of them that was found; NaN without any
    /// `2 |A and B| / (|A| + |B|)` of the region found and the true one; NaN
    /// where both are empty.
    double dice = 0;
  };

  std::vector<Row> classes;
  double accuracy = 0;                      // share of all pixels
  double mean_accuracy = 0, mean_dice = 0;  // over the classes that come up

  /// A table with a line for each class.
  std::string to_string() const;
};

/// Runs the model over a split and counts pixels. Targets that are none of the
/// model's classes (a void class) are left out.
///
///   fmt::print("{}", segmentation_report(learn).to_string());
///
/// \throws c10::ValueError if the answers are not [N, C, H, W] for masks
///         [N, H, W], or there is no such split.
SegmentationReport segmentation_report(
    Learner& learn,
    Split split = Split::valid);

}  // namespace tern
