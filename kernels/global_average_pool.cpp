#include "tern/kernels/global_average_pool.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/float_lanes.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

// Pixels are first summed in pieces of fixed size, so that the result does not
// depend on the number of threads.
constexpr int64_t kPixelsOfPiece = 64;
constexpr int64_t kChannelsOfBlock = 256;

/// Adds `rows` rows [rows, row_size] and multiplies the sums by `factor`.
struct RowSum {
  const float* from;
  int64_t rows, row_size;
  int64_t columns;  // numbers to add, from the first of a row
  float factor;
  float* to;  // [columns]
};

template <int kVectors>
TERN_CPU_LOOP void add_vectors(const RowSum& sum, int64_t column) {
  Floats sums[kVectors] = {}, values;
  for (int64_t row = 0; row < sum.rows; ++row) {
    const float* const from = sum.from + row * sum.row_size + column;
    for (int v = 0; v < kVectors; ++v) {
      load_floats(from + v * kLanes, values);
      sums[v] += values;
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    sums[v] *= sum.factor;
    store_floats(sums[v], sum.to + column + v * kLanes);
  }
}

TERN_CPU_LOOP void add_rows(const RowSum& sum) {
  constexpr int kVectors = 4;
  int64_t column = 0;
  for (; column + kVectors * kLanes <= sum.columns;
       column += kVectors * kLanes) {
    add_vectors<kVectors>(sum, column);
  }
  for (; column + kLanes <= sum.columns; column += kLanes) {
    add_vectors<1>(sum, column);
  }
  for (; column < sum.columns; ++column) {
    float total = 0;
    for (int64_t row = 0; row < sum.rows; ++row) {
      total += sum.from[row * sum.row_size + column];
    }
    sum.to[column] = total * sum.factor;
  }
}

}  // namespace

torch::Tensor global_average_pool(const torch::Tensor& images) {
  TERN_CHECK_VALUE(
      images.dim() == 4 && is_float_on_cpu(images) && images.size(2) >= 1 &&
          images.size(3) >= 1,
      "[global_average_pool] the images are {}; expected [N, C, H, W] kFloat "
      "on the CPU, with at least one pixel.",
      describe(images));
  const int64_t count = images.size(0), channels = images.size(1);
  const int64_t pixels = images.size(2) * images.size(3);
  torch::Tensor result = at::empty({count, channels, 1, 1}, images.options());
  const torch::Tensor source =
      images.contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t pieces = at::divup(pixels, kPixelsOfPiece);
  const torch::Tensor sums =
      pieces == 1 ? result
                  : at::empty({count, pieces, channels}, images.options());
  // Adds up `rows` of each image, `at_once` by `at_once`.
  const auto add_up = [&](const torch::Tensor& from,
                          int64_t rows,
                          int64_t at_once,
                          const torch::Tensor& to) {
    const int64_t parts = at::divup(rows, at_once);
    const int64_t blocks = at::divup(channels, kChannelsOfBlock);
    const float* const from_data = from.const_data_ptr<float>();
    float* const to_data = to.mutable_data_ptr<float>();
    const int64_t work = std::min(rows, at_once) * kChannelsOfBlock;
    parallel_for(
        0,
        count * parts * blocks,
        std::max<int64_t>(kElementGrain / work, 1),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t channel = i % blocks * kChannelsOfBlock;
            const int64_t part = i / blocks;  // of all images
            const int64_t first = part % parts * at_once;
            const int64_t row = part / parts * rows + first;
            on_cpu_isa<add_rows>(
                {.from = from_data + row * channels + channel,
                 .rows = std::min(rows - first, at_once),
                 .row_size = channels,
                 .columns = std::min(channels - channel, kChannelsOfBlock),
                 .factor = parts == 1 ? 1 / static_cast<float>(pixels) : 1,
                 .to = to_data + part * channels + channel});
          }
        });
  };
  add_up(source, pixels, kPixelsOfPiece, sums);
  if (pieces > 1) add_up(sums, pieces, pieces, result);
  return result;
}

}  // namespace tern
