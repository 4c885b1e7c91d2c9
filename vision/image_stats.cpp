#include "tern/vision/image_stats.h"

#include <numeric>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace tern {
namespace {

std::vector<double> spread(
    const std::vector<double>& values,
    int64_t channels) {
  const auto count = static_cast<int64_t>(values.size());
  if (count == channels) {
    return values;
  }
  TORCH_CHECK_VALUE(
      count == 1 || channels == 1,
      fmt::format(
          "[ImageStats] there are {} values for {} channels; expected one for "
          "each, or one for all.",
          count,
          channels));
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) /
                      static_cast<double>(count);
  return std::vector<double>(channels, mean);
}

}  // namespace

ImageStats ImageStats::with_channels(int64_t channels) const {
  TORCH_CHECK_VALUE(
      !mean.empty() && mean.size() == stddev.size(),
      fmt::format(
          "[ImageStats] mean has {} values and stddev has {}; expected as many "
          "of each, and at least one.",
          mean.size(),
          stddev.size()));
  return {spread(mean, channels), spread(stddev, channels)};
}

namespace stats {

ImageStats imagenet() {
  return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
}

ImageStats cifar() {
  return {{0.491, 0.482, 0.447}, {0.247, 0.243, 0.261}};
}

ImageStats mnist() {
  return {{0.131}, {0.308}};
}

ImageStats none() {
  return {{0.0}, {1.0}};
}

}  // namespace stats
}  // namespace tern
