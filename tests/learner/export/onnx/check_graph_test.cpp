#include "tern/learner/export/onnx/check_graph.h"

#include <functional>
#include <limits>
#include <memory>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/learner/export/onnx/make_graph.h"
#include "tern/learner/export/onnx/translate.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::check_graph_test {
namespace {

using torch::Tensor;

struct CallImpl : torch::nn::Module {
  explicit CallImpl(std::function<Tensor(const Tensor&)> function)
      : call(std::move(function)) {}
  Tensor forward(const Tensor& x) { return call(x); }
  std::function<Tensor(const Tensor&)> call;
};

Model calling(std::function<Tensor(const Tensor&)> function) {
  return std::make_shared<CallImpl>(std::move(function));
}

// Compares the graph of `written` with the model `checked`.
void check_as(const Model& written, const Model& checked) {
  const torch::NoGradGuard no_grad;
  Model model = written, other = checked;
  const Tensors x = {torch::arange(1, 9).view({2, 4}).to(torch::kFloat)};
  onnx::OnnxGraph graph(
      nullptr,
      /*half=*/false,
      /*decompose_layer_norm=*/false);
  onnx::translate(*frozen_graph(trace(model, x)), {"input"}, {"scores"}, graph);
  onnx::check_graph(
      graph,
      {"scores"},
      {x},
      [&](const Tensors& given) { return other.forward(given); },
      1e-4);
}

void expect_told(
    const Model& written,
    const Model& checked,
    std::initializer_list<std::string_view> words) {
  expect_error<c10::ValueError>([&] { check_as(written, checked); }, words);
}

TEST(CheckGraph, RejectsTheGraphOfADifferentModel) {
  const Model twice = calling([](const Tensor& x) { return 2 * x; });
  EXPECT_NO_THROW(check_as(twice, twice));
  EXPECT_NO_THROW(
      check_as(twice, calling([](const Tensor& x) { return 2.00001 * x; })));
  expect_told(
      twice,
      calling([](const Tensor& x) { return 2.01 * x; }),
      {"[export_onnx]",
       "the output \"scores\"",
       "8 of 8 numbers of the output",
       "off by up to 0.005 of the largest one",
       "inputs of [2, 4] Float",
       "expected at most 0.0001",
       "counts its calls"});
  expect_told(
      twice,
      calling([](const Tensor& x) { return 2 * x.flatten(); }),
      {"would be [2, 4] Float", "expected [8] Float"});
  expect_told(
      twice,
      calling([](const Tensor& x) { return 2 * x.to(torch::kDouble); }),
      {"would be [2, 4] Float", "expected [2, 4] Double"});
}

TEST(CheckGraph, FindsASingleWrongNumber) {
  const auto with = [](float number) {
    return calling([number](const Tensor& x) {
      return torch::cat({x.flatten().slice(0, 1), torch::full({1}, number)});
    });
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float number : {1.f, infinity, -infinity, nan}) {
    EXPECT_NO_THROW(check_as(with(number), with(number)));
    expect_told(with(number), with(0.5), {"off by"});
    expect_told(with(0.5), with(number), {"off by"});
  }
  expect_told(with(infinity), with(-infinity), {"off by up to inf"});
}

TEST(CheckGraph, FindsADifferentIndex) {
  const Model last = calling([](const Tensor& x) { return x.argmax(1); });
  EXPECT_NO_THROW(check_as(last, last));
  expect_told(
      last,
      calling([](const Tensor& x) { return (-x).argmax(1); }),
      {"off by"});
}

// The floor of a whole number depends on rounding; the floor of x + 0.5 does
// not.
TEST(CheckGraph, AllowsDifferencesDueToRounding) {
  const Model below =
      calling([](const Tensor& x) { return (x * (1 - 1e-7)).floor(); });
  const Model floor = calling([](const Tensor& x) { return x.floor(); });
  EXPECT_NO_THROW(check_as(floor, below));
  expect_told(
      calling([](const Tensor& x) { return (x + 0.5).floor(); }),
      calling([](const Tensor& x) { return (x + 1.5).floor(); }),
      {"off by"});
}

struct TwiceAndFloorImpl : torch::nn::Module {
  Tensors forward(const Tensor& x) { return {2 * x, (2 * x).floor()}; }
};

// The last outputs are compared with values computed from the graph's first
// outputs. Rounding in those then does not count, but differences after them
// do.
TEST(CheckGraph, ComparesTheLastOutputsForTheGraphsOwnFirstOutputs) {
  const torch::NoGradGuard no_grad;
  Model model = std::make_shared<TwiceAndFloorImpl>();
  const Tensors x = {torch::arange(1, 9).view({2, 4}).to(torch::kFloat)};
  onnx::OnnxGraph graph(
      nullptr,
      /*half=*/false,
      /*decompose_layer_norm=*/false);
  const std::vector<std::string> names = {"twice", "floor"};
  onnx::translate(*frozen_graph(trace(model, x)), {"input"}, names, graph);
  const auto check = [&](double factor, double more) {
    onnx::check_graph(
        graph,
        names,
        {x},
        [&](const Tensors& given) -> Tensors { return {factor * given[0]}; },
        1e-4,
        [&](const Tensors& twice) -> Tensors {
          EXPECT_EQ(twice.size(), 1u);
          return {twice[0].floor() + more};
        });
  };
  EXPECT_NO_THROW(check(1.999999, 0));  // every floor differs
  expect_error<c10::ValueError>(
      [&] { check(2, 1); },
      {"8 of 8 numbers of the output \"floor\""});
  expect_error<c10::ValueError>(
      [&] { check(2.01, 0); },
      {"8 of 8 numbers of the output \"twice\""});
}

// The graph draws no random numbers, so only the model's outputs differ between
// calls.
TEST(CheckGraph, RejectsARandomModel) {
  expect_told(
      calling([](const Tensor& x) { return x + 0.5; }),
      calling([](const Tensor& x) { return x + torch::rand_like(x); }),
      {"8 of 8 numbers", "random"});
}

TEST(CheckGraph, ReportsWhyAModelFails) {
  const Model model = calling([](const Tensor& x) { return 2 * x; });
  expect_told(
      model,
      calling([](const Tensor& x) {
        return x.view({3, 5});
      }),
      {"could be traced, but then failed for inputs of [2, 4] Float",
       "shape '[3, 5]' is invalid"});
}

//
// ---- Cases in which two traces agree ----

class ExportChecks : public testing::Test {
 protected:
  void refuses(
      const Model& model,
      std::initializer_list<std::string_view> words,
      const OnnxOptions& options = {.dynamic_size = true}) {
    expect_error<c10::ValueError>(
        [&] { export_onnx(model, temp_ / "a.onnx", {x_}, options); },
        words);
    EXPECT_EQ(temp_.entries(), 0);
  }

