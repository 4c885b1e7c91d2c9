#include "tern/learner/optim/optimizer_factory.h"

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/learner/hyper_parameter.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"

namespace tern::optimizer_factory_test {
namespace {

const torch::optim::OptimizerOptions& made(const OptimizerFactory& factory) {
  static std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{torch::zeros({2})});
  optimizer = factory(std::move(groups));
  EXPECT_EQ(optimizer->param_groups()[0].params().size(), 1);
  return optimizer->param_groups()[0].options();
}

TEST(OptimizerFactory, PassesItsOptions) {
  const OptimizerFactory factory =
      optimizer<optim::SGD>(torch::optim::SGDOptions(.1).momentum(.9));
  EXPECT_EQ(made(factory).get_lr(), .1);
  EXPECT_EQ(optim::momentum(made(factory)), .9);
}

TEST(OptimizerFactory, CreatesAnyOptimizerWithoutOptions) {
  EXPECT_EQ(made(optimizer<torch::optim::RMSprop>()).get_lr(), 1e-2);
  EXPECT_EQ(made(optimizer<torch::optim::SGD>()).get_lr(), 1e-3);
  EXPECT_EQ(made(optimizer<torch::optim::Adagrad>()).get_lr(), 1e-2);
  EXPECT_EQ(made(optimizer<optim::SGD>()).get_lr(), 1e-3);
  EXPECT_EQ(made(optimizer<optim::AdamW>()).get_lr(), 1e-3);
}

}  // namespace
}  // namespace tern::optimizer_factory_test
