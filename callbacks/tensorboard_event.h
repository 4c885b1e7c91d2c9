#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tern::tensorboard {

// The bytes of TensorBoard's event files: TensorFlow's TFRecord framing around
// protocol buffers of type tensorflow.Event
// (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto).

/// CRC-32C (Castagnoli) of `bytes`.
uint32_t crc32c(std::string_view bytes);

/// `event` as a record: its length, the masked checksum of the length, the
/// event, its masked checksum.
std::string record(std::string_view event);

/// The event that a file begins with.
std::string version_event(double wall_time);

/// When an event happened: seconds since 1970, and the training step.
struct Moment {
  double wall_time = 0;
  int64_t step = 0;
};

std::string scalar_event(Moment at, std::string_view tag, double value);

/// \param png  The bytes of a PNG file of this size.
/// \param channels  1: grey, 3: RGB, 4: RGBA.
std::string image_event(
    Moment at,
    std::string_view tag,
    std::string_view png,
    int64_t width,
    int64_t height,
    int64_t channels);

/// Shown as Markdown.
std::string text_event(Moment at, std::string_view tag, std::string_view text);

/// A histogram: bucket i counts the values from limits[i - 1] to limits[i].
struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
  std::span<const double> limits, counts;  // of equal size, limits rising
};
std::string
histogram_event(Moment at, std::string_view tag, const Histogram& histogram);

}  // namespace tern::tensorboard
