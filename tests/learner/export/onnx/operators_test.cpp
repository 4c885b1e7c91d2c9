// Exports each supported operator. check_onnx.py runs the files in ONNX
// Runtime.
#include "tern/learner/export/onnx/operators.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::onnx_operators_test {
namespace {

using onnx::Integers;
using testing_support::stir;
using testing_support::write_onnx_case;
using torch::Tensor;
namespace fs = std::filesystem;
namespace nn = torch::nn;

/// A module that applies one function to [N, 3, 7, 7].
struct CallImpl : nn::Module {
  explicit CallImpl(Tensors (*function)(const Tensor&)) : call(function) {}
  Tensors forward(const Tensor& x) { return call(x); }
  Tensors (*call)(const Tensor&);
};

// Integers and booleans that differ from sample to sample.
Tensor whole_of(const Tensor& x) {
  return (4 * x).round().to(torch::kLong);
}

Tensor truth_of(const Tensor& x) {
  return x > 0.2;
}

Tensors functions(const Tensor& x) {
  const Tensor above = x.abs() + 0.5, small = x.sigmoid() * 1.8 - 0.9;
  return {
      x.erf() + above.exp().log() - x.neg(),
      above.sqrt() + x.tanh() + above.rsqrt() + above.reciprocal(),
      x.cos() + x.sin() + small.tan() + x.atan() + small.asin() + small.acos(),
      x.sinh() + x.cosh() + (1e4 * x).asinh() + (above + 1).acosh() +
          small.atanh(),
      above.log2() + above.log10() + above.log1p() + x.exp2(),
      (x * 1e-4).expm1() * 1e4 + x.expm1() + x.erfc() + x.square(),
      (small * 1e-4).log1p() * 1e4 + small.log1p(),
      x.floor() + 2 * x.ceil() + 4 * (4 * x).round() + 8 * x.sign(),
      x.trunc() + x.frac()};
}

// ONNX has no implicit casts, and ONNX Runtime lacks some operators for
// integers.
Tensors functions_of_integers(const Tensor& x) {
  const Tensor whole = whole_of(x), truth = truth_of(x);
  const Tensor byte = whole.to(torch::kByte), exact = x.to(torch::kDouble);
  return {
      whole.abs().sqrt() + whole.exp().tanh(),
      whole.abs() + whole.neg() + whole.sign() + whole.square(),
      whole.floor() + whole.ceil() + whole.round() + whole.trunc(),
      byte.neg() + byte.sign() + byte.abs() + byte.square(),
      truth.sign(),
      truth.exp() + truth.sin() + truth.sigmoid(),
      truth.square() + whole.to(torch::kInt).neg(),
      exact.exp() + exact.abs() + exact.floor() + exact.sigmoid()};
}

Tensors activations(const Tensor& x) {
  return {
      x.relu() + x.sigmoid() + torch::hardswish(x) + torch::relu6(4 * x),
      torch::hardsigmoid(x) + torch::leaky_relu(x, 0.2) + torch::elu(x, 0.7),
      torch::silu(x) + torch::gelu(x) + torch::gelu(x, "tanh"),
      torch::mish(x) + torch::selu(x) + torch::celu(x, 0.6),
      torch::softplus(3 * x, 2, 1.5) + torch::log_sigmoid(x),
      torch::softplus(x) + torch::threshold(x, 0.3, -2),
      torch::glu(x.narrow(-1, 0, 6)) + torch::glu(x.narrow(2, 1, 2), 2).sum(),
      torch::softshrink(x, 0.4) + torch::hardshrink(x, 0.3),
      torch::rrelu(x, 0.1, 0.3) + torch::hardtanh(x, -0.5, 0.4),
      torch::alpha_dropout(torch::dropout(x, 0.5, false), 0.5, false) +
          torch::feature_alpha_dropout(x, 0.5, false) +
          torch::feature_dropout(torch::dropout(x, 0, true), 0.5, false),
      whole_of(x).relu() + torch::hardtanh(whole_of(x), -1, 2),
      torch::threshold(whole_of(x), 1, -7) + torch::relu6(whole_of(x))};
}

Tensors arithmetic(const Tensor& x) {
  const Tensor above = x.abs() + 0.5, y = x.roll(1, -1) + 0.1;
  return {
      (1 - x * x) / above + above.pow(1.5) - x.sub(2) + y.pow(2),
      x.add(y, 0.5) - x.sub(y, 3) + torch::rsub(x, y, 2) + torch::rsub(x, 1),
      torch::addcmul(x, y, above, 0.3) + torch::addcdiv(x, y, above, 0.7),
      torch::addcmul(x, y, above) + torch::addcdiv(x, y, above),
      torch::lerp(x, y, 0.3) + torch::lerp(x, y, above),
      torch::maximum(x, torch::minimum(x.sin(), x.cos())),
      torch::max(x, y) + torch::min(x, above),
      x.clamp(-1, 1) + x.clamp_min(0.2) + x.clamp_max(0.1),
      x.clamp(y, above) + x.clamp_min(y) + x.clamp_max(above),
      x.clamp(-x.select(1, 0).unsqueeze(1), std::nullopt),
      torch::alias(x).detach().clone().contiguous()};
}

// Divisors of both signs, and some whole quotients.
Tensors division(const Tensor& x) {
  const Tensor y = x.roll(1, -1) + 0.07, whole = whole_of(x);
  const Tensor other = whole.roll(1, -1) * 2 + 1;
  const Tensor large = 10 * x, small = whole.to(torch::kChar);
  return {
      torch::remainder(large, y) + torch::remainder(large, -3),
      torch::fmod(large, y) + torch::fmod(large, 3),
      torch::floor_divide(large, y) + torch::floor_divide(large, -3),
      torch::div(large, y, "floor") + torch::div(large, y, "trunc"),
      torch::floor_divide(whole, 0.5) + torch::floor_divide(whole, 0.1),
      torch::remainder(whole, other) + torch::remainder(whole, 3),
      torch::fmod(whole, other) + torch::fmod(whole, -3),
      torch::floor_divide(whole, other) + torch::floor_divide(whole, -3),
      torch::div(whole, other, "trunc") + torch::div(whole, -3, "floor"),
      torch::remainder(small, 3) + torch::floor_divide(small, -3),
      torch::remainder(whole, 1.5) + whole / other};
}

// PyTorch casts arguments to the result dtype; ONNX does not.
Tensors types(const Tensor& x) {
  const Tensor whole = whole_of(x), truth = truth_of(x);
  const Tensor exact = x.to(torch::kDouble), byte = whole.to(torch::kByte);
  const Tensor small = whole.to(torch::kChar), more = x < 1;
  return {
      x.softmax(-1, torch::kDouble),
      x.log_softmax(1, torch::kDouble),
      torch::scaled_dot_product_attention(exact, exact, exact),
      whole.clamp(-1.5, 2),
      whole.clamp(-1, 2) + small.clamp_max(1),
      whole / 3 + x,
      truth + truth,
      truth * more,
      truth + whole,
      torch::maximum(truth, more).logical_and(torch::minimum(truth, more)),
      truth * x - more.to(torch::kLong),
      byte + byte * 77,
      small - small * 100,
      byte + x,
      exact + x * 0.1 + whole,
      whole.pow(2) + small.pow(2),
      whole.add(truth, 3) + whole.sub(small, 2),
      torch::cat({x, whole, truth}, 1),
      torch::cat({whole, truth, byte}, 1),
      torch::stack({x, whole.to(torch::kInt)}, -1),
      torch::where(truth, whole, x) + torch::where(more, 1.5, whole),
      torch::where(truth, small, byte),
      whole.masked_fill(truth, 3) + small.masked_fill(more, -1),
      truth.masked_fill(more, 0),
      x.to(torch::kInt).type_as(exact)};
}

Tensors comparisons(const Tensor& x) {
  const Tensor whole = whole_of(x), truth = truth_of(x), more = x < 0.9;
  const Tensor exact = x.to(torch::kDouble), byte = whole.to(torch::kByte);
  const Tensor infinite = 1 / whole.to(torch::kFloat);
  return {
      x.sign().eq(1).to(torch::kFloat) + x.sign().ne(-1).type_as(x),
      torch::where(x > 0.5, x, x * 0.5) + x.lt(0.1).to(torch::kFloat),
      (x >= 1).to(torch::kDouble),
      (x <= 1).to(torch::kLong),
      x.masked_fill(x > 0.5, 2),
      whole > 0.5,
      (byte > 3).logical_or(byte.eq(250)),
      truth > more,
      truth.eq(more),
      (exact > 0.1).eq(x > 0.1),
      whole.eq(x.round()),
      ~truth,
      ~whole,
      (truth & more) | (truth ^ ~more),
      torch::__and__(truth, more).logical_or(torch::__xor__(truth, more)),
      torch::__or__(truth, more).bitwise_and(truth),
      torch::bitwise_or(truth, more).bitwise_xor(truth),
      whole.logical_and(x).logical_or(truth).logical_xor(whole),
      whole.logical_not(),
      infinite.isinf().logical_or((infinite - infinite).isnan()),
      whole.isnan().logical_or(whole.isinf())};
}

Tensors reductions(const Tensor& x) {
  const Tensor whole = whole_of(x), truth = truth_of(x);
  const Tensor byte = whole.to(torch::kByte);
  const auto [most, places] = x.max(1);
  const auto [least, of_least] = whole.min(-1, true);
  return {
      x.sum({1, -1}),
      x.sum(),
      x.sum(torch::kDouble),
      x.sum({1}, true, torch::kDouble),
      whole.sum(),
      truth.sum({1}),
      byte.sum(),
      x.mean(),
      x.mean({1, 2}, true),
      x.mean(at::OptionalIntArrayRef(), true),
      whole.mean({1}, false, torch::kFloat),
      x.amax() + x.max() - x.min(),
      x.amax({2, 3}),
      x.amin({1}, true),
      x.amin({}, true),
      whole.amax({1}) + whole.amin({1}) + byte.amax({1}),
      truth.amax({1}),
      most + places * 2,
      least + of_least,
      x.prod(1) + x.prod() + whole.prod(1),
      x.all() + truth.any(),
      truth.all(1).logical_or(whole.any(1)),
      truth.any(-1, true),
      x.cumsum(1) + x.cumsum(-1, torch::kDouble),
      whole.cumsum(1) + truth.cumsum(1),
      x.logsumexp({1, 2}, true),
      at::_softmax(x, 1, false) + at::_log_softmax(x, 2, false)};
}

Tensors places_of_extremes(const Tensor& x) {
  const Tensor whole = whole_of(x), truth = truth_of(x);
  return {
      std::get<0>(x.topk(3, -1)),
      x.argmax() + whole.argmin(std::nullopt, true),
      whole.argmax(2) + whole.argmin(2, true).squeeze(2),
      truth.to(torch::kByte).argmax(1),
      x.argmax(1) + x.argmin(1, true).squeeze(1),
      std::get<1>(x.topk(2, 2, /*largest=*/false)),
      std::get<0>(whole.topk(2, 1)),
      std::get<0>(whole.to(torch::kShort).sort(1)),
      std::get<0>(x.sort(-1, true)) + std::get<1>(x.sort(0)),
      std::get<1>(whole.sort(/*stable=*/true, 1, false)),
      x.argsort(/*stable=*/true, 1) + torch::argsort(x)};
}

Tensors norms_and_variances(const Tensor& x) {
  using Dims = at::OptionalIntArrayRef;
  const Integers dims = {1, -1}, both = {0, 1};
  const auto [var, mean] = torch::var_mean(x, 1);
  const auto [deviation, center] = torch::std_mean(x, dims, true, true);
  return {
      (x.norm() + x.norm(1)) / 100 + x.norm(3, 1),
      x.norm(2, {1, 2}, true) + x.norm(1.5, dims, true),
      x.norm(2, 1, true, torch::kDouble),
      x.norm(INFINITY, 1) + x.norm(-INFINITY, 1) + x.norm(0, 1),
      torch::linalg_vector_norm(x, 2, dims, true) +
          torch::linalg_vector_norm(x, 0.5, Dims(dims), true),
      torch::linalg_vector_norm(x) + torch::linalg_vector_norm(x, INFINITY),
      x.std() + x.var() + x.std(false) + x.var(false),
      x.std(dims) + x.var(dims, false),
      x.std(dims, at::Scalar(0)) + x.var(dims, at::Scalar(3)),
      x.var(both, true) + x.std(both, true, true),
      var + mean,
      deviation + center,
      torch::cosine_similarity(x, x.roll(1, 1), 1) +
          torch::cosine_similarity(x, x * 1e-9 + 1e-9, 1),
      torch::pairwise_distance(x, x.roll(1, 1)) +
          torch::pairwise_distance(x, x.roll(1, 1), 1, 1e-3)};
}

Tensors shapes(const Tensor& x) {
  const Tensor flat = x.flatten(1);
  const auto parts = x.split(2, 1);
  const auto some = x.split_with_sizes({1, 2}, 1);
  const auto lines = x.unbind(1);
  return {
      x.slice(1, -2) * 2,
      torch::unsafe_chunk(x, 2, 1)[0] + torch::unsafe_split(x, 2, 1)[0],
      x.slice(1, -100) + 1,
      x.slice(-1, 1, 100, 2).narrow(2, -5, 4),
      torch::cat({parts[1], some[0], x.chunk(3, 1)[2]}, 1),
      torch::concat({lines[0], lines[2]}, 1) * torch::stack({x, x}, 1).sum(),
      torch::stack({lines[1], lines[2]}, -2),
      x.roll({1, -2}, {-1, 2}) + x.roll(9, 1) + x.roll({-1}, {0}),
      x.roll(5) + x.roll(-3),
      x.flip({1, -1}) + x.flip({0}),
      x.repeat({1, 2, 1, 1}).tile({2, 1}),
      x.repeat({2, 1, 1, 1, 3}),
      x.repeat_interleave(2, 1) + x.repeat_interleave(2).sum(),
      x.repeat_interleave(3, -1),
      x.movedim(1, -1).swapaxes(1, 2) + x.movedim({2, 3}, {1, 2}).sum(),
      x.tril() + x.triu(1) + x.tril(-2),
      whole_of(x).to(torch::kInt).triu(-1),
      truth_of(x).tril(1),
      x.unfold(-1, 3, 2),
      x.view({-1, 21, 7}).reshape({x.size(0), -1}).view_as(flat),
      flat.reshape_as(x).ravel(),
      flat.unflatten(1, {7, 21}).mT().unsqueeze(1).squeeze(1),
      flat.slice(1, 0, 1).expand({-1, 5}),
      flat.slice(1, 0, 1).expand_as(flat),
      flat.t().transpose(0, 1).numpy_T(),
      x.permute({0, -1, 1, 2}).contiguous().select(1, -1)};
}

Tensors padding(const Tensor& x) {
  const Tensor line = x.flatten(2), cube = x.unsqueeze(2);
  const Tensor thick = torch::cat({cube, cube + 1, cube * 2}, 2);
  return {
      torch::constant_pad_nd(x, {1, 2, 0, 1}, 0.5),
      torch::constant_pad_nd(whole_of(x), {1, -2}, 3),
      torch::constant_pad_nd(whole_of(x).to(torch::kShort), {0, 1}, 3),
      torch::constant_pad_nd(truth_of(x), {1, 0}, 1),
      torch::pad(x, {1, 1}, "constant", 2) + torch::pad(x, {2, 0}),
      torch::pad(x, {1, 2, 0, 3}, "circular"),
      at::_pad_enum(x, {1, 0}, 3, 0.5),
      torch::pad(x, {1, 1, 1, 1}, "reflect") +
          torch::pad(x, {1, 1, 1, 1}, "replicate"),
      torch::reflection_pad1d(line, {1, 2}),
      torch::reflection_pad2d(x, {1, 2, 3, 0}),
      torch::reflection_pad3d(thick, {1, 2, 3, 0, 1, 1}),
      torch::replication_pad1d(line, {1, 2}),
      torch::replication_pad2d(x, {0, 1, 0, 2}),
      torch::replication_pad3d(thick, {1, 2, 3, 0, 1, 1})};
}

// Tensors that are written into are not constants of a trace.
Tensors new_tensors(const Tensor& x) {
  const int64_t n = x.size(0);
  const Tensor counted = torch::arange(n).unsqueeze(1) * 2 + torch::arange(3);
  const Tensor upper = torch::ones({n, n}, torch::kBool).triu(1);
  return {
      x + torch::zeros_like(x) + torch::empty_like(x).fill_(0.25),
      torch::ones_like(x) * x.flatten(1).new_ones({3, 1, 7}) + x,
      x + x.new_zeros({7}) + x.new_empty({7}).zero_() + x.new_full({7}, 2),
      torch::full_like(x, 3) + x,
      torch::zeros({n, 3, 7, 7}).add_(x),
      torch::ones({n, 3, 7, 7}).mul_(x),
      torch::full({n, 3, 7, 7}, 2.5).mul_(x),
      torch::empty({n, 3, 7, 7}).fill_(1.5) + x,
      torch::arange(n).view({-1, 1, 1, 1}) + x,
      x.select(2, 0).select(2, 0) + counted,
      x.select(1, 0).flatten(1).slice(1, 0, 1) + torch::arange(n),
      (torch::zeros({n, n}).masked_fill(upper, -INFINITY) + x.mean())
          .softmax(1),
      upper.logical_or(x.mean() > 100)};
}

Tensors images(const Tensor& x) {
  const Tensor wide = torch::cat({x, 2 * x, x + 1, 1 - x}, 1);
  return {
      torch::pixel_shuffle(wide, 2),
      torch::im2col(wide, {3, 2}, {1, 2}, {1, 1}, {2, 1}),
      torch::pixel_unshuffle(wide.narrow(2, 1, 6).narrow(3, 0, 6), 3),
      torch::channel_shuffle(wide, 3)};
}

Tensors pooling(const Tensor& x) {
  const Tensor line = x.flatten(2), some = x.narrow(2, 0, 6).narrow(3, 1, 6);
  const Tensor cube = torch::stack({some, 2 * some, some.exp()}, 2);
  const auto first = [](const std::tuple<Tensor, Tensor>& both) {
    return std::get<0>(both);
  };
  return {
      torch::max_pool1d(line, 3) + torch::avg_pool1d(line, 3),
      torch::max_pool2d(x, 3, 2, 1, 1, /*ceil_mode=*/true),
      torch::max_pool2d(x, 2, 3, 1, 1, true),
      torch::max_pool2d(x.slice(2, 0, 6), 2, 3, 1, 2, true),
      first(torch::max_pool2d_with_indices(x, 3, 2, 1, 2)),
      torch::max_pool3d(cube, 2, 1) + torch::avg_pool3d(cube, 2, 1),
      torch::max_pool2d(whole_of(x), 2),
      torch::avg_pool2d(x, 3, 2, 1),
      torch::avg_pool2d(x, 3, 2, 1, false, /*count_include_pad=*/false),
      torch::avg_pool2d(x, 3, 2, 0, /*ceil_mode=*/true),
      torch::avg_pool2d(x, 2, 2, 1, true),
      torch::avg_pool2d(x, {3, 2}, {3, 3}, {1, 1}, true),
      torch::avg_pool2d(x, 3, 2, 1, true, false),
      torch::avg_pool2d(x, 3, 2, 1, false, true, 5),
      torch::avg_pool1d(line, 4, 3, 2, true),
      torch::avg_pool3d(cube, 2, 2, 1, true),
      torch::adaptive_avg_pool1d(line, 1).squeeze(-1),
      torch::adaptive_avg_pool1d(line, 7) * 2,
      torch::adaptive_avg_pool1d(line, 10),
      torch::adaptive_avg_pool2d(x, {1, 1}) +
          first(torch::adaptive_max_pool2d(x, {1, 1})),
      torch::adaptive_avg_pool2d(some, {3, 2}),
      torch::adaptive_avg_pool2d(x, {3, 2}),
      torch::adaptive_avg_pool2d(x, {1, 7}),
      torch::adaptive_avg_pool2d(x, {9, 14}),
      torch::adaptive_avg_pool3d(cube, {2, 4, 3}),
      torch::adaptive_avg_pool3d(cube, {3, 3, 3}),
      first(torch::adaptive_max_pool2d(some, {3, 2})),
      first(torch::adaptive_max_pool1d(line, 7)),
      first(torch::adaptive_max_pool3d(cube, {3, 3, 3}))};
}

Tensors resizing(const Tensor& x) {
  using Scales = std::vector<double>;
  const auto none = std::nullopt;
  const Tensor line = x.flatten(2), cube = torch::stack({x, x + 1, 2 * x}, 2);
  const Tensor byte = (x.abs() * 50).to(torch::kByte);
  const Scales odd = {1.7, 2.3};
  const Tensor grid = x.slice(1, 0, 2).permute({0, 2, 3, 1}).slice(1, 0, 5);
  return {
      torch::upsample_bilinear2d(x, none, /*align_corners=*/true, Scales{2, 2}),
      torch::grid_sampler(x, grid, 0, 0, false),
      torch::grid_sampler(x, grid, 1, 1, true),
      torch::grid_sampler(x, grid, 2, 2, false),
      torch::upsample_bilinear2d(x, none, false, odd),
      torch::upsample_bilinear2d(x, none, false, Scales{0.6, 0.45}),
      torch::upsample_bilinear2d(x, {9, 11}, false),
      torch::upsample_bilinear2d(x, {9, 11}, true),
      torch::upsample_bilinear2d(x, {9, 11}, false, 1.3, 1.6),
      torch::upsample_bilinear2d(x, {1, 5}, true),
      torch::upsample_bicubic2d(x, {9, 11}, false),
      torch::upsample_bicubic2d(x, {9, 11}, true),
      torch::upsample_bicubic2d(x, none, false, odd),
      torch::upsample_linear1d(line, 20, false),
      torch::upsample_linear1d(line, 70, true),
      torch::upsample_linear1d(line, none, false, Scales{1.3}),
      torch::upsample_trilinear3d(cube, {5, 9, 4}, false),
      torch::upsample_trilinear3d(cube, {5, 9, 4}, true),
      torch::upsample_trilinear3d(cube, none, false, Scales{2, 1.5, 1.7}),
      torch::upsample_nearest2d(x, none, Scales{2, 3}),
      torch::upsample_nearest2d(x, none, odd),
      torch::upsample_nearest2d(x, {9, 4}),
      torch::upsample_nearest2d(byte, {9, 14}),
      torch::upsample_nearest1d(line, 31),
      torch::upsample_nearest3d(cube, {4, 9, 14}),
      torch::_upsample_nearest_exact1d(line, 31),
      torch::_upsample_nearest_exact2d(x, none, odd),
      torch::_upsample_nearest_exact2d(x, {14, 21}),
      torch::_upsample_nearest_exact3d(cube, {4, 9, 14})};
}

/// Applied to different values from the example's.
struct PlacesImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor top = std::get<1>(x.topk(2, -1));
    const Tensor zeros = torch::zeros_like(x);
    const Tensor word = x.select(1, 0).round().clamp(0, 4).to(torch::kLong);
    return {
        x.gather(3, top),
        zeros.scatter(3, top, 1),
        zeros.scatter(3, top, x.slice(3, 0, 2)),
        x.index({row, channel}),
        zeros.index_put({row, channel}, x.select(0, 0).select(0, 1)),
        zeros.index_put({row, channel}, x.mean()),
        x.index_select(1, channel.abs()),
        torch::embedding(words, word),
        x.index({row}) + whole_of(x).index({row, channel}).sum(),
        whole_of(x).gather(3, top),
        zeros.to(torch::kLong).scatter(3, top, 2) + whole_of(x),
        truth_of(x).index_select(1, channel.abs()),
        truth_of(zeros).index_put({row, channel}, truth_of(x.mean())),
        whole_of(zeros).index_put({row, channel}, whole_of(x.mean())),
        (x > 0).nonzero()};
  }
  Tensor row = register_buffer("row", torch::tensor({0, 0}));
  Tensor channel = register_buffer("channel", torch::tensor({-1, 1}));
  Tensor words = register_parameter("words", torch::randn({5, 2}));
};

