#include "tern/kernels/winograd.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/kron.h>
#include <ATen/ops/mkldnn_reorder_conv2d_weight.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/float_lanes.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

// Side of an output tile, side of the input patch that it sees, and number of
// products.
constexpr int64_t kTile = 4, kPatch = 6, kProducts = kPatch * kPatch;
// With fewer tiles, reading the larger weight does not pay off.
constexpr int64_t kFewestTiles = 16;
// Number of tiles that keep oneDNN busy; tiles times channels that fit into the
// cache.
constexpr int64_t kFewAtOnce = 64, kNumbersAtOnce = 16384;
constexpr int64_t kTileGrain = 4;  // per thread

// Matrix G of the paper.
constexpr double kWeightFactors[kPatch][3] = {
    {1 / 4.0, 0, 0},
    {-1 / 6.0, -1 / 6.0, -1 / 6.0},
    {-1 / 6.0, 1 / 6.0, -1 / 6.0},
    {1 / 24.0, 1 / 12.0, 1 / 6.0},
    {1 / 24.0, -1 / 12.0, 1 / 6.0},
    {0, 0, 1}};

/// The pixel where a square begins.
struct Place {
  int64_t image, row, column;
};

/// The tiles of an image.
struct Tiling {
  Tiling(at::IntArrayRef images, at::IntArrayRef padding)
      : height(images[2] + 2 * padding[0] - 2),
        width(images[3] + 2 * padding[1] - 2),
        across((width + kTile - 1) / kTile),
        count((height + kTile - 1) / kTile * across) {}

  /// Returns how many tiles are computed together, from one or several images.
  int64_t at_once(int64_t images, int64_t channels) const {
    const int64_t all = std::max<int64_t>(images * count, 1);
    const int64_t most = std::max(kFewAtOnce, kNumbersAtOnce / channels);
    const int64_t rounds = (all + most - 1) / most;
    return (all + rounds - 1) / rounds;
  }

  Place place(int64_t tile) const {
    const int64_t within = tile % count;
    return {tile / count, within / across * kTile, within % across * kTile};
  }

  int64_t height, width;  // of the result
  int64_t across, count;
};

/// B^T of the paper along one axis: six pixels become six factors.
TERN_CPU_LOOP void to_factors(Floats* x, int64_t stride) {
  Floats& x0 = x[0];
  Floats& x1 = x[stride];
  Floats& x2 = x[2 * stride];
  Floats& x3 = x[3 * stride];
  Floats& x4 = x[4 * stride];
  Floats& x5 = x[5 * stride];
  const Floats even4 = x4 - 4.0F * x2, odd4 = x3 - 4.0F * x1;
  const Floats even = x4 - x2, odd = 2.0F * (x3 - x1);
  x0 = 4.0F * x0 - 5.0F * x2 + x4;
  x5 = 4.0F * x1 - 5.0F * x3 + x5;
  x1 = even4 + odd4;
  x2 = even4 - odd4;
  x3 = even + odd;
  x4 = even - odd;
}

/// A^T of the paper along one axis: the sums of six products become the first
/// four values, pixels of the result.
TERN_CPU_LOOP void to_pixels(Floats* x, int64_t stride) {
  const Floats sum1 = x[stride] + x[2 * stride];
  const Floats difference1 = x[stride] - x[2 * stride];
  const Floats sum2 = x[3 * stride] + x[4 * stride];
  const Floats difference2 = x[3 * stride] - x[4 * stride];
  x[0] = x[0] + sum1 + sum2;
  x[stride] = difference1 + 2.0F * difference2;
  x[2 * stride] = sum1 + 4.0F * sum2;
  x[3 * stride] = difference1 + 8.0F * difference2 + x[5 * stride];
}

/// \param pixels  Pixels of the patch, each with `channels` numbers.
/// \param to  [36, channels]
TERN_CPU_LOOP void
transform_patch(const float* const* pixels, float* to, int64_t channels) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Floats x[kProducts];
    for (int64_t i = 0; i < kProducts; ++i) load_floats(pixels[i] + c, x[i]);
    for (int64_t i = 0; i < kPatch; ++i) to_factors(x + i, kPatch);
    for (int64_t i = 0; i < kPatch; ++i) to_factors(x + i * kPatch, 1);
    for (int64_t i = 0; i < kProducts; ++i)
      store_floats(x[i], to + i * channels + c);
  }
}

