#include "tern/kernels/pointwise_conv.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/float_lanes.h"
#include "tern/kernels/fma_loop.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

// A tile of the result is summed in registers: AVX-512 has 32 of 16 floats,
// AVX2 has 16 of 8.
constexpr int64_t kMostRows = 12;
constexpr int64_t kPointwiseGrain = int64_t{1}
                                    << 17;  // multiplications of a thread
constexpr int64_t kBlocksPerThread = 8;  // of rows, if threads share the rows

/// A product of some pixels and one or two panels of the weight.
struct Tile {
  const float* rows;    // of the pixels, each with `channels` numbers
  const float* weight;  // [panels, 1 + channels, 16], as in pointwise_conv.h
  int64_t channels;
  const float* gate;  // [channels], or null
};

/// \param sums  [kRows, kPanels * 16]
template <int kRows, int kPanels, bool kHasGate>
TERN_CPU_LOOP void multiply_tile(const Tile& tile, float* sums) {
  const float* const rows = tile.rows;
  const int64_t channels = tile.channels;
  const float* const first = tile.weight;
  const float* const second = first + (1 + channels) * kLanes;
  Floats weight[kPanels], sum[kRows][kPanels];
  const auto load_weight = [&](int64_t row) __attribute__((always_inline)) {
    load_floats(first + row * kLanes, weight[0]);
    if constexpr (kPanels == 2) load_floats(second + row * kLanes, weight[1]);
  };
  load_weight(0);
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) sum[r][p] = weight[p];
  }
  for (int64_t c = 0; c < channels; ++c) {
    load_weight(1 + c);
    if constexpr (kHasGate) {
      const Floats factor = tile.gate[c] - Floats{};  // broadcast
      for (int p = 0; p < kPanels; ++p) weight[p] *= factor;
    }
    for (int r = 0; r < kRows; ++r) {
      const Floats pixel = rows[r * channels + c] - Floats{};  // broadcast
      for (int p = 0; p < kPanels; ++p) sum[r][p] += pixel * weight[p];
    }
  }
  __builtin_memcpy(sums, sum, sizeof sum);
}

/// Writes the sums of a tile to the result, after adding `other` and applying
/// the activation.
struct TileResult {
  float* sums;  // [rows, width]
  int64_t rows, width;
  float* result;       // first number of the tile
  const float* other;  // the same, or null
  int64_t outputs;     // numbers from one row to the next, in both
  int64_t columns;     // of the tile that exist, at most `width`
  const ConvActivation* activation;
};

TERN_CPU_LOOP void copy_floats(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    __builtin_memcpy(to + i, from + i, sizeof(Floats));
  }
  for (; i < count; ++i) to[i] = from[i];
}

TERN_CPU_LOOP void add_floats(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Floats sum, added;
    load_floats(to + i, sum);
    load_floats(from + i, added);
    sum += added;
    store_floats(sum, to + i);
  }
  for (; i < count; ++i) to[i] += from[i];
}

TERN_CPU_LOOP void store_tile(const TileResult& tile) {
  for (int64_t r = 0; tile.other != nullptr && r < tile.rows; ++r) {
    add_floats(
        tile.other + r * tile.outputs,
        tile.columns,
        tile.sums + r * tile.width);
  }
  activate(*tile.activation, tile.sums, tile.rows * tile.width);
  for (int64_t r = 0; r < tile.rows; ++r) {
    copy_floats(
        tile.sums + r * tile.width,
        tile.columns,
        tile.result + r * tile.outputs);
  }
}

using TileFunction = void (*)(const Tile&, float*);

template <int kPanels, bool kHasGate, int... kRows>
std::array<TileFunction, sizeof...(kRows)> tile_functions(
    std::integer_sequence<int, kRows...> /*rows*/) {
  return {on_fma_isa<multiply_tile<kRows + 1, kPanels, kHasGate>>...};
}

/// Returns the functions for 1, 2, ... rows.
const std::array<TileFunction, kMostRows>& tile_functions(
    int64_t panels,
    bool has_gate) {
  constexpr std::make_integer_sequence<int, kMostRows> kRows;
  static const auto one = tile_functions<1, false>(kRows);
  static const auto two = tile_functions<2, false>(kRows);
  static const auto one_with_gate = tile_functions<1, true>(kRows);
  static const auto two_with_gate = tile_functions<2, true>(kRows);
  if (has_gate) return panels == 1 ? one_with_gate : two_with_gate;
  return panels == 1 ? one : two;
}

}  // namespace

bool pointwise_conv_pays(at::IntArrayRef images, at::IntArrayRef weight) {
  // With more multiplications, the time that oneDNN needs for a call does not
  // matter.
  const int64_t most_work =
      cpu_isa() == CpuIsa::avx512 ? int64_t{1} << 26 : int64_t{1} << 25;
  const int64_t pixels = images[0] * images[2] * images[3];
  return has_fma() && weight[2] == 1 && weight[3] == 1 &&
         pixels * weight[0] * weight[1] <= most_work;
}

