#pragma once

#include <cstdint>
#include <vector>

namespace tern {

/// Mean and standard deviation of the values of a set of images, in units of
/// 0..1: one of each for every channel, or one for all channels.
struct ImageStats {
  std::vector<double> mean, stddev;

  /// The same with a value for each of `channels`. Colours become grey by their
  /// average.
  ImageStats with_channels(int64_t channels) const;
};

namespace stats {

/// As torchvision's pretrained models and fastai have them.
ImageStats imagenet();
ImageStats cifar();
ImageStats mnist();
/// Leaves values in 0..1.
ImageStats none();

}  // namespace stats
}  // namespace tern
