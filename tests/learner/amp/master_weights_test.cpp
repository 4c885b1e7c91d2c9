#include "tern/learner/amp/master_weights.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>

#include "tern/tests/support/tiny.h"

namespace tern::master_weights_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(MasterWeights, AreBitIdenticalToTheOriginalFp32Weights) {
  const auto net = point_net();
  Tensors before;
  for (const ModelTensor& p : Model(net).parameters()) {
    before.push_back(p.tensor.detach().clone());
  }
  for (const bool flat : {false, true}) {
    const auto half = point_net();
    MasterWeights masters(half, torch::kHalf, flat);
    EXPECT_EQ(masters.weights().size(), 4u);
    const auto parameters = Model(half).parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::equal(masters.of(parameters[i].tensor), before[i]));
    }
  }
}

TEST(MasterWeights, ReceiveTheGradientsAndUpdateTheWeights) {
  const auto net = point_net();
  MasterWeights masters(net, torch::kHalf);
  torch::Tensor weight = masters.weights()[0];
  weight.mutable_grad() = torch::full_like(weight, 3);
  masters.move_gradients_to_masters();
  EXPECT_EQ(masters.masters()[0].grad().scalar_type(), torch::kFloat);
  EXPECT_EQ(masters.masters()[0].grad().min().item<float>(), 3.f);
  EXPECT_FALSE(masters.masters()[1].grad().defined());
  masters.masters()[0].fill_(1.0001f);
  masters.copy_masters_to_weights();
  EXPECT_EQ(weight.min().item<float>(), 1.f);
  masters.zero_grad();
  EXPECT_FALSE(masters.masters()[0].grad().defined());
}

TEST(MasterWeights, KeepTheLayoutOfChannelsLastWeights) {
  for (const bool flat : {false, true}) {
    torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3));
    net->parameters()[0].set_data(
        net->parameters()[0].contiguous(torch::MemoryFormat::ChannelsLast));
    const MasterWeights masters(net, torch::kBFloat16, flat);
    EXPECT_EQ(masters.masters()[0].strides(), masters.weights()[0].strides());
    EXPECT_TRUE(
        masters.masters()[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

TEST(MasterWeights, RestoreReturnsTheFp32TensorsToTheModel) {
  const auto net = point_net();
  MasterWeights masters(net, torch::kHalf);
  masters.masters()[0].fill_(0.1f);
  masters.restore();
  for (const ModelTensor& p : Model(net).parameters()) {
    EXPECT_EQ(p.tensor.scalar_type(), torch::kFloat);
    EXPECT_TRUE(p.tensor.requires_grad());
  }
  EXPECT_EQ(Model(net).parameters()[0].tensor.min().item<float>(), 0.1f);
}

}  // namespace
}  // namespace tern::master_weights_test
