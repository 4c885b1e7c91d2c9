#include "tern/learner/export/onnx/interpreter/interpreter.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::interpreter_test {
namespace {

using torch::Tensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Computes the first output of an operator of %x0, %x1 and so on:
// "Softmax[axis=-1](%x0)".
Tensor computed(
    const std::string& call,
    const std::vector<Tensor>& inputs,
    const std::string& outputs = "%y") {
  std::string names;
  std::map<std::string, Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    names += (i == 0 ? "%" : ", %") + name;
    values[name] = inputs[i];
  }
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(
      "graph(" + names + "):\n  %none : NoneType = prim::Constant()\n" + "  " +
          outputs + " = onnx::" + call + "\n  return (%y)\n",
      graph.get());
  torch::jit::Node* const node = graph->outputs()[0]->node();
  for (const c10::Symbol name : node->attributeNames()) {
    // The parser's lists have a different type from the exporter's.
    if (node->kindOf(name) != torch::jit::AttributeKind::ival) continue;
    const std::vector<int64_t> list = node->ival(name).toIntVector();
    node->removeAttribute(name);
    node->is_(name, list);
  }
  return onnx::interpret(*graph, values)[0];
}

void expect_values(
    const std::string& call,
    const std::vector<Tensor>& inputs,
    const Tensor& expected) {
  const Tensor actual = computed(call, inputs);
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type()) << call;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << call;
  EXPECT_TRUE(torch::allclose(
      actual.to(torch::kDouble),
      expected.to(torch::kDouble),
      1e-5,
      1e-6,
      /*equal_nan=*/true))
      << call << "\n"
      << actual << "\n"
      << expected;
}

Tensor row(const std::vector<float>& numbers) {
  return torch::tensor(numbers);
}

Tensor places(const std::vector<int64_t>& numbers) {
  return torch::tensor(numbers);
}

// The expected numbers are the specification's examples or follow from its
// formulas by hand.
TEST(Interpreter, ShapesFollowOnnx) {
  const Tensor x = torch::arange(24, torch::kFloat).view({2, 3, 4});
  expect_values("Reshape(%x0, %x1)", {x, places({0, -1})}, x.view({2, 12}));
  expect_values(
      "Reshape(%x0, %x1)",
      {x, places({-1, 0, 2})},
      x.view({4, 3, 2}));
  expect_values("Flatten[axis=2](%x0)", {x}, x.view({6, 4}));
  expect_values(
      "Unsqueeze(%x0, %x1)",
      {x, places({-1, 0})},
      x.view({1, 2, 3, 4, 1}));
  expect_values("Transpose(%x0)", {x}, x.permute({2, 1, 0}));
  expect_values(
      "Expand(%x0, %x1)",
      {row({1, 2}), places({2, 1})},
      torch::stack({row({1, 2}), row({1, 2})}));
  expect_values("Shape[start=-2, end=-1](%x0)", {x}, places({3}));
  expect_values("Size(%x0)", {x}, torch::tensor(24));
  expect_error<c10::ValueError>(
      [&] {
        computed("Squeeze(%x0, %x1)", {x, places({1})});
      },
      {"Squeeze of [2, 3, 4] Float, [1] Long", "its dimension 1 has 3"});
}

TEST(Interpreter, SlicesFollowNumPy) {
  const Tensor x = torch::arange(5, torch::kFloat);
  const auto slice = [&](int64_t start, int64_t end, int64_t step) {
    return computed(
        "Slice(%x0, %x1, %x2, %x3, %x4)",
        {x, places({start}), places({end}), places({0}), places({step})});
  };
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(torch::equal(slice(1, kEnd, 2), row({1, 3})));
  EXPECT_TRUE(torch::equal(slice(-2, 100, 1), row({3, 4})));
  EXPECT_TRUE(torch::equal(slice(-100, 2, 1), row({0, 1})));
  EXPECT_TRUE(torch::equal(slice(-1, -kEnd, -2), row({4, 2, 0})));
  EXPECT_TRUE(torch::equal(slice(100, 1, -1), row({4, 3, 2})));
  EXPECT_EQ(slice(3, 1, 1).numel(), 0);
  EXPECT_EQ(slice(1, 3, -1).numel(), 0);
}

