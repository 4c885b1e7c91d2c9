// Each operator of the exporter in ONNX Runtime, which check_onnx.py calls.
#include "tern/learner/export/onnx/operators.h"

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

using testing_support::stir;
using testing_support::write_onnx_case;
using torch::Tensor;
namespace fs = std::filesystem;
namespace nn = torch::nn;

/// A module of one function of [N, 3, 7, 7].
struct CallImpl : nn::Module {
  explicit CallImpl(Tensors (*function)(const Tensor&)) : call(function) {}
  Tensors forward(const Tensor& x) { return call(x); }
  Tensors (*call)(const Tensor&);
};

Tensors numbers(const Tensor& x) {
  const Tensor above = x.abs() + 0.5;
  return {
      x.erf() + above.exp().log() - x.neg().relu(),
      x.sigmoid() + above.sqrt() + x.tanh() + torch::hardswish(x),
      torch::hardsigmoid(x) + torch::leaky_relu(x, 0.2) + torch::elu(x, 0.7),
      torch::silu(x) + x.softmax(-1) + torch::gelu(x) + torch::mish(x),
      x.log_softmax(1),
      x.clamp(-1, 1) + x.clamp_min(0.2) + torch::hardtanh(x, -0.5, 0.4),
      x.cos() + x.sin(),
      x.floor() + 2 * x.ceil(),
      (4 * x).round() + x.sign(),
      (1 - x * x) / above + above.pow(1.5) - x.sub(2),
      torch::maximum(x, torch::minimum(x.sin(), x.cos())),
      x.sign().eq(1).to(torch::kFloat) + x.sign().ne(-1).type_as(x),
      torch::where(x > 0.5, x, x * 0.5) + x.lt(0.1).to(torch::kFloat),
      (x >= 1).to(torch::kDouble),
      (x <= 1).to(torch::kLong),
      x.masked_fill(x > 0.5, 2)};
}

// PyTorch casts arguments to the type of the result, ONNX does not.
Tensors types(const Tensor& x) {
  const Tensor whole = (4 * x).round().to(torch::kLong);
  const Tensor exact = x.to(torch::kDouble);
  return {
      whole.abs().sqrt() + whole.exp().tanh(),
      x.softmax(-1, torch::kDouble),
      x.log_softmax(1, torch::kDouble),
      torch::scaled_dot_product_attention(exact, exact, exact),
      whole.clamp(-1.5, 2),
      whole / 3 + x};
}

Tensors reductions(const Tensor& x) {
  const Tensor whole = (4 * x).round().to(torch::kLong);
  return {
      x.sum({1, -1}),
      x.sum(),
      x.sum(torch::kDouble),
      x.sum({1}, true, torch::kDouble),
      whole.sum(),
      x.mean(),
      x.mean({1, 2}, true),
      x.mean(at::OptionalIntArrayRef(), true),
      x.amax(),
      x.amax({2, 3}),
      x.amin({1}, true),
      x.amin({}, true),
      x.argmax(1, true),
      std::get<0>(x.topk(3, -1)),
      std::get<1>(x.topk(2, 2, /*largest=*/false))};
}

Tensors shapes(const Tensor& x) {
  const Tensor flat = x.flatten(1);
  const Tensor lines = torch::pixel_shuffle(torch::cat({x, x, x, x}, 1), 2);
  const auto parts = x.split(2, 1);
  const auto some = x.split_with_sizes({1, 2}, 1);
  return {
      x.slice(1, -2) * 2,
      x.slice(1, -100) + 1,
      x.slice(-1, 1, 100, 2).narrow(2, -5, 4),
      torch::cat({parts[1], some[0], x.chunk(3, 1)[2]}, 1),
      x.roll({1, -2}, {-1, 2}),
      torch::constant_pad_nd(x, {1, 2, 0, 1}, 0.5),
      torch::reflection_pad2d(x, {1, 2, 3, 0}),
      torch::replication_pad2d(x, {0, 1, 0, 2}),
      x.unfold(-1, 3, 2),
      x.view({-1, 21, 7}).reshape({x.size(0), -1}).view_as(flat),
      flat.unflatten(1, {7, 21}).mT().unsqueeze(1).squeeze(1),
      flat.slice(1, 0, 1).expand({-1, 5}),
      flat.slice(1, 0, 1).expand_as(flat),
      flat.t().transpose(0, 1),
      x.permute({0, -1, 1, 2}).contiguous().select(1, -1),
      at::alias(x).detach().clone() + torch::zeros_like(x),
      torch::ones_like(x) * flat.new_ones({3, 1, 7}),
      x + torch::empty_like(x).fill_(0.25),
      x + x.new_zeros({7}),
      lines,
      torch::feature_dropout(torch::dropout(x, 0.5, false), 0.5, false) + 1};
}

