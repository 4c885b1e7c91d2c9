#include "tern/examples/support/synthetic_digits.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "tern/data/download/cache_folder.h"
#include "tern/data/download/download.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/samples/png.h"
#include "tern/data/support/random.h"

namespace tern::examples {

namespace fs = std::filesystem;

namespace {

constexpr int kSide = 28;
constexpr float kPi = 3.14159265f;

struct Point {
  float x, y;
};
using Line = std::vector<Point>;

// A pen stroke through points of the unit square, with y downwards. A `curved`
// stroke is smooth; others have corners.
struct Stroke {
  bool curved;
  Line points;
};
using Shape = std::vector<Stroke>;

// Returns the ways to write a digit.
const std::vector<Shape>& shapes(int digit) {
  static const std::vector<std::vector<Shape>>* const all =
      new std::vector<std::vector<Shape>>{
          {
              {{true,
                {{.50f, .05f},
                 {.27f, .20f},
                 {.20f, .50f},
                 {.28f, .82f},
                 {.50f, .95f},
                 {.73f, .80f},
                 {.80f, .50f},
                 {.72f, .18f},
                 {.50f, .05f}}}},
              {{true,
                {{.60f, .08f},
                 {.32f, .14f},
                 {.20f, .50f},
                 {.30f, .86f},
                 {.52f, .94f},
                 {.76f, .76f},
                 {.78f, .40f},
                 {.62f, .10f},
                 {.42f, .12f}}}},
          },
          {
              {{false, {{.50f, .05f}, {.50f, .95f}}}},
              {{false, {{.34f, .26f}, {.54f, .05f}, {.54f, .95f}}}},
              {{false, {{.34f, .26f}, {.54f, .05f}, {.54f, .94f}}},
               {false, {{.32f, .95f}, {.74f, .95f}}}},
          },
          {
              {{true,
                {{.22f, .28f},
                 {.38f, .08f},
                 {.64f, .08f},
                 {.76f, .26f},
                 {.64f, .52f},
                 {.40f, .76f},
                 {.20f, .93f}}},
               {false, {{.20f, .93f}, {.82f, .92f}}}},
              {{true,
                {{.24f, .24f},
                 {.46f, .06f},
                 {.72f, .18f},
                 {.68f, .46f},
                 {.44f, .76f},
                 {.24f, .92f},
                 {.16f, .82f},
                 {.30f, .76f},
                 {.54f, .90f},
                 {.84f, .86f}}}},
          },
          {
              {{true,
                {{.22f, .16f},
                 {.48f, .05f},
                 {.73f, .20f},
                 {.64f, .42f},
                 {.40f, .48f}}},
               {true,
                {{.40f, .48f},
                 {.70f, .54f},
                 {.78f, .76f},
                 {.54f, .95f},
                 {.20f, .86f}}}},
              {{false, {{.22f, .08f}, {.74f, .08f}, {.46f, .42f}}},
               {true,
                {{.46f, .42f},
                 {.73f, .53f},
                 {.77f, .78f},
                 {.50f, .95f},
                 {.20f, .86f}}}},
          },
          {
              {{false, {{.30f, .08f}, {.22f, .56f}, {.82f, .54f}}},
               {false, {{.68f, .14f}, {.64f, .95f}}}},
              {{false,
                {{.62f, .95f}, {.62f, .06f}, {.18f, .62f}, {.86f, .62f}}}},
          },
          {
              {{false, {{.76f, .08f}, {.34f, .08f}, {.28f, .45f}}},
               {true,
                {{.28f, .45f},
                 {.54f, .38f},
                 {.77f, .58f},
                 {.66f, .86f},
                 {.42f, .95f},
                 {.20f, .86f}}}},
              {{true,
                {{.78f, .09f},
                 {.50f, .08f},
                 {.34f, .18f},
                 {.34f, .38f},
                 {.60f, .48f},
                 {.72f, .70f},
                 {.54f, .93f},
                 {.22f, .90f}}}},
          },
          {
              {{true,
                {{.68f, .07f},
                 {.42f, .22f},
                 {.26f, .50f},
                 {.26f, .76f},
                 {.48f, .95f},
                 {.72f, .80f},
                 {.68f, .58f},
                 {.46f, .52f},
                 {.27f, .70f}}}},
              {{true,
                {{.50f, .05f},
                 {.30f, .36f},
                 {.24f, .72f},
                 {.44f, .95f},
                 {.66f, .84f},
                 {.62f, .62f},
                 {.40f, .60f},
                 {.26f, .78f}}}},
          },
          {
              {{false, {{.20f, .10f}, {.78f, .09f}, {.42f, .95f}}}},
              {{false, {{.20f, .10f}, {.78f, .09f}, {.44f, .95f}}},
               {false, {{.34f, .52f}, {.74f, .50f}}}},
              {{true,
                {{.18f, .22f},
                 {.30f, .10f},
                 {.54f, .14f},
                 {.78f, .10f},
                 {.66f, .38f},
                 {.52f, .66f},
                 {.48f, .95f}}}},
          },
          {
              {{true,
                {{.50f, .48f},
                 {.28f, .30f},
                 {.50f, .06f},
                 {.72f, .28f},
                 {.50f, .48f},
                 {.24f, .72f},
                 {.50f, .95f},
                 {.76f, .72f},
                 {.50f, .48f}}}},
              {{true,
                {{.70f, .16f},
                 {.46f, .06f},
                 {.28f, .24f},
                 {.50f, .46f},
                 {.74f, .70f},
                 {.52f, .95f},
                 {.26f, .76f},
                 {.46f, .50f},
                 {.70f, .28f},
                 {.70f, .14f}}}},
          },
          {
              {{true,
                {{.72f, .22f},
                 {.50f, .06f},
                 {.26f, .26f},
                 {.42f, .50f},
                 {.68f, .40f},
                 {.73f, .20f}}},
               {false, {{.73f, .20f}, {.64f, .95f}}}},
              {{true,
                {{.72f, .20f},
                 {.48f, .06f},
                 {.26f, .28f},
                 {.46f, .50f},
                 {.72f, .36f},
                 {.72f, .64f},
                 {.58f, .92f},
                 {.30f, .90f}}}},
          },
      };
  return (*all)[static_cast<size_t>(digit)];
}

// Returns the points of a smooth curve through `points` (Catmull-Rom).
Line smooth(const Line& points) {
  constexpr int kSteps = 6;
  const auto last = static_cast<int>(points.size()) - 1;
  Line out;
  for (int i = 0; i < last; ++i) {
    const Point a = points[std::max(i - 1, 0)], b = points[i];
    const Point c = points[i + 1], d = points[std::min(i + 2, last)];
    const auto at = [](float t, float a, float b, float c, float d) {
      return b +
             .5f * t *
                 (c - a +
                  t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    };
    for (int step = 0; step < kSteps; ++step) {
      const float t = static_cast<float>(step) / kSteps;
      out.push_back({at(t, a.x, b.x, c.x, d.x), at(t, a.y, b.y, c.y, d.y)});
    }
  }
  out.push_back(points.back());
  return out;
}

// The slant, size, position and wobble of one handwriting; maps the unit square
// to pixels. With these ranges, telling 3 from 7 is about as hard for a small
// network as on MNIST.
class Hand {
 public:
  explicit Hand(SampleRng& rng)
      : angle_(rng.uniform(-.08f, .08f)),
        slant_(rng.uniform(-.02f, .25f)),
        height_(rng.uniform(17.f, 20.f)),
        width_(height_ * rng.uniform(.8f, 1.f)),
        shift_{rng.uniform(-2.f, 2.f), rng.uniform(-2.f, 2.f)},
        bend_{rng.uniform(-.025f, .025f), rng.uniform(-.025f, .025f)},
        phase_{rng.uniform(0, 2 * kPi), rng.uniform(0, 2 * kPi)} {}

  Point to_pixels(Point p) const {
    const float x = p.x + bend_.x * std::sin(5 * p.y + phase_.x) - .5f;
    const float y = p.y + bend_.y * std::sin(5 * p.x + phase_.y) - .5f;
    const float u = width_ * x - slant_ * height_ * y;
    const float v = height_ * y;
    const float c = std::cos(angle_), s = std::sin(angle_);
    return {
        kSide / 2.f + shift_.x + c * u - s * v,
        kSide / 2.f + shift_.y + s * u + c * v};
  }

 private:
  float angle_, slant_, height_, width_;
  Point shift_, bend_, phase_;
};

float distance_to_segment(Point p, Point a, Point b) {
  const Point ab{b.x - a.x, b.y - a.y};
  const float length2 = ab.x * ab.x + ab.y * ab.y;
  float t = 0;
  if (length2 > 0) {
    t = ((p.x - a.x) * ab.x + (p.y - a.y) * ab.y) / length2;
    t = std::clamp(t, 0.f, 1.f);
  }
  const float x = p.x - a.x - t * ab.x, y = p.y - a.y - t * ab.y;
  return std::sqrt(x * x + y * y);
}

// Ink from 0 to 1 in each pixel.
using Canvas = std::array<float, size_t{kSide} * kSide>;

void draw_segment(Canvas& canvas, Point a, Point b, float radius) {
  const float reach = radius + 1;
  const auto range = [reach](float a, float b) {
    const float low = std::floor(std::min(a, b) - reach);
    const float high = std::ceil(std::max(a, b) + reach);
    return std::pair(
        static_cast<int>(std::clamp(low, 0.f, float{kSide})),
        static_cast<int>(std::clamp(high, 0.f, float{kSide})));
  };
  const auto [x_begin, x_end] = range(a.x, b.x);
  const auto [y_begin, y_end] = range(a.y, b.y);
  for (int y = y_begin; y < y_end; ++y) {
    for (int x = x_begin; x < x_end; ++x) {
      const float distance = distance_to_segment(
          {static_cast<float>(x) + .5f, static_cast<float>(y) + .5f},
          a,
          b);
      const float ink = std::clamp((reach - distance) / 1.5f, 0.f, 1.f);
      float& pixel =
          canvas[static_cast<size_t>(y) * kSide + static_cast<size_t>(x)];
      pixel = std::max(pixel, ink);
    }
  }
}

void append_uint32(std::vector<uint8_t>& out, int64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<uint8_t>(value >> shift));
  }
}

// Validation images are numbered from here, so that none equals a training
// image.
constexpr int64_t kFirstValid = int64_t{1} << 32;

void write_idx_pair(
    const fs::path& folder,
    const std::string& part,
    uint64_t seed,
    int64_t first,
    int64_t count) {
  std::vector<uint8_t> images{0, 0, 8, 3}, labels{0, 0, 8, 1};
  for (const int64_t dim : {count, int64_t{kSide}, int64_t{kSide}}) {
    append_uint32(images, dim);
  }
  append_uint32(labels, count);
  for (int64_t i = first; i < first + count; ++i) {
    constexpr int64_t kLabelStream = 10;  // the digits use 0..9
    const auto digit =
        static_cast<uint8_t>(SampleRng(seed, kLabelStream, i).below(10));
    const DigitImage image = draw_digit(digit, seed, i);
    images.insert(images.end(), image.begin(), image.end());
    labels.push_back(digit);
  }
  write_file(folder / (part + "-images-idx3-ubyte"), images);
  write_file(folder / (part + "-labels-idx1-ubyte"), labels);
}

}  // namespace