TEST(Interpreter, SoftmaxOfARowOfMinusInfinityIsNaN) {
  const Tensor x = torch::stack({row({0, 0}), row({-kInfinity, -kInfinity})});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_values(
      "Softmax[axis=1](%x0)",
      {x},
      torch::stack({row({0.5, 0.5}), row({nan, nan})}));
}

TEST(Interpreter, ResizeUsesTheCoordinatesOfOnnx) {
  const Tensor x = row({1, 2, 3, 4}).view({1, 1, 1, 4});
  const auto to = [&](const std::string& attributes, int64_t width) {
    return computed(
               "Resize[" + attributes + "](%x0, %none, %none, %x1)",
               {x, places({1, 1, 1, width})})
        .flatten();
  };
  const auto near = [](const Tensor& a, const std::vector<float>& b) {
    return torch::allclose(a, torch::tensor(b), 1e-4, 1e-4);
  };
  EXPECT_TRUE(near(
      to("mode=\"linear\"", 8),
      {1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4}));
  EXPECT_TRUE(near(
      to("mode=\"linear\", coordinate_transformation_mode=\"align_corners\"",
         7),
      {1, 1.5, 2, 2.5, 3, 3.5, 4}));
  EXPECT_TRUE(near(
      to("mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\", "
         "nearest_mode=\"floor\"",
         6),
      {1, 1, 2, 3, 3, 4}));
  // round_prefer_floor at the centers of pixels: 0.83 2.5 becomes 0 and 2.
  EXPECT_TRUE(near(to("mode=\"nearest\"", 2), {1, 3}));
  EXPECT_TRUE(near(to("mode=\"cubic\"", 2), {1.40625, 3.59375}));
}

TEST(Interpreter, PoolingAndPaddingEqualHandComputedValues) {
  const Tensor x = row({1, 2, 3, 4, 5}).view({1, 1, 5});
  const auto line = [](const std::vector<float>& numbers) {
    return row(numbers).view({1, 1, -1});
  };
  expect_values(
      "MaxPool[kernel_shape=[2], strides=[2], ceil_mode=1](%x0)",
      {x},
      line({2, 4, 5}));
  expect_values(
      "MaxPool[kernel_shape=[2], dilations=[3], pads=[1, 0]](%x0)",
      {x},
      line({3, 4, 5}));
  const std::string window = "kernel_shape=[3], strides=[2], pads=[1, 1]";
  expect_values("AveragePool[" + window + "](%x0)", {x}, line({1.5, 3, 4.5}));
  expect_values(
      "AveragePool[" + window + ", count_include_pad=1](%x0)",
      {x},
      line({1, 3, 3}));
  const auto pad = [&](const char* mode) {
    return std::string("Pad[mode=\"") + mode + "\"](%x0, %x1)";
  };
  const Tensor pads = places({0, 0, 2, 0, 0, 1});
  expect_values(pad("reflect"), {x, pads}, line({3, 2, 1, 2, 3, 4, 5, 4}));
  expect_values(pad("edge"), {x, pads}, line({1, 1, 1, 2, 3, 4, 5, 5}));
  expect_values(pad("constant"), {x, pads}, line({0, 0, 1, 2, 3, 4, 5, 0}));
  // For a 1 x 1 kernel with padding: each element occurs twice, and the pads
  // cut one at either end.
  expect_values(
      "ConvTranspose[strides=[2], pads=[1, 1], output_padding=[1]](%x0, %x1)",
      {x, torch::ones({1, 1, 2})},
      line({1, 2, 2, 3, 3, 4, 4, 5, 5}));
}

