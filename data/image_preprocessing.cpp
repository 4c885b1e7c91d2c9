#include "tern/data/image_preprocessing.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tern/data/formats/error.h"
#include "tern/data/formats/json.h"

namespace tern {

namespace {

JsonFields fields_of(ImagePreprocessing& what) {
  return {
      {"height", &what.height},
      {"width", &what.width},
      {"channels", &what.channels},
      {"resize", &what.resize},
      {"margin", &what.margin},
      {"padding", &what.padding},
      {"exif_orientation", &what.exif_orientation},
      {"mean", &what.mean},
      {"stddev", &what.stddev}};
}

bool makes_sense(const ImagePreprocessing& what) {
  constexpr int64_t kMaxSide = 1 << 16;
  const std::set<std::string> resizes =
      {"squish", "crop", "center_crop", "pad", "none", "exact"};
  const std::set<std::string> paddings = {"zeros", "border", "reflection"};
  const auto is_finite = [](double value) { return std::isfinite(value); };
  const auto channels = static_cast<size_t>(what.channels);
  return what.height > 0 && what.height <= kMaxSide && what.width > 0 &&
         what.width <= kMaxSide && (what.channels == 1 || what.channels == 3) &&
         resizes.contains(what.resize) && paddings.contains(what.padding) &&
         what.margin >= 0 && what.margin <= 100 &&
         what.mean.size() == channels && what.stddev.size() == channels &&
         std::all_of(what.mean.begin(), what.mean.end(), is_finite) &&
         std::all_of(what.stddev.begin(), what.stddev.end(), [](double value) {
           return std::isfinite(value) && value > 0;
         });
}

}  // namespace

std::string to_json(const ImagePreprocessing& what) {
  ImagePreprocessing copy = what;
  return to_json(fields_of(copy));
}

ImagePreprocessing parse_image_preprocessing(
    std::string_view json,
    const std::string& where) {
  ImagePreprocessing what;
  read_json(json, fields_of(what), where);
  // The name in files from earlier versions.
  if (what.resize == "centre_crop") what.resize = "center_crop";
  if (!makes_sense(what)) {
    throw DataError(
        where,
        "describes an invalid image preprocessing: " + to_json(what) + ".");
  }
  return what;
}

}  // namespace tern