/// Of other numbers than those that are given.
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
        (x > 0).nonzero()};
  }
  Tensor row = register_buffer("row", torch::tensor({0, 0}));
  Tensor channel = register_buffer("channel", torch::tensor({-1, 1}));
  Tensor words = register_parameter("words", torch::randn({5, 2}));
};

struct LayersImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor y = norm(up(x));
    const Tensor lines = x.flatten(2), flat = x.flatten(1);
    const auto [many, last] = lstm->forward(lines);
    return {
        y,
        layer_norm(dot(lines)),
        std::get<0>(gru->forward(many)) + std::get<0>(last)[0].unsqueeze(1),
        torch::linear(lines, weight, bias),
        torch::addmm(bias, flat.narrow(1, 0, 49), weight.t()),
        torch::mm(flat.narrow(1, 0, 49), weight.t()),
        torch::bmm(lines, lines.mT()) + torch::matmul(lines, lines.mT()),
        torch::max_pool1d(lines, 3) + torch::avg_pool1d(lines, 3),
        torch::max_pool2d(y, 3, 2, 1, 1, /*ceil_mode=*/true),
        torch::avg_pool2d(y, 3, 2, 1),
        torch::avg_pool2d(y, 3, 2, 0, /*ceil_mode=*/true),
        torch::adaptive_avg_pool1d(lines, 1).squeeze(-1),
        torch::adaptive_avg_pool2d(x, {1, 1}) +
            std::get<0>(torch::adaptive_max_pool2d(x, {1, 1})),
        torch::scaled_dot_product_attention(y, y, y, y >= y.mean({-1}, true)),
        torch::upsample_bilinear2d(
            x,
            std::nullopt,
            /*align_corners=*/true,
            std::vector<double>{2, 2}),
        torch::upsample_nearest2d(x, std::nullopt, std::vector<double>{2, 3}),
        torch::upsample_bilinear2d(x, {9, 11}, false),
        torch::upsample_bicubic2d(x, {9, 11}, false)};
  }
  nn::ConvTranspose2d up = register_module(
      "up",
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 3)
                              .stride(2)
                              .padding(1)
                              .output_padding(1)));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(4));
  nn::Conv1d dot = register_module("dot", nn::Conv1d(3, 4, 2));
  nn::LayerNorm layer_norm =
      register_module("layer_norm", nn::LayerNorm(nn::LayerNormOptions({48})));
  nn::LSTM lstm = register_module(
      "lstm",
      nn::LSTM(nn::LSTMOptions(49, 4).batch_first(true)));
  nn::GRU gru =
      register_module("gru", nn::GRU(nn::GRUOptions(4, 4).batch_first(true)));
  Tensor weight = register_parameter("weight", torch::randn({6, 49}));
  Tensor bias = register_parameter("bias", torch::randn({6}));
};

std::vector<std::pair<const char*, Model>> modules() {
  return {
      {"numbers", std::make_shared<CallImpl>(numbers)},
      {"reductions", std::make_shared<CallImpl>(reductions)},
      {"shapes", std::make_shared<CallImpl>(shapes)},
      {"places", std::make_shared<PlacesImpl>()},
      {"layers", std::make_shared<LayersImpl>()},
      {"types", std::make_shared<CallImpl>(types)}};
}

