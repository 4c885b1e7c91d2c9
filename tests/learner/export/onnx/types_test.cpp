// Covers PyTorch's operators for each type. ONNX has no implicit casts, and
// ONNX Runtime, which check_onnx.py runs, has fewer operators for integers and
// booleans.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::onnx_types_test {
namespace {

using testing_support::write_onnx_case;
using torch::Tensor;
namespace fs = std::filesystem;

// Applies an operator to two tensors [N, 3, 6, 6] of one type.
using Call = Tensor (*)(const Tensor& x, const Tensor& y);
using X = const Tensor&;

struct Case {
  const char* name;
  Call call;
};

#define TERN_CASE(expression)             \
  {                                       \
    #expression, [](X x, X y) -> Tensor { \
      (void)y;                            \
      return expression;                  \
    }                                     \
  }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      TERN_CASE(x.abs()),
      TERN_CASE(x.neg()),
      TERN_CASE(x.sign()),
      TERN_CASE(x.square()),
      TERN_CASE(x.floor()),
      TERN_CASE(x.round()),
      TERN_CASE(x.trunc()),
      TERN_CASE(x.frac()),
      TERN_CASE(x.exp()),
      TERN_CASE(x.sin()),
      TERN_CASE(x.cos()),
      TERN_CASE(x.tan()),
      TERN_CASE(x.tanh().asin()),
      TERN_CASE(x.tanh().acos()),
      TERN_CASE(x.atan()),
      TERN_CASE(x.sinh()),
      TERN_CASE(x.cosh()),
      TERN_CASE(x.asinh()),
      TERN_CASE(x.cosh().acosh()),
      TERN_CASE((x.tanh() * 0.5).atanh()),
      TERN_CASE(x.exp().reciprocal().rsqrt().log1p()),
      TERN_CASE(x.erf()),
      TERN_CASE(x.tanh()),
      TERN_CASE(x.sigmoid()),
      TERN_CASE(x.expm1()),
      TERN_CASE(x.relu()),
      TERN_CASE(torch::relu6(x)),
      TERN_CASE(torch::elu(x)),
      TERN_CASE(torch::selu(x)),
      TERN_CASE(torch::celu(x)),
      TERN_CASE(torch::silu(x)),
      TERN_CASE(torch::mish(x)),
      TERN_CASE(torch::gelu(x)),
      TERN_CASE(torch::gelu(x, "tanh")),
      TERN_CASE(torch::glu(x)),
      TERN_CASE(torch::softplus(x)),
      TERN_CASE(torch::log_sigmoid(x)),
      TERN_CASE(torch::hardsigmoid(x)),
      TERN_CASE(torch::hardswish(x)),
      TERN_CASE(torch::hardtanh(x, -1, 1)),
      TERN_CASE(torch::hardshrink(x)),
      TERN_CASE(torch::softshrink(x)),
      TERN_CASE(torch::leaky_relu(x)),
      TERN_CASE(torch::rrelu(x)),
      TERN_CASE(torch::threshold(x, 1, 2)),
      TERN_CASE(torch::prelu(x, torch::full({1}, 3, x.options()))),
      TERN_CASE(torch::dropout(x, 0.5, false)),
      TERN_CASE(x + y),
      TERN_CASE(x - y),
      TERN_CASE(x * y),
      TERN_CASE(x / (y + 7)),
      TERN_CASE(x + 2),
      TERN_CASE(x * 0.5),
      TERN_CASE(3 - x),
      TERN_CASE(torch::add(x, y, 2)),
      TERN_CASE(torch::rsub(x, y, 2)),
      TERN_CASE(torch::addcmul(x, x, y, 2)),
      TERN_CASE(torch::addcdiv(x, y, y.abs() + 1, 2)),
      TERN_CASE(torch::lerp(x, y, 0.25)),
      TERN_CASE(torch::remainder(x, y + 9)),
      TERN_CASE(torch::fmod(x, y + 9)),
      TERN_CASE(torch::floor_divide(x, 2)),
      TERN_CASE(torch::div(x, 2, "trunc")),
      TERN_CASE(x.pow(2)),
      TERN_CASE(torch::pow(2.0, x)),
      TERN_CASE(torch::maximum(x, y)),
      TERN_CASE(torch::minimum(x, y)),
      TERN_CASE(x.clamp(-1, 1)),
      TERN_CASE(x.clamp_min(0.5)),
      TERN_CASE(x.clamp(x - 1, y)),
      TERN_CASE(x == y),
      TERN_CASE(x != y),
      TERN_CASE(x < y),
      TERN_CASE(x >= 1),
      TERN_CASE(x.bitwise_not()),
      TERN_CASE(x.bitwise_and(y)),
      TERN_CASE(x.logical_not()),
      TERN_CASE(x.logical_and(y)),
      TERN_CASE(x.logical_xor(y)),
      TERN_CASE(x.isnan()),
      TERN_CASE(x.isinf()),
      TERN_CASE(torch::where(x > y, x, y)),
      TERN_CASE(x.masked_fill(y > 0, 1)),
      TERN_CASE(x.sum()),
      TERN_CASE(x.sum({1}, true)),
      TERN_CASE(x.mean({1})),
      TERN_CASE(x.prod(3)),
      TERN_CASE(x.amax({1})),
      TERN_CASE(x.amin({1})),
      TERN_CASE(x.max()),
      TERN_CASE(std::get<0>(x.max(1))),
      TERN_CASE(std::get<1>(x.min(1))),
      TERN_CASE(x.argmax(1)),
      TERN_CASE(x.argmin()),
      TERN_CASE(x.all(1)),
      TERN_CASE(x.any()),
      TERN_CASE(x.norm()),
      TERN_CASE(x.norm(1, 1)),
      TERN_CASE(x.std()),
      TERN_CASE(x.var({1}, true)),
      TERN_CASE(torch::cosine_similarity(x, y)),
      TERN_CASE(torch::pairwise_distance(x, y)),
      TERN_CASE(x.softmax(1)),
      TERN_CASE(x.log_softmax(1)),
      TERN_CASE(x.softmax(1, torch::kFloat)),
      TERN_CASE(x.logsumexp(1)),
      TERN_CASE(x.cumsum(1)),
      TERN_CASE(std::get<0>(x.sort(1))),
      TERN_CASE(std::get<0>(x.topk(2, 1))),
      TERN_CASE(std::get<1>(x.sort(/*stable=*/true, 1))),
      TERN_CASE(x.reshape({-1, 6})),
      TERN_CASE(x.squeeze(1).unsqueeze(2)),
      TERN_CASE(x.slice(1, 0, 1).expand({-1, 4, 6, 6})),
      TERN_CASE(x.repeat({1, 1, 2, 1})),
      TERN_CASE(x.repeat_interleave(2, 1)),
      TERN_CASE(x.transpose(1, 2)),
      TERN_CASE(x.slice(1, 0, 2)),
      TERN_CASE(x.split(2, 1)[0]),
      TERN_CASE(x.unbind(1)[1]),
      TERN_CASE(x.unfold(3, 2, 2)),
      TERN_CASE(torch::cat({x, y, x.to(torch::kLong)}, 1)),
      TERN_CASE(torch::stack({x, x.to(torch::kFloat)}, 1)),
      TERN_CASE(x.roll(1, 1)),
      TERN_CASE(x.flip({1})),
      TERN_CASE(x.tril()),
      TERN_CASE(x.triu(1)),
      TERN_CASE(torch::constant_pad_nd(x, {1, 1}, 1)),
      TERN_CASE(torch::reflection_pad2d(x, {1, 1, 1, 1})),
      TERN_CASE(torch::replication_pad2d(x, {1, 1, 1, 1})),
      TERN_CASE(torch::pad(x, {1, 1, 1, 1}, "circular")),
      TERN_CASE(x.select(1, 1)),
      TERN_CASE(x.index({torch::zeros({1}, torch::kLong)})),
      TERN_CASE(x.index_select(1, torch::zeros({1}, torch::kLong))),
      TERN_CASE(x.gather(1, (y > 0).to(torch::kLong))),
      TERN_CASE(x.scatter(1, (y > 0).to(torch::kLong), 1)),
      TERN_CASE(x.scatter(
          1,
          (y > 0).to(torch::kLong).slice(1, 0, 1),
          y.slice(1, 0, 1))),
      TERN_CASE(x.index_put({torch::zeros({1}, torch::kLong)}, y[0])),
      TERN_CASE(x.nonzero().sum()),
      TERN_CASE(torch::zeros_like(x) + torch::full_like(x, 1)),
      TERN_CASE(torch::grid_sampler(x, y.reshape({-1, 9, 6, 2}), 0, 0, false)),
      TERN_CASE(torch::mv(x[0][0], y[0][0][0])),
      TERN_CASE(torch::dot(x[0][0][0], y[0][0][0])),
      TERN_CASE(torch::outer(x[0][0][0], y[0][0][0])),
      TERN_CASE(torch::matmul(x, y)),
      TERN_CASE(torch::bmm(x[0], y[0])),
      TERN_CASE(torch::addmm(x[0][0], x[0][1], y[0][0], 2, 3)),
      TERN_CASE(torch::baddbmm(x[0], x[0], y[0])),
      TERN_CASE(torch::linear(x, y[0][0], y[0][0][0])),
      TERN_CASE(torch::einsum("abij,abjk->abik", {x, y})),
      TERN_CASE(torch::scaled_dot_product_attention(x, y, x, x > -100)),
      TERN_CASE(torch::layer_norm(x, {6})),
      TERN_CASE(torch::group_norm(x, 3)),
      TERN_CASE(torch::rms_norm(x, {6})),
      TERN_CASE(torch::batch_norm(x, {}, {}, {}, {}, true, 0, 1e-5, false)),
      TERN_CASE(torch::instance_norm(x, {}, {}, {}, {}, true, 0, 1e-5, false)),
      TERN_CASE(torch::conv2d(x, y.slice(0, 0, 1).slice(2, 0, 3))),
      TERN_CASE(torch::conv_transpose2d(x, y[0].unsqueeze(1))),
      TERN_CASE(torch::adaptive_avg_pool2d(x, {1, 1})),
      TERN_CASE(torch::max_pool2d(x, 2)),
      TERN_CASE(torch::avg_pool2d(x, 2)),
      TERN_CASE(torch::adaptive_avg_pool2d(x, {2, 2})),
      TERN_CASE(torch::adaptive_avg_pool2d(x, {4, 1})),
      TERN_CASE(std::get<0>(torch::adaptive_max_pool2d(x, {1, 1}))),
      TERN_CASE(std::get<0>(torch::adaptive_max_pool2d(x, {3, 3}))),
      TERN_CASE(torch::upsample_nearest2d(x, {9, 12})),
      TERN_CASE(torch::upsample_nearest2d(x, {12, 12})),
      TERN_CASE(torch::upsample_bilinear2d(x, {9, 12}, false)),
      TERN_CASE(torch::upsample_bicubic2d(x, {9, 12}, false)),
      TERN_CASE(torch::pixel_shuffle(x.repeat({1, 4, 1, 1}), 2)),
      TERN_CASE(torch::pixel_unshuffle(x, 2)),
      TERN_CASE(torch::channel_shuffle(x, 3)),
      TERN_CASE(torch::im2col(x, {2, 2}, {1, 1}, {0, 0}, {1, 1}))};
  return all;
}