/// \param from  [36, channels]
/// \param other, pixels  Pixels of the tile, each with `channels` numbers.
TERN_CPU_LOOP void transform_products(
    const float* from,
    const float* bias,
    const float* const* other,
    float* const* pixels,
    int64_t channels,
    bool relu) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Floats x[kProducts], added;
    for (int64_t i = 0; i < kProducts; ++i)
      load_floats(from + i * channels + c, x[i]);
    for (int64_t i = 0; i < kPatch; ++i) to_pixels(x + i, kPatch);
    for (int64_t i = 0; i < kTile; ++i) to_pixels(x + i * kPatch, 1);
    for (int64_t i = 0; i < kTile * kTile; ++i) {
      Floats& y = x[i / kTile * kPatch + i % kTile];
      load_floats(bias + c, added);
      y += added;
      load_floats(other[i] + c, added);
      y += added;
      if (relu) y = y < 0.0F ? Floats{} : y;  // NaN stays NaN
      store_floats(y, pixels[i] + c);
    }
  }
}

/// Returns the addresses of a square's pixels in images [N, H, W, C]; `outside`
/// for pixels outside the image.
template <int64_t kSide, class Number>
std::array<Number*, kSide * kSide> square_at(
    const Place& place,
    Number* images,
    at::IntArrayRef sizes,
    Number* outside) {
  std::array<Number*, kSide * kSide> pixels;
  for (int64_t i = 0; i < kSide * kSide; ++i) {
    const int64_t y = place.row + i / kSide, x = place.column + i % kSide;
    const bool is_inside = y >= 0 && y < sizes[2] && x >= 0 && x < sizes[3];
    const int64_t at = (place.image * sizes[2] + y) * sizes[3] + x;
    pixels[i] = is_inside ? images + at * sizes[1] : outside;
  }
  return pixels;
}

/// Sums products over channels: [tiles, 36 K] from [tiles, 36 C].
torch::Tensor sum_products(
    const torch::Tensor& factors,
    const torch::Tensor& weight) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow(
          "mkldnn::_convolution_pointwise",
          "");
  const std::vector<int64_t> none = {0, 0}, one = {1, 1};
  torch::jit::Stack stack = {
      factors.view({1, factors.size(0), 1, -1}).permute({0, 3, 2, 1}),
      weight,
      c10::IValue(),
      none,
      one,
      one,
      kProducts,
      std::string("none"),
      c10::List<std::optional<at::Scalar>>(),
      c10::IValue()};
  op.callBoxed(stack);
  return stack[0].toTensor().contiguous(at::MemoryFormat::ChannelsLast);
}

/// A range of tiles that are computed together, numbered over all images.
struct TileRange {
  int64_t first, count;
};

/// Applied to each sum of products: `relu(sum + bias + other)`.
struct Epilogue {
  torch::Tensor bias;   // [K]
  torch::Tensor other;  // like the result, channels last; or undefined
  bool relu;
};

/// Checked because bias and other are read by address; a wrong size would read
/// out of bounds.
void check_epilogue(
    const std::optional<torch::Tensor>& bias,
    const std::optional<torch::Tensor>& other,
    const torch::Tensor& result) {
  TERN_CHECK_VALUE(
      !other || (other->sizes() == result.sizes() &&
                 other->scalar_type() == torch::kFloat),
      "[winograd_conv2d] the tensor to add is {}; expected {}, the shape and "
      "dtype of the result.",
      describe(*other),
      describe(result));
  TERN_CHECK_VALUE(
      !bias || (bias->dim() == 1 && bias->size(0) == result.size(1) &&
                bias->scalar_type() == torch::kFloat),
      "[winograd_conv2d] the bias is {}; expected [{}] kFloat.",
      describe(*bias),
      result.size(1));
}

/// First step: the 6 x 6 pixels that each tile sees become 36 factors.
/// \param source   [N, C, H, W], channels last.
/// \param zeros    At least C zeros, read for pixels outside the image.
/// \param factors  [tiles, 36 C]; output.
void images_to_factors(
    const Tiling& tiling,
    TileRange tiles,
    const torch::Tensor& source,
    at::IntArrayRef padding,
    const torch::Tensor& zeros,
    const torch::Tensor& factors) {
  parallel_for(0, tiles.count, kTileGrain, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const Place at = tiling.place(tiles.first + tile);
      const auto patch = square_at<kPatch>(
          {at.image, at.row - padding[0], at.column - padding[1]},
          source.const_data_ptr<float>(),
          source.sizes(),
          zeros.const_data_ptr<float>());
      on_cpu_isa<transform_patch>(
          patch.data(),
          factors.data_ptr<float>() + tile * factors.size(1),
          source.size(1));
    }
  });
}