struct ProductsImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor lines = x.flatten(2), flat = x.flatten(1).narrow(1, 0, 49);
    const Tensor whole = whole_of(lines), mixed = whole.mT();
    return {
        torch::linear(lines, weight, bias),
        torch::linear(flat, weight[0]),
        torch::addmm(bias, flat, weight.t()),
        torch::addmm(bias, flat, weight.t(), 0.5, 2),
        torch::addmm(bias, flat, weight.t(), 0),
        torch::baddbmm(bias[0], lines, lines.mT(), 2, 0.1),
        torch::mm(flat, weight.t()),
        torch::mv(flat, weight[0]) + torch::dot(weight[1], flat[0]),
        torch::outer(flat.select(1, 0), bias),
        torch::bmm(lines, lines.mT()) + torch::matmul(lines, lines.mT()),
        torch::matmul(whole, mixed) + torch::bmm(whole, mixed),
        torch::matmul(whole.to(torch::kChar), mixed.to(torch::kChar)),
        torch::linear(whole, whole_of(weight)),
        torch::einsum("bchw, bcHw -> b h H", {x, x}),
        torch::einsum("...i,ki", {lines, weight}),
        torch::einsum("bij,bij->b", {whole, whole}),
        torch::einsum("bcii->bc", {x}),
        torch::bilinear(lines, lines.flip({1}), pairs, bias)};
  }
  Tensor weight = register_parameter("weight", torch::randn({6, 49}));
  Tensor bias = register_parameter("bias", torch::randn({6}));
  Tensor pairs = register_parameter("pairs", torch::randn({6, 49, 49}) * 0.1);
};

