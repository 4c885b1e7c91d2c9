#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// The preprocessing of an image at inference, so that another program can
/// reproduce it. Colors are RGB.
struct ImagePreprocessing {
  /// Size of the model's input.
  int64_t height = 0, width = 0, channels = 3;
  /// Resize method: "squish" stretches the image to the size; "crop" resizes it
  /// to cover the size, then center-crops; "center_crop" resizes it to cover
  /// the size enlarged by the fraction `margin`, then center-crops; "pad" fits
  /// it inside the size and pads; "none" only crops or pads; "exact" requires
  /// images of that size.
  std::string resize = "squish";
  double margin = 0;
  /// Padding mode: "zeros", "border" or "reflection".
  std::string padding = "reflection";
  /// Applies the EXIF orientation.
  bool exif_orientation = true;
  /// Values in 0..1 become (value - mean) / stddev, per channel.
  std::vector<double> mean, stddev;

  friend bool operator==(const ImagePreprocessing&, const ImagePreprocessing&) =
      default;
};

std::string to_json(const ImagePreprocessing& what);

/// \param where  Source of `json`, such as a file, for the error message.
/// \throws DataError unless `json` is valid output of `to_json`.
ImagePreprocessing parse_image_preprocessing(
    std::string_view json,
    const std::string& where);

}  // namespace tern
