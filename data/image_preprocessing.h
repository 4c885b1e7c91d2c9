#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// What happens to an image between its file and the model when it is not for
/// training, so that another program can do the same. Colours are RGB.
struct ImagePreprocessing {
  /// Of the image that the model sees.
  int64_t height = 0, width = 0, channels = 3;
  /// How it gets that size: "squish" stretches; "crop" covers it and is cut
  /// from the middle, "centre_crop" after being enlarged by the share `margin`;
  /// "pad" fits into it; "none" is cut or padded as it is; "exact" must have
  /// that size.
  std::string resize = "squish";
  double margin = 0;
  /// What is seen beyond the edge: "zeros", "border" or "reflection".
  std::string padding = "reflection";
  /// Whether the image is turned upright as its EXIF says.
  bool exif_orientation = true;
  /// Values in 0..1 become (value - mean) / stddev; one of each for every
  /// channel.
  std::vector<double> mean, stddev;

  friend bool operator==(const ImagePreprocessing&, const ImagePreprocessing&) =
      default;
};

std::string to_json(const ImagePreprocessing& what);

/// \param where  For the error message, such as a file.
/// \throws DataError unless it is what `to_json` gives, with values that make
///         sense.
ImagePreprocessing parse_image_preprocessing(
    std::string_view json,
    const std::string& where);

}  // namespace tern
