// What Predictor runs on a CPU, for each family of networks.
#include <gtest/gtest.h>

#include "tern/learner/inference/fused_model.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/vision/small_classifiers.h"
#include "tern/vision/models/dynamic_unet.h"

namespace tern::fused_models_test {
namespace {

using testing_support::classifiers;
using testing_support::prepare;
using testing_support::SmallNet;

/// Expects the same answers as the model's, of one sample and of any number,
/// with oneDNN's operator for each convolution.
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

TEST_P(FusedModels, AnswerAsTheModelDoes) {
  const SmallNet& net = GetParam();
  expect_fused(net.make(), torch::rand({4, 3, net.side, net.side}));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    FusedModels,
    testing::ValuesIn(classifiers()),
    [](const auto& info) { return info.param.name; });

TEST_F(FusedModels, AUnetToo) {
  expect_fused(
      DynamicUnet(
          VisionArch(testing_support::small_resnet),
          DynamicUnetOptions{.outputs = 4}),
      torch::rand({4, 3, 32, 48}));
}

}  // namespace
}  // namespace tern::fused_models_test