struct NormsImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor wide = torch::cat({x, 2 * x + 1, x.exp(), x * x}, 1);
    const Tensor none, mean = norm->running_mean, var = norm->running_var;
    const Tensor line = wide.flatten(2);
    return {
        norm(wide),
        torch::batch_norm(wide, none, none, mean, var, false, 0.1, 1e-5, true),
        torch::group_norm(wide, 4) + torch::group_norm(wide, 1, weight),
        torch::group_norm(wide, 6, weight, bias, 1e-3),
        torch::group_norm(line, 3, weight, bias),
        torch::
            instance_norm(wide, none, none, none, none, true, 0.1, 1e-5, true),
        torch::instance_norm(
            line,
            weight,
            bias,
            none,
            none,
            true,
            0.1,
            1e-3,
            true),
        torch::instance_norm(
            wide,
            weight,
            bias,
            mean,
            var,
            false,
            0.1,
            1e-3,
            true),
        torch::layer_norm(wide, {7, 7}) + torch::layer_norm(wide, {7}, seven),
        torch::layer_norm(x, {7}, seven, seven, 1e-2),
        torch::rms_norm(x, {7}, seven) + torch::rms_norm(x, {7, 7}, {}, 0.1)};
  }
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(12));
  Tensor weight = register_parameter("weight", torch::randn({12}));
  Tensor bias = register_parameter("bias", torch::randn({12}));
  Tensor seven = register_parameter("seven", torch::randn({7}));
};