TEST(Interpreter, GatherAndScatterFollowOnnx) {
  const Tensor x = torch::arange(6, torch::kFloat).view({2, 3});
  expect_values(
      "Gather[axis=1](%x0, %x1)",
      {x, torch::tensor(-1)},
      row({2, 5}));
  expect_values(
      "GatherND(%x0, %x1)",
      {x, torch::tensor({{0, 1}, {1, -1}})},
      row({1, 5}));
  expect_values(
      "ScatterElements[axis=1, reduction=\"add\"](%x0, %x1, %x2)",
      {x, torch::tensor({{0}, {2}}), torch::ones({2, 1})},
      torch::tensor({{1.f, 1.f, 2.f}, {3.f, 4.f, 6.f}}));
  expect_values("NonZero(%x0)", {x > 3}, torch::tensor({{1, 1}, {1, 2}}));
  EXPECT_TRUE(torch::equal(
      computed(
          "TopK[largest=0](%x0, %x1)",
          {row({2, 1, 1, 3}), places({2})},
          "%numbers, %y"),
      places({1, 2})));
  expect_error<c10::ValueError>(
      [&] {
        computed("Gather(%x0, %x1)", {x, torch::tensor(2)});
      },
      {"Gather of [2, 3] Float, [] Long", "outside a dimension of 2"});
}

TEST(Interpreter, ArithmeticFollowsOnnx) {
  expect_values("Div(%x0, %x1)", {places({-7}), places({2})}, places({-3}));
  expect_values("Mod(%x0, %x1)", {places({-7}), places({2})}, places({1}));
  expect_values("Mod[fmod=1](%x0, %x1)", {row({-7}), row({2})}, row({-1}));
  expect_values("Round(%x0)", {row({0.5, 1.5, -2.5})}, row({0, 2, -2}));
  expect_values("HardSigmoid(%x0)", {row({-3, 0, 1})}, row({0, 0.5, 0.7}));
  expect_values(
      "CumSum[exclusive=1, reverse=1](%x0, %x1)",
      {row({1, 2, 3}), torch::tensor(0)},
      row({5, 3, 0}));
  expect_values(
      "ReduceSum[keepdims=0](%x0, %x1)",
      {torch::ones({2, 3}), places({-1})},
      row({3, 3}));
  expect_values("ReduceMean(%x0)", {torch::ones({2, 3})}, torch::ones({1, 1}));
  expect_values(
      "Clip(%x0, %none, %x1)",
      {row({1, 5}), torch::tensor(2.f)},
      row({1, 2}));
}

// One step by hand, of a single number with weights of 1 and no biases.
TEST(Interpreter, GatesAreInOnnxOrder) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Tensor x = torch::ones({1, 1, 1}), h = torch::full({1, 1, 1}, 0.5f);
  // The input has weights 1, 2, 3 and 4 in the gates; the state has none.
  const auto weights = [](int64_t gates) {
    return torch::arange(1, gates + 1, torch::kFloat).view({1, gates, 1});
  };
  const Tensor none = torch::zeros({1, 4, 1}), cell = torch::full_like(h, 0.25);
  const double c =
      sigmoid(3) * 0.25 + sigmoid(1) * std::tanh(4);  // forget, input, cell
  expect_values(
      "LSTM[hidden_size=1](%x0, %x1, %x2, %none, %none, %x3, %x4)",
      {x, weights(4), none, h, cell},
      torch::full({1, 1, 1, 1}, static_cast<float>(sigmoid(2) * std::tanh(c))));
  const double z = sigmoid(1), r = sigmoid(2);
  const Tensor only_new = torch::tensor({0.f, 0.f, 2.f}).view({1, 3, 1});
  const Tensor biases = torch::tensor({0.f, 0.f, 0.f, 0.f, 0.f, 1.f});
  for (const int is_after : {0, 1}) {
    // The reset gate applies to the state's bias of 1, or does not.
    const double state = is_after ? r * (2 * 0.5 + 1) : 2 * (r * 0.5) + 1;
    const double y = (1 - z) * std::tanh(3 + state) + z * 0.5;
    expect_values(
        "GRU[hidden_size=1, linear_before_reset=" + std::to_string(is_after) +
            "](%x0, %x1, %x2, %x3, %none, %x4)",
        {x, weights(3), only_new, biases.view({1, 6}), h},
        torch::full({1, 1, 1, 1}, static_cast<float>(y)));
  }
}