DigitImage draw_digit(int digit, uint64_t seed, int64_t index) {
  if (digit < 0 || digit > 9) {
    throw std::invalid_argument(
        "[draw_digit] digit is " + std::to_string(digit) + "; expected 0..9.");
  }
  SampleRng rng(seed, digit, index);
  const auto& ways = shapes(digit);
  const Shape& shape = ways[rng.below(ways.size())];
  const Hand hand(rng);
  const float radius = rng.uniform(.7f, 1.8f);

  Canvas canvas{};
  for (Stroke stroke : shape) {
    for (Point& point : stroke.points) {
      point.x += rng.uniform(-.03f, .03f);
      point.y += rng.uniform(-.03f, .03f);
    }
    Line line = stroke.curved ? smooth(stroke.points) : stroke.points;
    for (Point& point : line) point = hand.to_pixels(point);
    for (size_t i = 1; i < line.size(); ++i) {
      draw_segment(canvas, line[i - 1], line[i], radius);
    }
  }

  DigitImage image{};
  const float peak = rng.uniform(200.f, 255.f);
  for (size_t i = 0; i < image.size(); ++i) {
    const float grain = rng.uniform(.85f, 1.f);
    image[i] = static_cast<uint8_t>(canvas[i] * peak * grain);
  }
  return image;
}