  TempFolder temp_;
  Tensor x_ = torch::rand({2, 3, 4, 5});
};

TEST_F(ExportChecks, ABatchNumberThatTwoSizesShareIsRejected) {
  // Traced with batches of 5 and 7.
  refuses(
      calling([](const Tensor& x) { return x * (x.size(0) % 2 + 1); }),
      {"off by", "inputs of [2, 3, 13, 11] Float"});
  refuses(
      calling(
          [](const Tensor& x) { return x.size(0) == 1 ? x.relu() - 1 : x; }),
      {"inputs of [1, 3, 4, 5] Float"});
}

TEST_F(ExportChecks, APathForOneImageSizeIsRejected) {
  // Traced with heights of 4 and 9.
  refuses(
      calling([](const Tensor& x) { return x.size(2) > 9 ? x * 2 : x * 1; }),
      {"off by up to 0.5", "inputs of [2, 3, 13, 11] Float"});
}

// For an odd height, twice the halved height differs from the height.
TEST_F(ExportChecks, ADoubledHalfIsNotMistakenForTheSize) {
  const torch::NoGradGuard no_grad;
  const Tensor odd = torch::rand({1, 3, 11, 7});
  for (Model model :
       {calling([](const Tensor& x) {
          const Tensor y = torch::avg_pool2d(x, 2);
          return torch::upsample_nearest2d(y, {2 * y.size(2), y.size(3)});
        }),
        calling([](const Tensor& x) {
          const Tensor y = torch::avg_pool2d(x, 2);
          return torch::upsample_nearest2d(y, {x.size(2), y.size(3)});
        })}) {
    const onnx::TracedGraph traced =
        onnx::make_graph(model, {x_}, {.dynamic_size = true});
    const Tensor actual = traced.graph->compute({odd})[0];
    const Tensor expected = model.forward({odd})[0];
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_TRUE(torch::allclose(actual, expected));
  }
}

// The sizes of the eighths are 1 and 2 in the traces, and 1 and 5 here.
TEST_F(ExportChecks, ATensorLikeAnotherTakesItsSize) {
  const torch::NoGradGuard no_grad;
  Model model = calling([](const Tensor& x) {
    const Tensor rows = x.slice(2, 0, x.size(2), 8);
    const Tensor row = rows.slice(3, 0, x.size(3), 8).select(2, 0);
    return torch::ones_like(row).sum(2);
  });
  const onnx::TracedGraph traced =
      onnx::make_graph(model, {x_}, {.dynamic_size = true});
  const Tensor wide = torch::rand({1, 3, 4, 40});
  EXPECT_TRUE(traced.graph->compute({wide})[0].equal(torch::full({1, 3}, 5.F)));
}

// 5 x 4 and 7 x 9 are not multiples of a single size.
TEST_F(ExportChecks, AProductOfTwoSizesIsComputed) {
  const Model model = calling([](const Tensor& x) {
    const int64_t n = x.size(0), h = x.size(2), w = x.size(3);
    return x.permute({0, 2, 3, 1})
        .reshape({n * h, w, 3})
        .mean(1)
        .view({n, h, 3});
  });
  EXPECT_NO_THROW(
      export_onnx(model, temp_ / "a.onnx", {x_}, {.dynamic_size = true}));
}

// ONNX Runtime would accept odd sizes too, but compute different values.
TEST_F(ExportChecks, ADifferentPathForOddSizesIsRejected) {
  refuses(
      calling([](const Tensor& x) {
        const Tensor even =
            torch::constant_pad_nd(x, {0, x.size(3) % 2, 0, x.size(2) % 2});
        return x.size(2) % 2 == 0 ? even.relu() : even.sigmoid();
      }),
      {"differs for a batch or image of a different size",
       ".dynamic_size = false"});
}

TEST_F(ExportChecks, ANetworkForEvenSizesOnlyIsExported) {
  const Model model = calling([](const Tensor& x) {
    TORCH_CHECK_VALUE(x.size(2) % 4 == 0, "multiples of four");
    return x + torch::upsample_nearest2d(
                   torch::avg_pool2d(x, {2, 1}),
                   {x.size(2), x.size(3)});
  });
  EXPECT_NO_THROW(
      export_onnx(model, temp_ / "a.onnx", {x_}, {.dynamic_size = true}));
}

TEST_F(ExportChecks, AModelThatCountsItsCallsIsRejected) {
  const auto calls = std::make_shared<int>(0);
  refuses(
      calling([=](const Tensor& x) { return ++*calls > 2 ? x * 2 : x * 1; }),
      {"off by", "counts its calls"},
      OnnxOptions());
}

TEST_F(ExportChecks, MixedUpSamplesAreFound) {
  refuses(
      calling([](const Tensor& x) {
        return x + (x.size(0) == 2 ? x.slice(0, 0, 1) : x.slice(0, -1));
      }),
      {"off by"});
}

TEST_F(ExportChecks, ByteInputsAreComparedToo) {
  refuses(
      calling([](const Tensor& x) { return x * (x.size(0) % 2 + 1); }),
      {"inputs of [2, 4, 5, 3] Byte"},
      {.preprocessing = ImagePreprocessing()});
}

TEST_F(ExportChecks, ExamplesOfZerosAreVariedForTheComparison) {
  x_.zero_();
  refuses(
      calling([](const Tensor& x) { return x * (x.size(0) % 2 + 1); }),
      {"off by"});
}

TEST_F(ExportChecks, SizesThatTheModelRejectsAreSkipped) {
  const Model model = calling([](const Tensor& x) {
    TORCH_CHECK_VALUE(x.size(0) == 5 || x.size(0) == 7, "five or seven");
    return 2 * x;
  });
  EXPECT_NO_THROW(export_onnx(model, temp_ / "a.onnx", {x_}));
  EXPECT_EQ(temp_.entries(), 1);
}

TEST_F(ExportChecks, TheTracedSizeIsComparedIfTheModelAcceptsNoOther) {
  // Tracing makes the first two calls.
  const auto left = std::make_shared<int>(2);
  const Model model = calling([=](const Tensor& x) {
    TORCH_CHECK_VALUE(x.size(0) == 5 || x.size(0) == 7, "five or seven");
    return --*left < 0 ? x * 2 : x * 1;
  });
  refuses(model, {"off by", "inputs of [7, 3, 4, 5] Float"}, OnnxOptions());
  *left = 2;
  x_ = torch::rand({5, 3, 4, 5});
  const OnnxOptions fixed = {.dynamic_batch = false};
  refuses(model, {"off by", "inputs of [5, 3, 4, 5] Float"}, fixed);
}

TEST_F(ExportChecks, SixteenBitModelsAreComparedAtTheirPrecision) {
  torch::nn::Linear layer(5, 4);
  layer->to(torch::kBFloat16);
  const Tensors x = {torch::rand({2, 5}, torch::kBFloat16)};
  EXPECT_NO_THROW(export_onnx(Model(layer), temp_ / "a.onnx", x));
}

TEST_F(ExportChecks, TheCheckDrawsNoRandomNumbers) {
  torch::manual_seed(3);
  const Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  export_onnx(
      calling([](const Tensor& x) {
        torch::rand({8});
        return 2 * x;
      }),
      temp_ / "a.onnx",
      {x_.zero_()});
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

}  // namespace
}  // namespace tern::check_graph_test