// Normalization by batch statistics, also after a convolution, into which other
// normalization layers are folded.
struct BatchStatisticsImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor y = conv(x);
    const auto by_batch = [&](const Tensor& of) {
      const auto mean = norm->running_mean, var = norm->running_var;
      return torch::batch_norm(
          of,
          norm->weight,
          norm->bias,
          mean,
          var,
          true,
          0.0,
          1e-5,
          false);
    };
    return {
        by_batch(y),
        by_batch(y.flatten(2)) * 2,
        by_batch(y.mean({2, 3}).repeat({2, 1})),
        free_norm(conv(x)) + norm(conv(x))};
  }
  nn::Conv2d conv = register_module("conv", nn::Conv2d(3, 4, 3));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(4));
  nn::BatchNorm2d free_norm = register_module(
      "free_norm",
      nn::BatchNorm2d(nn::BatchNorm2dOptions(4).track_running_stats(false)));
};

// Masks that remove whole rows.
struct AttentionImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const auto attend = [&](const std::optional<Tensor>& mask, bool is_causal) {
      return torch::scaled_dot_product_attention(x, x, x, mask, 0, is_causal);
    };
    const Tensor shorter = x.narrow(2, 0, 4);
    return {
        attend({}, false),
        attend(x >= x.mean({-1}, true), false),
        attend(truths, false),
        attend(numbers, false),
        attend({}, true),
        torch::scaled_dot_product_attention(shorter, x, x, {}, 0, true, 0.3),
        torch::scaled_dot_product_attention(
            x.repeat({1, 2, 1, 1}),
            x,
            x,
            {},
            0,
            false,
            {},
            /*gqa=*/true),
        torch::scaled_dot_product_attention(
            torch::cat({x, x}, -1),
            torch::cat({x, x}, -1),
            x,
            numbers)};
  }
  Tensor truths = register_buffer("truths", torch::rand({7, 7}) > 0.5);
  Tensor numbers = register_buffer("numbers", torch::randn({7, 7}));
  AttentionImpl() {
    truths[2].fill_(false);
    numbers[3].fill_(-INFINITY);
    numbers[4].slice(0, 1, 5).fill_(-INFINITY);
  }
};

