#pragma once

#include <cstdint>
#include <vector>

namespace tern {

/// Mean and standard deviation of pixel values in 0..1: one of each per
/// channel, or one for all channels.
struct ImageStats {
  std::vector<double> mean, stddev;

  /// Returns one value per channel. Values of colours are averaged for grey.
  ImageStats with_channels(int64_t channels) const;
};

namespace stats {

/// The values of torchvision's pretrained models and of fastai.
ImageStats imagenet();
ImageStats cifar();
ImageStats mnist();
/// No normalisation: values stay in 0..1.
ImageStats none();

}  // namespace stats
}  // namespace tern
