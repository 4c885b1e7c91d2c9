#include "tern/kernels/pointwise_conv.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

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
constexpr int64_t kMostRowsOfAvx2 = 6;
constexpr int64_t kManyChannels = 384;
constexpr int64_t kTilesOfBlock = 10;
constexpr int64_t kPointwiseWork = int64_t{1} << 17;  // of a thread, at least

int64_t tile_rows() {
  return cpu_isa() == CpuIsa::avx512 ? kMostRows : kMostRowsOfAvx2;
}

int64_t tile_panels() {
  return cpu_isa() == CpuIsa::avx512 ? 2 : 1;
}

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
      Floats factor;
      fill_floats(tile.gate[c], factor);
      for (int p = 0; p < kPanels; ++p) weight[p] *= factor;
    }
    for (int r = 0; r < kRows; ++r) {
      Floats pixel;
      fill_floats(rows[r * channels + c], pixel);
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
using TileFunctions = std::array<TileFunction, kMostRows>;  // 1, 2, ... rows

template <int kPanels, bool kHasGate, int... kRows>
TileFunctions make_tile_functions(std::integer_sequence<int, kRows...> /**/) {
  return {on_fma_isa<multiply_tile<kRows + 1, kPanels, kHasGate>>...};
}

const TileFunctions& tile_functions(int64_t panels, bool has_gate) {
  constexpr std::make_integer_sequence<int, kMostRows> kRows;
  static const auto one = make_tile_functions<1, false>(kRows);
  static const auto two = make_tile_functions<2, false>(kRows);
  static const auto one_with_gate = make_tile_functions<1, true>(kRows);
  static const auto two_with_gate = make_tile_functions<2, true>(kRows);
  if (has_gate) return panels == 1 ? one_with_gate : two_with_gate;
  return panels == 1 ? one : two;
}

/// Images, channels last, and the pixels that the kernel sees of them.
struct Pixels {
  const float* images;
  int64_t channels, height, width;
  int64_t stride_y, stride_x;

  bool are_all() const { return stride_y == 1 && stride_x == 1; }
  int64_t rows() const { return (height - 1) / stride_y + 1; }
  int64_t columns() const { return (width - 1) / stride_x + 1; }

  /// Copies some of the pixels, counted over all images.
  void copy(int64_t first, int64_t last, float* to) const {
    for (int64_t i = first; i < last; ++i) {
      const int64_t x = i % columns() * stride_x;
      const int64_t y = i / columns() % rows() * stride_y;
      const int64_t image = i / columns() / rows();
      const int64_t at = (image * height + y) * width + x;
      to = std::copy_n(images + at * channels, channels, to);
    }
  }
};

/// A product of all pixels and the weight.
struct Product {
  Pixels pixels;
  int64_t rows;         // pixels that the kernel sees, of all images
  int64_t image_rows;   // of one image
  const float* weight;  // [panels, 1 + channels, 16]
  int64_t panels, outputs;
  const float* gate;   // [N, channels], or null
  const float* other;  // [rows, outputs], or null
  float* result;       // [rows, outputs]
  const ConvActivation* activation;
};

/// A piece of a product. With a gate, its rows belong to one image.
struct Piece {
  int64_t first_row, last_row;
  int64_t first_panel, last_panel;
  const float* gate;
};

/// \param pixels  [last_row - first_row, channels]
void multiply(const Product& product, const Piece& piece, const float* pixels) {
  const int64_t panels_at_once = tile_panels();
  const int64_t rows = piece.last_row - piece.first_row;
  const int64_t tiles = at::divup(rows, tile_rows());
  const int64_t channels = product.pixels.channels;
  for (int64_t panel = piece.first_panel; panel < piece.last_panel;
       panel += panels_at_once) {
    const int64_t panels = std::min(panels_at_once, piece.last_panel - panel);
    const int64_t column = panel * kLanes, width = panels * kLanes;
    const TileFunctions& functions =
        tile_functions(panels, piece.gate != nullptr);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Of almost the same number of rows each.
      const int64_t row = rows * tile / tiles;
      const int64_t count = rows * (tile + 1) / tiles - row;
      const int64_t at = (piece.first_row + row) * product.outputs + column;
      alignas(64) float sums[kMostRows * 2 * kLanes];
      functions[count - 1](
          {.rows = pixels + row * channels,
           .weight = product.weight + column * (1 + channels),
           .channels = channels,
           .gate = piece.gate},
          sums);
      on_fma_isa<store_tile>(
          {.sums = sums,
           .rows = count,
           .width = width,
           .result = product.result + at,
           .other = product.other ? product.other + at : nullptr,
           .outputs = product.outputs,
           .columns = std::min(width, product.outputs - column),
           .activation = product.activation});
    }
  }
}