torch::Tensor pointwise_weight(
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias) {
  const int64_t outputs = weight.size(0), channels = weight.size(1);
  const int64_t panels = (outputs + kLanes - 1) / kLanes;
  const torch::Tensor rows =
      at::zeros({panels * kLanes, 1 + channels}, weight.options());
  const torch::Tensor used = rows.narrow(0, 0, outputs);
  if (bias) used.select(1, 0).copy_(*bias);
  used.narrow(1, 1, channels).copy_(weight.view({outputs, channels}));
  return rows.view({panels, kLanes, 1 + channels}).transpose(1, 2).contiguous();
}

torch::Tensor pointwise_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    int64_t outputs,
    const std::optional<torch::Tensor>& gate,
    const std::optional<torch::Tensor>& other,
    const ConvActivation& activation) {
  const int64_t panels = weight.size(0), channels = weight.size(1) - 1;
  TERN_CHECK_VALUE(
      images.dim() == 4 && images.scalar_type() == torch::kFloat &&
          images.size(1) == channels && outputs <= panels * kLanes,
      "[pointwise_conv2d] the images are {} for {} outputs; expected "
      "[N, {}, H, W] kFloat for at most {} outputs.",
      describe(images),
      outputs,
      channels,
      panels * kLanes);
  const auto last = at::MemoryFormat::ChannelsLast;
  torch::Tensor result = at::empty(
      {images.size(0), outputs, images.size(2), images.size(3)},
      images.options(),
      last);
  // Checked because they are read by address.
  TERN_CHECK_VALUE(
      !other || (other->sizes() == result.sizes() &&
                 other->scalar_type() == torch::kFloat),
      "[pointwise_conv2d] the tensor to add is {}; expected {}, the shape and "
      "dtype of the result.",
      describe(*other),
      describe(result));
  TERN_CHECK_VALUE(
      !gate || (images.size(0) == 1 && gate->numel() == channels &&
                gate->scalar_type() == torch::kFloat),
      "[pointwise_conv2d] the gate is {} for images {}; expected "
      "[1, {}, 1, 1] kFloat for one image.",
      describe(*gate),
      describe(images),
      channels);
  const torch::Tensor source = images.contiguous(last);
  const torch::Tensor factors = gate ? gate->contiguous() : torch::Tensor();
  const torch::Tensor added = other ? other->contiguous(last) : torch::Tensor();
  const bool is_wide = cpu_isa() == CpuIsa::avx512;
  const int64_t panels_at_once = is_wide ? 2 : 1;
  const int64_t rows_at_once = is_wide ? kMostRows : kMostRows / 2;
  const int64_t rows = images.size(0) * images.size(2) * images.size(3);
  const int64_t blocks = (rows + rows_at_once - 1) / rows_at_once;
  const int64_t groups = (panels + panels_at_once - 1) / panels_at_once;
  const float* const pixels = source.const_data_ptr<float>();
  const float* const panel_data = weight.const_data_ptr<float>();
  const float* const gate_data =
      gate ? factors.const_data_ptr<float>() : nullptr;
  const float* const other_data =
      other ? added.const_data_ptr<float>() : nullptr;
  float* const result_data = result.mutable_data_ptr<float>();
  const auto& functions = tile_functions(panels_at_once, gate.has_value());
  const auto& last_functions = tile_functions(1, gate.has_value());
  const auto compute = [&](int64_t block, int64_t group) {
    const int64_t row = rows * block / blocks;
    const int64_t count = rows * (block + 1) / blocks - row;
    const int64_t panel = group * panels_at_once;
    const bool is_whole = panel + panels_at_once <= panels;
    const int64_t column = panel * kLanes;
    const int64_t width = is_whole ? panels_at_once * kLanes : kLanes;
    const int64_t at = row * outputs + column;
    alignas(64) float sums[kMostRows * 2 * kLanes];
    (is_whole ? functions : last_functions)[count - 1](
        {.rows = pixels + row * channels,
         .weight = panel_data + column * (1 + channels),
         .channels = channels,
         .gate = gate_data},
        sums);
    on_fma_isa<store_tile>(
        {.sums = sums,
         .rows = count,
         .width = width,
         .result = result_data + at,
         .other = other_data ? other_data + at : nullptr,
         .outputs = outputs,
         .columns = std::min(width, outputs - column),
         .activation = &activation});
  };
  const auto grain = [&](int64_t tiles) {
    const int64_t work =
        tiles * rows_at_once * panels_at_once * kLanes * channels;
    return std::max<int64_t>(kPointwiseGrain / std::max<int64_t>(work, 1), 1);
  };
  // Threads share the rows, so that each reads the weight; or if there are few
  // rows, the weight's panels.
  if (blocks >= kBlocksPerThread * at::get_num_threads()) {
    parallel_for(0, blocks, grain(groups), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        for (int64_t group = 0; group < groups; ++group) compute(block, group);
      }
    });
  } else {
    parallel_for(0, groups, grain(blocks), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        for (int64_t block = 0; block < blocks; ++block) compute(block, group);
      }
    });
  }
  return result;
}

}  // namespace tern