#undef TERN_CASE

// Returns its input, whose samples differ, followed by the results of all
// operators.
struct CallsImpl : torch::nn::Module {
  CallsImpl(std::vector<Call> calls, torch::ScalarType type)
      : calls(std::move(calls)), type(type) {}
  Tensors forward(const Tensor& x) {
    const Tensor typed = type == torch::kBool ? x > 0 : (2 * x).to(type);
    const Tensor other = typed.roll(1, -1);
    Tensors all = {x};
    for (const Call call : calls) all.push_back(call(typed, other));
    return all;
  }
  std::vector<Call> calls;
  torch::ScalarType type;
};

class OnnxTypes : public testing::TestWithParam<torch::ScalarType> {};

TEST_P(OnnxTypes, GiveTheSameOutputsInOnnxRuntimeOrAreRejected) {
  const TempFolder temp;
  const char* const shared = std::getenv("TERN_ONNX_FOLDER");
  const fs::path folder = shared != nullptr ? fs::path(shared) : temp.path();
  make_folders(folder);
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  const torch::ScalarType type = GetParam();
  const Tensor x = torch::randn({4, 3, 6, 6});
  std::vector<Call> written;
  for (const auto& [name, call] : cases()) {
    SCOPED_TRACE(name);
    const auto alone =
        std::make_shared<CallsImpl>(std::vector<Call>{call}, type);
    try {
      alone->forward(x);
    } catch (const std::exception&) {
      continue;  // not supported by PyTorch either
    }
    try {
      export_onnx(alone, temp / "a.onnx", {x});
      written.push_back(call);
    } catch (const c10::ValueError& error) {
      const std::string why = error.what_without_backtrace();
      EXPECT_TRUE(why.starts_with("[export_onnx] aten::")) << why;
      EXPECT_NE(why.find("; expected "), std::string::npos) << why;
    }
  }
  EXPECT_GT(written.size(), 60u);
  write_onnx_case(
      folder,
      std::string("types_") + torch::toString(type),
      std::make_shared<CallsImpl>(written, type),
      {x});
}

INSTANTIATE_TEST_SUITE_P(
    All,
    OnnxTypes,
    testing::Values(
        torch::kFloat,
        torch::kDouble,
        torch::kLong,
        torch::kInt,
        torch::kShort,
        torch::kChar,
        torch::kByte,
        torch::kBool),
    [](const auto& info) { return torch::toString(info.param); });

}  // namespace
}  // namespace tern::onnx_types_test