// The specification's examples: boxes 3, 0 and 5 of one class remain; the
// others overlap a better box.
class NonMaxSuppression : public testing::Test {
 protected:
  Tensor selected(
      const std::vector<Tensor>& boxes_and_scores,
      int64_t most,
      float iou,
      float score,
      const std::string& attributes = "") {
    std::vector<Tensor> inputs = boxes_and_scores;
    inputs.push_back(places({most}));
    inputs.push_back(row({iou}));
    inputs.push_back(row({score}));
    return computed(
        "NonMaxSuppression" + attributes + "(%x0, %x1, %x2, %x3, %x4)",
        inputs);
  }

  static Tensor triples(const std::vector<int64_t>& numbers) {
    return torch::tensor(numbers, torch::kLong).view({-1, 3});
  }

  const Tensor boxes_ = row({0, 0,  1, 1,  0, 0.1,  1, 1.1,  0, -0.1, 1, 0.9,
                             0, 10, 1, 11, 0, 10.1, 1, 11.1, 0, 100,  1, 101})
                            .view({1, 6, 4});
  const Tensor scores_ = row({0.9, 0.75, 0.6, 0.95, 0.5, 0.3}).view({1, 1, 6});
};

TEST_F(NonMaxSuppression, KeepsTheBestOfOverlappingBoxes) {
  const std::vector<Tensor> given = {boxes_, scores_};
  const Tensor all = triples({0, 0, 3, 0, 0, 0, 0, 0, 5});
  EXPECT_TRUE(selected(given, 3, 0.5, 0).equal(all));
  EXPECT_TRUE(selected(given, 9, 0.5, 0).equal(all));
  EXPECT_TRUE(selected(given, 2, 0.5, 0).equal(all.slice(0, 0, 2)));
  EXPECT_TRUE(selected(given, 3, 0.5, 0.4).equal(all.slice(0, 0, 2)));
  // Only larger scores pass the score threshold.
  EXPECT_TRUE(selected(given, 3, 0.5, 0.95).equal(triples({})));
  // Neighbors have an IoU of 0.9 / 1.1 = 0.818.
  EXPECT_EQ(selected(given, 9, 0.82, 0).size(0), 6);
  EXPECT_EQ(selected(given, 9, 0.81, 0).size(0), 3);
}

TEST_F(NonMaxSuppression, AcceptsCornersInAnyOrderAndCenters) {
  const Tensor all = triples({0, 0, 3, 0, 0, 0, 0, 0, 5});
  const Tensor flipped = boxes_.index_select(2, torch::tensor({2, 3, 0, 1}));
  EXPECT_TRUE(selected({flipped, scores_}, 3, 0.5, 0).equal(all));
  const Tensor centers = torch::cat(
      {(boxes_.slice(2, 0, 2) + boxes_.slice(2, 2)) / 2,
       boxes_.slice(2, 2) - boxes_.slice(2, 0, 2)},
      2);
  EXPECT_TRUE(selected({centers, scores_}, 9, 0.81, 0, "[center_point_box=1]")
                  .equal(all));
  EXPECT_FALSE(selected({centers, scores_}, 9, 0.81, 0).equal(all));
}

