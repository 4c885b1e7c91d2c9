// The models that Predictor runs on a CPU, for each family of networks.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/fused_model.h"
#include "tern/learner/inference/nonfinite_values.h"
#include "tern/learner/inference/trace.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/vision/small_classifiers.h"
#include "tern/vision/models/dynamic_unet.h"

namespace tern::fused_models_test {
namespace {

using testing_support::classifiers;
using testing_support::prepare;
using testing_support::SmallNet;

/// Expects the model's outputs for one sample and for other batch sizes, with
/// oneDNN's operator for each convolution.
void expect_fused(Model model, const torch::Tensor& x) {
  prepare(model, {x});
  const torch::NoGradGuard no_grad;
  Model fused = fused_model(model);
  for (const int64_t size : {1, 4, 3, 1}) {
    const Tensors batch = {x.narrow(0, 0, size)};
    const torch::Tensor first = fused.forward(batch)[0];
    const test::OpCalls plain("aten::_convolution");
    const torch::Tensor second = fused.forward(batch)[0];
    EXPECT_EQ(plain.count(), 0) << size;
    const torch::Tensor expected = model.forward(batch)[0];
    EXPECT_GT(plain.count(), 0) << size;
    const float tolerance = 1e-4f * expected.abs().max().item<float>();
    EXPECT_LE((first - expected).abs().max().item<float>(), tolerance) << size;
    EXPECT_LE((second - expected).abs().max().item<float>(), tolerance) << size;
  }
}

class FusedModels : public testing::TestWithParam<SmallNet> {
 protected:
  FusedModels() { torch::manual_seed(7); }
};

TEST_P(FusedModels, OutputsEqualTheModels) {
  const SmallNet& net = GetParam();
  expect_fused(net.make(), torch::rand({4, 3, net.side, net.side}));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    FusedModels,
    testing::ValuesIn(classifiers()),
    [](const auto& info) { return info.param.name; });

TEST_F(FusedModels, SupportsAUnet) {
  expect_fused(
      DynamicUnet(
          VisionArch(testing_support::small_resnet),
          DynamicUnetOptions{.outputs = 4}),
      torch::rand({4, 3, 32, 48}));
}

// Activations are fused only if their inputs are finite.
TEST_P(FusedModels, HaveOnlyFiniteValues) {
  const SmallNet& net = GetParam();
  Model model = net.make();
  const Tensors batch = {torch::rand({2, 3, net.side, net.side})};
  prepare(model, batch);
  const auto module = trace(model, batch, [&](const Tensors& inputs) {
    return model.forward(inputs);
  });
  const auto graph =
      constant_graph(module, *module.get_method("forward").graph(), "test");
  std::set<std::string> operators;
  for (const torch::jit::Value* value : possibly_nonfinite_values(*graph)) {
    operators.insert(value->node()->kind().toQualString());
  }
  EXPECT_EQ(operators, std::set<std::string>());
}

double distance(const torch::Tensor& outputs, const torch::Tensor& exact) {
  return (outputs.to(torch::kFloat) - exact).norm().item<double>() /
         exact.norm().item<double>();
}

// Fused operations round once, so results differ in the last bits.
TEST_P(FusedModels, AreAboutAsCloseToFp32AsTheModelInBfloat16) {
  if (!multiplies_bfloat16()) {
    GTEST_SKIP() << "needs a processor that multiplies bfloat16";
  }
  const SmallNet& net = GetParam();
  const torch::Tensor x = torch::rand({4, 3, net.side, net.side});
  Model model = net.make();
  prepare(model, {x});
  const torch::NoGradGuard no_grad;
  const Model full = model.with_module(model.module()->clone());
  Tensors exact;
  for (const int64_t size : {1, 4}) {
    exact.push_back(model.forward({x.narrow(0, 0, size)})[0].clone());
  }
  for (const ModelTensor& t : model.state()) {
    if (t.tensor.is_floating_point() && t.layer != LayerKind::batch_norm) {
      t.tensor.set_data(t.tensor.to(torch::kBFloat16));
    }
  }
  Model fused = fused_model(model, full);
  double of_fused = 0, of_model = 0;
  for (const torch::Tensor& expected : exact) {
    const Tensors batch = {
        x.narrow(0, 0, expected.size(0)).to(torch::kBFloat16)};
    fused.forward(batch);
    const test::OpCalls plain("aten::_convolution");
    const torch::Tensor outputs = fused.forward(batch)[0];
    EXPECT_EQ(plain.count(), 0) << expected.size(0);
    EXPECT_EQ(outputs.scalar_type(), torch::kBFloat16);
    of_fused += distance(outputs, expected);
    of_model += distance(model.forward(batch)[0], expected);
  }
  EXPECT_LE(of_fused, 3 * of_model + 0x1p-4);
}

}  // namespace
}  // namespace tern::fused_models_test