/// Multiplies a block of rows by all panels before the next block.
void compute_piece(const Product& product, const Piece& piece) {
  // With many channels, the two panels of a tile do not stay in the first
  // cache, so a block has more tiles.
  const int64_t channels = product.pixels.channels;
  const int64_t tiles = channels > kManyChannels ? kTilesOfBlock : 1;
  const int64_t rows = piece.last_row - piece.first_row;
  const int64_t blocks = at::divup(rows, tiles * tile_rows());
  std::vector<float> copied;
  for (int64_t i = 0; i < blocks; ++i) {
    Piece block = piece;
    block.first_row = piece.first_row + rows * i / blocks;
    block.last_row = piece.first_row + rows * (i + 1) / blocks;
    if (product.pixels.are_all()) {
      const float* const pixels =
          product.pixels.images + block.first_row * channels;
      multiply(product, block, pixels);
    } else {
      copied.resize((block.last_row - block.first_row) * channels);
      product.pixels.copy(block.first_row, block.last_row, copied.data());
      multiply(product, block, copied.data());
    }
  }
}

/// How a product is divided: a part is some of its rows and some of the
/// weight's panels.
struct Division {
  int64_t row_parts, panel_parts;
};

/// Returns a division into at most `threads` parts of about the same number of
/// tiles.
Division divide(int64_t rows, int64_t panel_tiles, int64_t threads) {
  Division best{1, 1};
  int64_t fewest = std::numeric_limits<int64_t>::max() / 8;
  // If threads share the rows, each finds the pixels that it computed in its
  // cache. Sharing panels must save at least an eighth of the tiles.
  for (int64_t row_parts = std::min(threads, rows); row_parts >= 1;
       --row_parts) {
    const int64_t panel_parts = std::min(threads / row_parts, panel_tiles);
    const int64_t tiles = at::divup(at::divup(rows, row_parts), tile_rows()) *
                          at::divup(panel_tiles, panel_parts);
    if (tiles * 8 < fewest * 7) {
      fewest = tiles;
      best = {row_parts, panel_parts};
    }
  }
  return best;
}

void compute(const Product& product) {
  const int64_t channels = product.pixels.channels;
  const int64_t panel_tiles = at::divup(product.panels, tile_panels());
  const int64_t work = product.rows * product.panels * kLanes * channels;
  const auto [row_parts, panel_parts] = divide(
      product.rows,
      panel_tiles,
      std::clamp<int64_t>(work / kPointwiseWork, 1, at::get_num_threads()));
  const auto panel_at = [&](int64_t part) {
    const int64_t panel = panel_tiles * part / panel_parts;
    return std::min(panel * tile_panels(), product.panels);
  };
  const auto compute_part = [&](int64_t i) {
    const int64_t row_part = i / panel_parts, panel_part = i % panel_parts;
    const int64_t last = product.rows * (row_part + 1) / row_parts;
    for (int64_t row = product.rows * row_part / row_parts; row < last;) {
      // With a gate, a piece is of one image.
      const int64_t image = row / product.image_rows;
      const int64_t end = product.gate
                              ? std::min(last, (image + 1) * product.image_rows)
                              : last;
      compute_piece(
          product,
          {.first_row = row,
           .last_row = end,
           .first_panel = panel_at(panel_part),
           .last_panel = panel_at(panel_part + 1),
           .gate = product.gate ? product.gate + image * channels : nullptr});
      row = end;
    }
  };
  parallel_for(0, row_parts * panel_parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) compute_part(i);
  });
}

}  // namespace

bool pointwise_conv_pays(
    at::IntArrayRef images,
    at::IntArrayRef weight,
    at::IntArrayRef stride) {
  // With more multiplications, the time that oneDNN needs for a call does not
  // matter.
  const int64_t most_work =
      cpu_isa() == CpuIsa::avx512 ? int64_t{1} << 26 : int64_t{1} << 25;
  const int64_t pixels = images[0] * at::divup(images[2], stride[0]) *
                         at::divup(images[3], stride[1]);
  return has_fma() && weight[2] == 1 && weight[3] == 1 &&
         pixels * weight[0] * weight[1] <= most_work;
}