TEST_F(NonMaxSuppression, ClassesAndImagesAreIndependent) {
  EXPECT_TRUE(
      selected({boxes_, torch::cat({scores_, scores_.flip(2)}, 1)}, 2, 0.5, 0)
          .equal(triples({0, 0, 3, 0, 0, 0, 0, 1, 2, 0, 1, 5})));
  EXPECT_TRUE(
      selected(
          {torch::cat({boxes_, boxes_}), torch::cat({scores_, scores_})},
          2,
          0.5,
          0)
          .equal(triples({0, 0, 3, 0, 0, 0, 1, 0, 3, 1, 0, 0})));
}

TEST_F(NonMaxSuppression, OfEqualScoresTheFirstWins) {
  EXPECT_TRUE(selected({boxes_, torch::ones({1, 1, 6})}, 9, 0.5, 0)
                  .equal(triples({0, 0, 0, 0, 0, 3, 0, 0, 5})));
}

TEST_F(NonMaxSuppression, ReturnsNoBoxesWithoutALimitOnTheirNumber) {
  EXPECT_EQ(
      computed("NonMaxSuppression(%x0, %x1)", {boxes_, scores_}).size(0),
      0);
  expect_error<c10::ValueError>(
      [&] {
        selected({boxes_, scores_}, 3, 1.5, 0);
      },
      {"iou_threshold is 1.5"});
  expect_error<c10::ValueError>(
      [&] {
        selected({boxes_, scores_.slice(2, 1)}, 3, 0.5, 0);
      },
      {"expected [N, K, 4] and [N, C, K]"});
}

TEST(Interpreter, RejectsWhatOnnxRuntimeRejects) {
  const Tensor x = row({1, 2}), whole = places({1, 2}), is = x > 1;
  const auto refuses = [](const std::string& call,
                          const std::vector<Tensor>& inputs,
                          const char* words) {
    expect_error<c10::ValueError>([&] { computed(call, inputs); }, {words});
  };
  refuses("Add(%x0, %x1)", {x, whole}, "Float and Long; expected operands of");
  refuses("Add(%x0, %x1)", {is, is}, "Bool; expected numbers");
  refuses("Concat[axis=0](%x0, %x1)", {x, whole}, "operands of the same type");
  refuses("Where(%x0, %x1, %x2)", {is, x, whole}, "Float and Long");
  refuses("Where(%x0, %x1, %x1)", {x, x}, "Float; expected booleans");
  refuses("Sqrt(%x0)", {whole}, "Long; expected floating-point numbers");
  refuses("Gather(%x0, %x1)", {x, x}, "Float; expected integers");
  refuses("And(%x0, %x1)", {whole, whole}, "Long; expected booleans");
  refuses("Clip(%x0, %x1)", {x, torch::tensor(1)}, "a limit has");
  refuses("MatMul(%x0, %x1)", {x, x.to(torch::kDouble)}, "Float and Double");
  refuses(
      "MaxPool[kernel_shape=[2], dilations=[2], pads=[0, 2]](%x0)",
      {row({1, 2, 3}).view({1, 1, 3})},
      "padding is 0 and 2 for a kernel of 2");
}

TEST(Interpreter, AnUnsupportedOperatorIsAnError) {
  EXPECT_THROW(computed("Nothing(%x0)", {row({1})}), c10::Error);
}

// Ensures that the check of exports covers each new operator.
TEST(Interpreter, SupportsEveryOperatorOfTheExporter) {
  const std::set<std::string> others = {"CRD", "DCR", "ONNX", "TF32"};
  const std::filesystem::path folder =
      in_tests_folder("../learner/export/onnx");
  const std::regex word("\"([A-Z][A-Za-z0-9]+)\"");
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".cpp") continue;
    const std::vector<uint8_t> bytes = read_file(file.path());
    const std::string text(bytes.begin(), bytes.end());
    for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end;
         ++i) {
      const std::string name = (*i)[1];
      if (others.contains(name)) continue;
      EXPECT_TRUE(onnx::interpreted_operators().contains(name))
          << name << " in " << file.path();
      ++count;
    }
  }
  EXPECT_GT(count, 50u);
}

}  // namespace
}  // namespace tern::interpreter_test