template <typename Layer, typename Options>
struct RecurrentImpl : nn::Module {
  explicit RecurrentImpl(const Options& options)
      : layer(register_module("layer", Layer(options))) {}
  Tensors forward(const Tensor& x) {
    const auto [y, last] = layer->forward(x.flatten(2));
    if constexpr (std::is_same_v<Layer, nn::LSTM>) {
      return {y, std::get<0>(last), std::get<1>(last)};
    } else {
      return {y, last};
    }
  }
  Layer layer;
};

struct LayersImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor same = torch::conv2d(x, square, {}, 1, "same", 2);
    return {up(x), dot(x.flatten(2)), same, torch::prelu(up(x), slopes)};
  }
  nn::ConvTranspose2d up = register_module(
      "up",
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 3)
                              .stride(2)
                              .padding(1)
                              .output_padding(1)));
  nn::Conv1d dot = register_module("dot", nn::Conv1d(3, 4, 2));
  Tensor square = register_parameter("square", torch::randn({2, 3, 4, 3}));
  Tensor slopes = register_parameter("slopes", torch::randn({4}));
};

std::vector<std::pair<const char*, Model>> modules() {
  const auto lstm = [](bool bias) {
    using Layer = RecurrentImpl<nn::LSTM, nn::LSTMOptions>;
    return std::make_shared<Layer>(nn::LSTMOptions(49, 4)
                                       .num_layers(2)
                                       .bidirectional(bias)
                                       .bias(bias)
                                       .batch_first(true));
  };
  using Gru = RecurrentImpl<nn::GRU, nn::GRUOptions>;
  using Rnn = RecurrentImpl<nn::RNN, nn::RNNOptions>;
  const nn::RNNOptions rnn = nn::RNNOptions(49, 4).batch_first(true);
  return {
      {"functions", std::make_shared<CallImpl>(functions)},
      {"functions_of_integers",
       std::make_shared<CallImpl>(functions_of_integers)},
      {"activations", std::make_shared<CallImpl>(activations)},
      {"arithmetic", std::make_shared<CallImpl>(arithmetic)},
      {"division", std::make_shared<CallImpl>(division)},
      {"types", std::make_shared<CallImpl>(types)},
      {"comparisons", std::make_shared<CallImpl>(comparisons)},
      {"reductions", std::make_shared<CallImpl>(reductions)},
      {"places_of_extremes", std::make_shared<CallImpl>(places_of_extremes)},
      {"norms_and_variances", std::make_shared<CallImpl>(norms_and_variances)},
      {"shapes", std::make_shared<CallImpl>(shapes)},
      {"padding", std::make_shared<CallImpl>(padding)},
      {"new_tensors", std::make_shared<CallImpl>(new_tensors)},
      {"images", std::make_shared<CallImpl>(images)},
      {"pooling", std::make_shared<CallImpl>(pooling)},
      {"resizing", std::make_shared<CallImpl>(resizing)},
      {"places", std::make_shared<PlacesImpl>()},
      {"products", std::make_shared<ProductsImpl>()},
      {"norms", std::make_shared<NormsImpl>()},
      {"batch_statistics", std::make_shared<BatchStatisticsImpl>()},
      {"attention", std::make_shared<AttentionImpl>()},
      {"lstm", lstm(true)},
      {"lstm_without_bias", lstm(false)},
      {"gru", std::make_shared<Gru>(nn::GRUOptions(49, 4).bidirectional(true))},
      {"rnn_tanh", std::make_shared<Rnn>(rnn)},
      {"rnn_relu",
       std::make_shared<Rnn>(nn::RNNOptions(rnn)
                                 .nonlinearity(torch::kReLU)
                                 .bidirectional(true)
                                 .bias(false))},
      {"layers", std::make_shared<LayersImpl>()}};
}