void write_digit_pictures(
    const fs::path& folder,
    const SyntheticDigitsOptions& options) {
  std::string labels = "name,label\n";
  const auto write_split =
      [&](const std::string& split, int64_t first, int64_t count) {
        int64_t next = first;
        for (const int digit : {3, 7}) {
          const std::string name = split + "/" + std::to_string(digit);
          make_folders(folder / name);
          const int64_t end = first + (digit == 3 ? (count + 1) / 2 : count);
          for (; next < end; ++next) {
            const std::string file =
                name + "/" + std::to_string(next - first) + ".png";
            const DigitImage image = draw_digit(digit, options.seed, next);
            write_file(folder / file, encode_png(image, kSide, kSide, 1));
            labels += file + (digit == 3 ? ",0\n" : ",1\n");
          }
        }
      };
  write_split("train", 0, options.train);
  write_split("valid", kFirstValid, options.valid);
  write_file(folder / "labels.csv", labels);
}

void write_digit_idx(
    const fs::path& folder,
    const SyntheticDigitsOptions& options) {
  write_idx_pair(folder, "train", options.seed, 0, options.train);
  write_idx_pair(folder, "t10k", options.seed, kFirstValid, options.valid);
}

fs::path mnist_or_digits(
    const DatasetUrl& dataset,
    const UntarOptions& options) {
  const std::string name(dataset.name);
  fs::path digits = cache_folder(options.cache) / "generated" / name;
  UntarOptions real = options;
  const bool has_failed = is_whole_data(digits);  // so do not try again
  real.allow_download = options.allow_download && !has_failed;
  std::string reason;
  try {
    return untar_data(dataset, real);
  } catch (const DownloadError& error) {
    if (error.kind() == DownloadError::Kind::wrong_content) throw;
    reason = has_failed
                 ? "an earlier download has failed; set TERN_DATA to a folder "
                   "that holds " +
                       std::string(dataset.files[0].name())
                 : error.what();
  }
  if (!has_failed) {
    StagingFolder staging(digits);
    if (name == urls::mnist.name) {
      write_digit_idx(staging.path());
    } else {
      write_digit_pictures(staging.path());
    }
    write_source_marker(staging.path(), "generated\n");
    if (!is_whole_data(digits)) fs::remove_all(digits);
    staging.publish();
  }
  const std::string line = name +
                           ": using GENERATED data, whose results say nothing "
                           "about the real dataset, since " +
                           reason + ". The generated data is in " +
                           digits.string() +
                           "; remove it to try the download again.";
  options.sink.or_terminal()->warning(line);
  return digits;
}

}  // namespace tern::examples