TEST(OnnxOperators, GiveTheSameInOnnxRuntime) {
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

// So that a new operator is compared too.
TEST(OnnxOperators, AreAllInTheTestAbove) {
  const torch::NoGradGuard no_grad;
  std::set<std::string> used;
  for (auto& [name, model] : modules()) {
    model.eval();
    const auto graph =
        frozen_graph(trace(model, {torch::randn({2, 3, 7, 7})}, {}));
    for (const torch::jit::Node* node : graph->nodes()) {
      const std::string kind = node->kind().toQualString();
      used.insert(kind.substr(0, kind.find_last_not_of('_') + 1));
    }
  }
  for (const auto& [name, function] : onnx::operators()) {
    EXPECT_TRUE(used.contains(name)) << name;
  }
  EXPECT_GT(onnx::operators().size(), 100u);
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

TEST(OnnxOperators, RefuseArgumentsThatTheyDoNotKnow) {
  const auto refuses = [](Tensors (*function)(const Tensor&),
                          std::initializer_list<std::string_view> words) {
    const Model model(std::make_shared<CallImpl>(function));
    expect_refused(model, torch::randn({2, 3, 6, 6}), words);
  };
  using X = const Tensor&;
  refuses(
      [](X x) -> Tensors { return {torch::gelu(x, "tanh")}; },
      {"aten::gelu", "argument approximate is tanh; expected none"});
  refuses(
      [](X x) -> Tensors { return {torch::add(x, x, 2)}; },
      {"aten::add", "argument alpha is 2; expected 1"});
  refuses(
      [](X x) -> Tensors { return {x.clamp(x - 1)}; },
      {"aten::clamp", "its min is a tensor; expected a number"});
  refuses(
      [](X x) -> Tensors { return {x.roll(1)}; },
      {"aten::roll", "no dims"});
  refuses(
      [](X x) -> Tensors { return {x.argmax()}; },
      {"aten::argmax", "it has no dim; expected one"});
  refuses(
      [](X x) -> Tensors { return {x.unfold(1, 2, 1)}; },
      {"aten::unfold", "another dimension"});
  refuses(
      [](X x) -> Tensors {
        return {torch::adaptive_avg_pool2d(x, {2, 2})};
      },
      {"aten::adaptive_avg_pool2d", "output_size is [2, 2]; expected 1"});
  refuses(
      [](X x) -> Tensors {
        return {std::get<0>(torch::adaptive_max_pool2d(x, {3, 2}))};
      },
      {"aten::adaptive_max_pool2d", "output_size is [3, 2]; expected 1"});
  for (const auto& function :
       {+[](X x) -> Tensors { return {x.index({x > 0})}; },
        +[](X x) -> Tensors {
          return {x.index(
              {torch::indexing::Slice(), x[0][0][0].slice(0, 0, 3).argsort()})};
        }}) {
    refuses(function, {"aten::", "in the model itself"});
  }
  refuses(
      [](X x) -> Tensors {
        const Tensor top = std::get<1>(x.topk(2, -1));
        return {torch::zeros_like(x).scatter(3, top, x)};
      },
      {"aten::scatter", "src is cut to index"});
  refuses(
      [](X x) -> Tensors {
        const Tensor top = std::get<1>(x.topk(2, -1));
        return {x.scatter(3, top, x.slice(3, 0, 2), "add")};
      },
      {"aten::scatter", "argument reduce is add"});
  refuses(
      [](X x) -> Tensors { return {torch::real(x.to(torch::kComplexFloat))}; },
      {"aten::to", "no numbers of its type, ComplexFloat"});
  refuses(
      [](X x) -> Tensors {
        return {torch::addmm(x[0][0], x[0][1], x[0][2], 2)};
      },
      {"aten::addmm", "argument beta is 2; expected 1"});
  refuses(
      [](X x) -> Tensors {
        return {torch::addmm(x[0][0], x[0][1], x[0][2], 1, 0.5)};
      },
      {"aten::addmm", "argument alpha is 0.5; expected 1"});
  expect_refused(
      std::make_shared<CallImpl>([](X x) -> Tensors { return {x}; }),
      torch::zeros({2, 3}, torch::kComplexFloat),
      {"an input in the model itself", "ComplexFloat"});
}

struct LstmImpl : nn::Module {
  explicit LstmImpl(const nn::LSTMOptions& options)
      : lstm(register_module("lstm", nn::LSTM(options))) {}
  Tensor forward(const Tensor& x) { return std::get<0>(lstm->forward(x)); }
  nn::LSTM lstm;
};

TEST(OnnxOperators, RefuseAnLstmOfOtherWeights) {
  for (const auto& options :
       {nn::LSTMOptions(4, 3).bias(false),
        nn::LSTMOptions(4, 3).proj_size(2)}) {
    expect_refused(
        std::make_shared<LstmImpl>(options),
        torch::randn({2, 5, 4}),
        {"aten::lstm", "proj_size or no biases"});
  }
}

}  // namespace
}  // namespace tern::onnx_operators_test