TEST(OnnxOperators, GiveTheSameOutputsInOnnxRuntime) {
  const TempFolder temp;
  const char* const shared = std::getenv("TERN_ONNX_FOLDER");
  const fs::path folder = shared != nullptr ? fs::path(shared) : temp.path();
  make_folders(folder);
  torch::manual_seed(5);
  for (const auto& [name, model] : modules()) {
    SCOPED_TRACE(name);
    stir(model);
    const Tensor x = torch::randn({4, 3, 7, 7});
    EXPECT_NO_THROW(write_onnx_case(folder, name, model, {x}));
  }
}

TEST(OnnxOperators, LayerNormFromOlderOperatorsGivesTheSameOutputs) {
  const TempFolder temp;
  const char* const shared = std::getenv("TERN_ONNX_FOLDER");
  const fs::path folder = shared != nullptr ? fs::path(shared) : temp.path();
  make_folders(folder);
  torch::manual_seed(5);
  const Model model(std::make_shared<NormsImpl>());
  stir(model);
  const Tensor x = torch::randn({4, 3, 7, 7});
  const char* const name = "decomposed_norms";
  write_onnx_case(folder, name, model, {x}, {.decompose_layer_norm = true});
  const auto bytes = read_file(folder / "decomposed_norms.onnx");
  const std::string file(bytes.begin(), bytes.end());
  EXPECT_EQ(file.find("LayerNormalization"), std::string::npos);
}

