#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/picture_grid.h"

namespace tern {

/// A confusion matrix as boxes and letters, to be drawn as SVG or as pixels.
/// A cell is the darker the larger its share of the actual class is.
class ConfusionPicture {
 public:
  /// \param counts     [C, C] kLong: rows are actual, columns predicted.
  /// \param names      Of the C classes.
  /// \param normalize  Writes shares instead of counts.
  ConfusionPicture(
      const torch::Tensor& counts,
      const std::vector<std::string>& names,
      bool normalize);

  /// \throws IoError if the file cannot be written.
  void save_svg(const std::filesystem::path& file) const;
  /// [H, W, 3] kByte.
  torch::Tensor pixels() const;

 private:
  struct Box {
    int64_t x, y, width, height;
    Rgb color;
  };
  enum class Place { around, up_to, upwards };
  struct Label {
    std::string text;
    int64_t x, y;
    Place place;
    double size;
    Rgb color;
  };

  int64_t width_ = 0, height_ = 0;
  std::vector<Box> boxes_;
  std::vector<Label> labels_;
};

}  // namespace tern
