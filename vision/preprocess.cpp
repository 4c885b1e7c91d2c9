#include "tern/vision/preprocess.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tern {
namespace {

constexpr std::array<std::pair<const char*, ResizeMethod>, 4> kResizeNames = {{
    {"squish", ResizeMethod::squish},
    {"crop", ResizeMethod::crop},
    {"pad", ResizeMethod::pad},
    {"none", ResizeMethod::none},
}};
constexpr std::array<std::pair<const char*, Padding>, 3> kPaddingNames = {{
    {"zeros", Padding::zeros},
    {"border", Padding::border},
    {"reflection", Padding::reflection},
}};

template <class Names, class Value>
std::string name_of(const Names& names, Value value) {
  return std::find_if(
             names.begin(),
             names.end(),
             [&](const auto& item) { return item.second == value; })
      ->first;
}

}  // namespace

std::optional<ImagePreprocessing> describe_preprocessing(
    const ImageDataset& images,
    const ImageStats& stats) {
  const ImageDatasetOptions& options = images.options();
  ImagePreprocessing what{
      .height = images.image_size().height,
      .width = images.image_size().width,
      .channels = options.decode.channels,
      .resize =
          options.size ? name_of(kResizeNames, options.sizing.resize) : "exact",
      .padding = name_of(kPaddingNames, options.sizing.padding),
      .exif_orientation = options.decode.exif_orientation,
      .mean = stats.mean,
      .stddev = stats.stddev};
  for (const TransformPtr& transform : options.transforms.valid) {
    if (!transform->describe(what)) return std::nullopt;
  }
  return what;
}

}  // namespace tern