torch::Tensor pointwise_weight(
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias) {
  const int64_t outputs = weight.size(0), channels = weight.size(1);
  const int64_t panels = at::divup(outputs, kLanes);
  const torch::Tensor rows =
      at::zeros({panels * kLanes, 1 + channels}, weight.options());
  const torch::Tensor used = rows.narrow(0, 0, outputs);
  if (bias) used.select(1, 0).copy_(*bias);
  used.narrow(1, 1, channels).copy_(weight.flatten(1));
  return rows.view({panels, kLanes, 1 + channels}).transpose(1, 2).contiguous();
}

torch::Tensor pointwise_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    int64_t outputs,
    at::IntArrayRef stride,
    const std::optional<torch::Tensor>& gate,
    const std::optional<torch::Tensor>& other,
    const ConvActivation& activation) {
  TERN_CHECK_VALUE(
      stride.size() == 2 && stride[0] >= 1 && stride[1] >= 1,
      "[pointwise_conv2d] the stride is {}; expected two numbers of at least "
      "1.",
      fmt::join(stride, " x "));
  // Tensors are checked because they are read by address.
  TERN_CHECK_VALUE(
      weight.dim() == 3 && is_float_on_cpu(weight) && weight.is_contiguous() &&
          weight.size(2) == kLanes && outputs >= 1 &&
          outputs <= weight.size(0) * kLanes,
      "[pointwise_conv2d] the weight is {} for {} outputs; expected one of "
      "pointwise_weight.",
      describe(weight),
      outputs);
  const int64_t channels = weight.size(1) - 1;
  TERN_CHECK_VALUE(
      images.dim() == 4 && is_float_on_cpu(images) &&
          images.size(1) == channels && images.size(2) >= 1 &&
          images.size(3) >= 1,
      "[pointwise_conv2d] the images are {}; expected [N, {}, H, W] kFloat on "
      "the CPU, with at least one pixel.",
      describe(images),
      channels);
  const auto last = at::MemoryFormat::ChannelsLast;
  const torch::Tensor source = images.contiguous(last);
  const Pixels pixels{
      .images = source.const_data_ptr<float>(),
      .channels = channels,
      .height = images.size(2),
      .width = images.size(3),
      .stride_y = stride[0],
      .stride_x = stride[1]};
  torch::Tensor result = at::empty(
      {images.size(0), outputs, pixels.rows(), pixels.columns()},
      images.options(),
      last);
  TERN_CHECK_VALUE(
      !other || (other->sizes() == result.sizes() && is_float_on_cpu(*other)),
      "[pointwise_conv2d] the tensor to add is {}; expected {}, the shape and "
      "dtype of the result.",
      describe(*other),
      describe(result));
  TERN_CHECK_VALUE(
      !gate || (gate->dim() == 4 && is_float_on_cpu(*gate) &&
                (gate->size(0) == 1 || gate->size(0) == images.size(0)) &&
                gate->sizes().slice(1) == at::IntArrayRef({channels, 1, 1})),
      "[pointwise_conv2d] the gate is {}; expected [1, {}, 1, 1] kFloat or one "
      "for each of the {} images.",
      describe(*gate),
      channels,
      images.size(0));
  const torch::Tensor factors =
      gate ? gate->expand({images.size(0), -1, -1, -1}).contiguous()
           : torch::Tensor();
  const torch::Tensor added = other ? other->contiguous(last) : torch::Tensor();
  const Product product{
      .pixels = pixels,
      .rows = images.size(0) * pixels.rows() * pixels.columns(),
      .image_rows = pixels.rows() * pixels.columns(),
      .weight = weight.const_data_ptr<float>(),
      .panels = weight.size(0),
      .outputs = outputs,
      .gate = gate ? factors.const_data_ptr<float>() : nullptr,
      .other = other ? added.const_data_ptr<float>() : nullptr,
      .result = result.mutable_data_ptr<float>(),
      .activation = &activation};
  if (product.rows > 0) compute(product);
  return result;
}

}  // namespace tern