// Ensures that each new operator is compared too.
TEST(OnnxOperators, AreAllTestedAbove) {
  const torch::NoGradGuard no_grad;
  std::set<std::string> used;
  for (auto& [name, model] : modules()) {
    model.eval();
    const auto graph =
        frozen_graph(trace(model, {torch::randn({2, 3, 7, 7})}, {}));
    for (const torch::jit::Node* node : graph->nodes()) {
      used.insert(onnx::operator_name(*node));
    }
  }
  for (const auto& [name, function] : onnx::operators()) {
    EXPECT_TRUE(used.contains(name)) << name;
  }
  EXPECT_GT(onnx::operators().size(), 200u);
}

void expect_refused(
    const Model& model,
    const Tensor& x,
    std::initializer_list<std::string_view> words) {
  const TempFolder temp;
  expect_error<c10::ValueError>(
      [&] { export_onnx(model, temp / "a.onnx", {x}); },
      words);
  EXPECT_EQ(temp.entries(), 0);
}

using X = const Tensor&;

// Applies a function to [2, 3, 6, 6].
void refuses(
    Tensors (*function)(const Tensor&),
    std::initializer_list<std::string_view> words) {
  const Model model(std::make_shared<CallImpl>(function));
  expect_refused(model, torch::randn({2, 3, 6, 6}), words);
}

TEST(OnnxOperators, RejectUnsupportedArguments) {
  refuses(
      [](X x) -> Tensors { return {torch::round(x, 2)}; },
      {"aten::round", "argument decimals is 2; expected false or none"});
  refuses(
      [](X x) -> Tensors { return {x.unfold(1, 2, 1)}; },
      {"aten::unfold",
       "its dimension is not the last one",
       "Transpose before"});
  refuses(
      [](X x) -> Tensors {
        return {std::get<0>(torch::adaptive_max_pool2d(x, {4, 2}))};
      },
      {"aten::adaptive_max_pool2d",
       "output_size is [4, 2] for an image of [6, 6]"});
  refuses(
      [](X x) -> Tensors { return {torch::avg_pool2d(x[0], 2)}; },
      {"aten::avg_pool2d", "its self has 3 dimensions", "unsqueeze(0)"});
  refuses(
      [](X x) -> Tensors { return {torch::pixel_shuffle(x[0], 1)}; },
      {"aten::pixel_shuffle", "its self is not [N, C, H, W]"});
  for (const auto& function :
       {+[](X x) -> Tensors { return {x.index({x > 0})}; },
        +[](X x) -> Tensors {
          return {x.index(
              {torch::indexing::Slice(), x[0][0][0].slice(0, 0, 3).argsort()})};
        }}) {
    refuses(
        function,
        {"aten::index", "in the model itself", "its indices have slices"});
  }
  refuses(
      [](X x) -> Tensors {
        const Tensor top = std::get<1>(x.topk(2, -1));
        return {torch::zeros_like(x).scatter(3, top, x)};
      },
      {"aten::scatter", "src is larger than index", "Crop it with slice"});
  refuses(
      [](X x) -> Tensors {
        const Tensor top = std::get<1>(x.topk(2, -1));
        return {x.scatter(3, top, x.slice(3, 0, 2), "add")};
      },
      {"aten::scatter", "argument reduce is add"});
  refuses(
      [](X x) -> Tensors {
        return {x.repeat_interleave(whole_of(x[0][0][0]).abs(), 2)};
      },
      {"aten::repeat_interleave", "argument repeats is a result of the model"});
  refuses(
      [](X x) -> Tensors {
        const Tensor whole = whole_of(x);
        return {whole.bitwise_and(3)};
      },
      {"aten::bitwise_and", "its type is Long; expected Bool"});
  refuses(
      [](X x) -> Tensors {
        return {torch::upsample_bilinear2d(x.to(torch::kByte), {9, 9}, false)};
      },
      {"aten::upsample_bilinear2d",
       "is Byte; expected floating-point numbers"});
  refuses(
      [](X x) -> Tensors { return {torch::real(x.to(torch::kComplexFloat))}; },
      {"aten::to", "does not have its type, ComplexFloat"});
  expect_refused(
      std::make_shared<CallImpl>([](X x) -> Tensors { return {x}; }),
      torch::zeros({2, 3}, torch::kComplexFloat),
      {"an input in the model itself", "ComplexFloat"});
}