/// Last step: the 36 sums of each tile become 4 x 4 pixels of the result.
/// \param sums    [tiles, 36 K], from `sum_products`.
/// \param zeros   At least K zeros, added if there is no `other`.
/// \param result  [N, K, H, W], channels last; output.
void sums_to_pixels(
    const Tiling& tiling,
    TileRange tiles,
    const torch::Tensor& sums,
    const Epilogue& epilogue,
    const torch::Tensor& zeros,
    const torch::Tensor& result) {
  const int64_t outputs = result.size(1);
  const float* const nothing = zeros.const_data_ptr<float>();
  parallel_for(0, tiles.count, kTileGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> outside(outputs);  // output beyond the image's edge
    for (int64_t tile = begin; tile < end; ++tile) {
      const Place at = tiling.place(tiles.first + tile);
      const auto pixels = square_at<kTile>(
          at,
          result.data_ptr<float>(),
          result.sizes(),
          outside.data());
      std::array<const float*, kTile * kTile> others;
      others.fill(nothing);
      if (epilogue.other.defined()) {
        others = square_at<kTile>(
            at,
            epilogue.other.const_data_ptr<float>(),
            epilogue.other.sizes(),
            nothing);
      }
      on_cpu_isa<transform_products>(
          sums.const_data_ptr<float>() + tile * kProducts * outputs,
          epilogue.bias.const_data_ptr<float>(),
          others.data(),
          pixels.data(),
          outputs,
          epilogue.relu);
    }
  });
}

}  // namespace

bool winograd_pays(
    at::IntArrayRef images,
    at::IntArrayRef weight,
    at::IntArrayRef padding) {
  const CpuIsa isa = cpu_isa();
  if (isa != CpuIsa::avx2 && isa != CpuIsa::avx512) return false;
  if (weight[2] != 3 || weight[3] != 3) return false;
  if (weight[0] % kLanes != 0 || weight[1] % kLanes != 0) return false;
  const Tiling tiling(images, padding);
  return tiling.height > 0 && tiling.width > 0 &&
         images[0] * tiling.count >= kFewestTiles;
}

torch::Tensor winograd_weight(
    const torch::Tensor& weight,
    at::IntArrayRef images,
    at::IntArrayRef padding) {
  const torch::Tensor g =
      at::tensor(at::ArrayRef<double>(kWeightFactors[0], kPatch * 3))
          .view({kPatch, 3});
  const int64_t outputs = weight.size(0), channels = weight.size(1);
  const torch::Tensor factors =
      at::kron(g, g)
          .matmul(weight.to(torch::kDouble).reshape({-1, 9}).t())
          .to(torch::kFloat)
          .view({kProducts * outputs, channels, 1, 1});
  const Tiling tiling(images, padding);
  return at::mkldnn_reorder_conv2d_weight(
      factors.to_mkldnn(),
      {0, 0},
      {1, 1},
      {1, 1},
      kProducts,
      at::IntArrayRef(
          {1, kProducts * channels, 1, tiling.at_once(images[0], channels)}));
}

torch::Tensor winograd_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias,
    at::IntArrayRef padding,
    const std::optional<torch::Tensor>& other,
    bool relu) {
  TERN_CHECK_VALUE(
      images.dim() == 4 && images.scalar_type() == torch::kFloat &&
          images.size(1) == weight.size(1),
      "[winograd_conv2d] the images are {}; expected [N, {}, H, W] kFloat.",
      describe(images),
      weight.size(1));
  const Tiling tiling(images.sizes(), padding);
  const int64_t channels = weight.size(1);
  const int64_t outputs = weight.size(0) / kProducts;
  const auto last = at::MemoryFormat::ChannelsLast;
  const torch::Tensor result = at::empty(
      {images.size(0), outputs, tiling.height, tiling.width},
      images.options(),
      last);
  check_epilogue(bias, other, result);
  const torch::Tensor zeros =
      at::zeros({std::max(channels, outputs)}, images.options());
  const Epilogue epilogue{
      .bias = bias ? bias->contiguous() : zeros,
      .other = other ? other->contiguous(last) : torch::Tensor(),
      .relu = relu};
  const torch::Tensor source = images.contiguous(last);
  const int64_t all = images.size(0) * tiling.count;
  const int64_t at_once = tiling.at_once(images.size(0), channels);
  const torch::Tensor factors =
      at::empty({at_once, kProducts * channels}, images.options());
  for (int64_t first = 0; first < all; first += at_once) {
    const TileRange tiles{first, std::min(at_once, all - first)};
    images_to_factors(tiling, tiles, source, padding, zeros, factors);
    const torch::Tensor sums =
        sum_products(factors.narrow(0, 0, tiles.count), weight);
    sums_to_pixels(tiling, tiles, sums, epilogue, zeros, result);
  }
  return result;
}

}  // namespace tern
