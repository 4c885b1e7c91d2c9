#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tern {

/// What happens to an image that cannot be read.
struct BadImagePolicy {
  bool skips = false;
  /// The share of the images that may be bad.
  double max_fraction = 0;

  /// Ends the training with an error that names the file.
  static BadImagePolicy error() { return {}; }
  /// Takes another image in its place, the same one for the same seed, epoch
  /// and sample, until more than this share of the images have turned out bad.
  static BadImagePolicy skip(double max_fraction = 0.01) {
    return {true, max_fraction};
  }
};

/// An image that could not be read, and why.
struct BadImage {
  std::string path, reason;
};

/// Collects bad images from many threads.
class BadImageList {
 public:
  /// Notes that an image of `total` is bad; tells the user the first time.
  /// \throws DataError with the list when there are more than `max_fraction`.
  void add(int64_t index, BadImage image, int64_t total, double max_fraction);

  /// In the order of their indices.
  std::vector<BadImage> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, BadImage> images_;
};

}  // namespace tern