// A file returns the same outputs for the same input.
TEST(OnnxOperators, RejectRandomNumbers) {
  for (const auto& function :
       {+[](X x) -> Tensors { return {torch::dropout(x, 0.5, true)}; },
        +[](X x) -> Tensors { return {torch::feature_dropout(x, 0.5, true)}; },
        +[](X x) -> Tensors { return {torch::alpha_dropout(x, 0.5, true)}; },
        +[](X x) -> Tensors { return {torch::rrelu(x, 0.1, 0.2, true)}; },
        +[](X x) -> Tensors {
          return {torch::scaled_dot_product_attention(x, x, x, {}, 0.5)};
        }}) {
    refuses(function, {"draws random", "in evaluation", "is_training()"});
  }
  for (const auto& function :
       {+[](X x) -> Tensors { return {x + torch::rand({6})}; },
        +[](X x) -> Tensors { return {x + torch::randn_like(x)}; },
        +[](X x) -> Tensors { return {x.sigmoid().bernoulli()}; },
        +[](X x) -> Tensors { return {torch::empty_like(x).uniform_() + x}; },
        +[](X x) -> Tensors {
          return {x.flatten(1).sigmoid().multinomial(2)};
        }}) {
    refuses(function, {"it draws random numbers in evaluation"});
  }
}

TEST(OnnxOperators, SuggestAReplacement) {
  refuses(
      [](X x) -> Tensors {
        const Tensor y = x * 2;
        y.slice(1, 0, 1).copy_(x.slice(1, 1, 2));
        return {y};
      },
      {"aten::copy_", "Use cat, where or constant_pad_nd"});
  refuses(
      [](X x) -> Tensors {
        return {x + std::get<1>(torch::max_pool2d_with_indices(x, 3, 1, 1))};
      },
      {"aten::add", "a result of aten::max_pool2d_with_indices"});
  refuses(
      [](X x) -> Tensors { return {x.cumprod(1)}; },
      {"aten::cumprod", "does not support it", "Use cumsum of logarithms"});
  refuses(
      [](X x) -> Tensors { return {x.masked_select(x > 0)}; },
      {"aten::masked_select", "Use where or masked_fill"});
  refuses(
      [](X x) -> Tensors { return {std::get<0>(x.median(1))}; },
      {"aten::median", "Use sort, then select"});
  refuses(
      [](X x) -> Tensors { return {torch::erfinv(x)}; },
      {"aten::erfinv", "Use such operators in the module"});
}

struct LstmImpl : nn::Module {
  explicit LstmImpl(const nn::LSTMOptions& options, bool train = false)
      : lstm(register_module("lstm", nn::LSTM(options))), trains(train) {}
  Tensor forward(const Tensor& x) {
    if (trains) lstm->train();
    return std::get<0>(lstm->forward(x));
  }
  nn::LSTM lstm;
  bool trains;
};

TEST(OnnxOperators, RejectAnLstmWithProjectionsOrDropout) {
  expect_refused(
      std::make_shared<LstmImpl>(nn::LSTMOptions(4, 3).proj_size(2)),
      torch::randn({2, 5, 4}),
      {"aten::lstm in its module lstm", "its proj_size is not 0"});
  expect_refused(
      std::make_shared<LstmImpl>(
          nn::LSTMOptions(4, 3).num_layers(2).dropout(0.5),
          /*train=*/true),
      torch::randn({2, 5, 4}),
      {"aten::lstm", "its train is true and dropout 0.5"});
}

struct PackedImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    const Tensor lengths = torch::full({x.size(0)}, 3, torch::kLong);
    const auto [packed, sizes] =
        torch::_pack_padded_sequence(x, lengths, /*batch_first=*/true);
    return packed;
  }
};

TEST(OnnxOperators, RejectAPackedSequence) {
  expect_refused(
      std::make_shared<PackedImpl>(),
      torch::randn({2, 5, 4}),
      {"aten::_pack_padded_sequence", "expected a padded sequence"});
}

}  // namespace
}  // namespace tern::onnx_operators_test
