#include "tern/learner/learner.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::learner_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(Learner, TrainsWithFusedAdamWAndFastaisSettingsByDefault) {
  Learner learn(point_data(), point_net(), quiet());
  ASSERT_TRUE(dynamic_cast<optim::AdamW*>(&learn.optimizer()));
  learn.fit(1);
  for (const auto& group : learn.optimizer().param_groups()) {
    const auto& options =
        static_cast<const torch::optim::AdamWOptions&>(group.options());
    EXPECT_EQ(options.lr(), 3e-3);
    EXPECT_EQ(options.betas(), std::make_tuple(0.9, 0.99));
    EXPECT_EQ(options.weight_decay(), 1e-2);
  }
}

TEST(Learner, AcceptsAnyOptimizerOfLibTorch) {
  for (const OptimizerFactory& factory :
       {optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1)),
        optimizer<torch::optim::RMSprop>(),
        optimizer<torch::optim::Adagrad>(),
        optimizer<optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9))}) {
    Learner learn(point_data(), point_net(), quiet({.optimizer = factory}));
    learn.fit(2, 1e-2);
    EXPECT_LT(
        learn.recorder().epochs().back().valid_loss,
        learn.recorder().losses().front());
  }
}

TEST(Learner, ValidationDoesNotDependOnTheBatchSize) {
  std::vector<double> losses, accuracies;
  for (const int64_t batch_size : {100, 32, 7, 1}) {
    Learner learn(
        point_data(256, 100, {.batch_size = batch_size, .workers = 0}),
        point_net(),
        quiet({.metrics = {accuracy()}}));
    const Validation validation = learn.validate();
    losses.push_back(validation.loss);
    accuracies.push_back(validation.metrics.at(0).value);
  }
  for (size_t i = 1; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], losses[0], 1e-6);
    EXPECT_DOUBLE_EQ(accuracies[i], accuracies[0]);
  }
}

TEST(Learner, ValidationChangesNeitherWeightsNorRunningStatistics) {
  auto net = point_net();
  Learner learn(point_data(), net, quiet());
  Tensors before;
  for (const auto& t : net->buffers()) before.push_back(t.clone());
  net->train();
  learn.validate();
  EXPECT_TRUE(all_equal(net->buffers(), before));
  EXPECT_TRUE(net->is_training());
  net->eval();
  learn.validate();
  EXPECT_FALSE(net->is_training());
}

TEST(Learner, GetPredsKeepsTheOrderOfTheDataAndReturnsProbabilities) {
  auto net = point_net();
  Learner learn(point_data(), net, quiet());
  const Predictions preds = learn.get_preds();
  ASSERT_EQ(preds.preds.sizes(), (std::vector<int64_t>{100, 2}));
  const Batch all =
      points(100, 2)->get_batch(SequentialSampler(100).indices(0, 0), {});
  net->eval();
  EXPECT_TRUE(
      torch::allclose(preds.preds, net->forward(all.inputs[0]).softmax(1)));
  EXPECT_TRUE(torch::equal(preds.targets, all.targets[0]));
}

TEST(Learner, PredictReturnsTheMostLikelyClass) {
  Learner learn(point_data(), point_net(), quiet());
  EXPECT_NEAR(
      learn.predict(torch::tensor({2.f, 2.f}))
          .probabilities.sum()
          .item<float>(),
      1,
      1e-6);
  learn.fit(5, 1e-2);
  const Prediction above = learn.predict(torch::tensor({2.f, 2.f}));
  EXPECT_EQ(above.label, "above");
  EXPECT_EQ(above.index, 1);
  EXPECT_NEAR(above.probabilities.sum().item<double>(), 1, 1e-6);
  EXPECT_EQ(learn.predict(torch::tensor({-2.f, -2.f})).label, "below");
  EXPECT_THROW(learn.predict(torch::tensor(1.f)), c10::ValueError);
}

TEST(Learner, NamesTheMissingLoader) {
  Learner learn(point_data(256, 0), point_net(), quiet());
  expect_error<c10::ValueError>([&] { learn.validate(); }, {"no valid loader"});
  expect_error<c10::ValueError>(
      [&] { learn.get_preds(Split::test); },
      {"no test loader"});
  learn.fit(1);
  EXPECT_TRUE(std::isnan(learn.recorder().epochs()[0].valid_loss));
}

TEST(Learner, NamesAMetricThatDoesNotFitTheOutputs) {
  Learner learn(
      point_data(),
      point_net(),
      quiet({.metrics = {top_k_accuracy(5)}}));
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"top_5_accuracy", "2 classes"});
  EXPECT_FALSE(learn.state().is_fitting);
}

TEST(Learner, RejectsWhatCannotBeTrained) {
  EXPECT_THROW(
      Learner(point_data(), torch::nn::Sequential(torch::nn::ReLU()), quiet()),
      c10::ValueError);
  EXPECT_THROW(
      Learner(point_data(), point_net(), quiet({.lr = -1})),
      c10::ValueError);
  Learner learn(point_data(), point_net(), quiet());
  EXPECT_THROW(learn.add(std::shared_ptr<Callback>()), c10::ValueError);
  const auto callback = std::make_shared<Callback>();
  learn.add(callback);
  EXPECT_THROW(learn.add(callback), c10::ValueError);
}

TEST(Learner, RejectsADeviceThatDoesNotExist) {
  DataBunch data = point_data();
  data.device = torch::Device(torch::kCUDA, 99);
  expect_error<c10::ValueError>(
      [&] { Learner(data, point_net(), quiet()); },
      {"cuda:99", "CUDA devices", "DataBunch::device"});
}

TEST(Learner, TransformsBatchesBeforeCallbacksSeeThem) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randint(256, {64, 4, 4, 3}, torch::kByte)},
      Tensors{torch::randint(2, {64})});
  DataBunch data =
      DataBunch::create(dataset, nullptr, {.batch_size = 32, .workers = 0});
  data.device = torch::kCPU;
  data.batch_transforms = {normalize({0.5, 0.5, 0.5}, {0.5, 0.5, 0.5})};
  Learner learn(
      data,
      torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(48, 2)),
      quiet());
  std::vector<int64_t> shape;
  class See final : public Callback {
   public:
    explicit See(std::vector<int64_t>& shape) : shape_(shape) {}
    void on_batch_begin(Learner& l) override {
      const torch::Tensor& x = l.state().batch_data.inputs[0];
      shape_ = x.sizes().vec();
      EXPECT_EQ(x.scalar_type(), torch::kFloat);
      EXPECT_LE(x.abs().max().item<float>(), 1.f);
    }

   private:
    std::vector<int64_t>& shape_;
  };
  learn.add<See>(shape).fit(1);
  EXPECT_EQ(shape, (std::vector<int64_t>{32, 3, 4, 4}));
}

TEST(Learner, KeepsItsOwnMetricState) {
  const LearnerOptions options = quiet({.metrics = {accuracy()}});
  Learner first(point_data(), point_net(), options);
  Learner second(point_data(), point_net(8), options);
  const double expected = second.validate().metrics[0].value;
  double inner = 0;
  first.add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
    if (l.state().batch == 1) inner = second.validate().metrics[0].value;
  }});
  Learner alone(point_data(), point_net(), options);
  EXPECT_EQ(
      first.validate().metrics[0].value,
      alone.validate().metrics[0].value);
  EXPECT_EQ(inner, expected);
}

TEST(Learner, KeepsACallbackThatIsPassedAgainByMistake) {
  Learner learn(point_data(), point_net(), quiet());
  const auto callback =
      std::make_shared<LambdaCallback>(LambdaCallbackOptions{});
  learn.add(callback);
  expect_error<c10::ValueError>(
      [&] { learn.fit(1, {}, {callback}); },
      {"already added"});
  EXPECT_EQ(learn.find<LambdaCallback>(), callback);
}

TEST(Learner, KeepsACallbackThatRemovesItselfUntilItsEventIsOver) {
  class Leaving final : public Callback {
   public:
    explicit Leaving(bool& is_gone) : is_gone_(is_gone) {}
    ~Leaving() override { is_gone_ = true; }
    void on_batch_begin(Learner& learn) override {
      learn.remove(*this);
      EXPECT_FALSE(is_gone_);
    }

   private:
    bool& is_gone_;
  };
  bool is_gone = false, was_gone_at_end = false;
  Learner learn(point_data(), point_net(), quiet());
  learn.add<Leaving>(is_gone);
  learn.add<LambdaCallback>(
      {.on_batch_end = [&](Learner&) { was_gone_at_end = is_gone; }});
  learn.fit(1);
  EXPECT_TRUE(was_gone_at_end);
}

TEST(Learner, SurvivesLosingItsParts) {
  expect_error<c10::ValueError>(
      [] { Model(std::shared_ptr<ModelImpl>()); },
      {"[Model] the pointer is null"});
  Learner learn(point_data(), point_net(), quiet());
  const Model moved = std::move(learn.model());
  EXPECT_EQ(moved.parameters().size(), learn.model().parameters().size());
  learn.fit(1);
  expect_error<c10::ValueError>(
      [&] { learn.remove(learn.recorder()); },
      {"Recorder cannot be removed"});
  learn.add<LambdaCallback>(
      {.on_epoch_begin = [](Learner& l) { l.data().train = nullptr; }});
  expect_error<c10::ValueError>([&] { learn.fit(1); }, {"no train loader"});
}

TEST(Learner, RejectsAnOptimizerOfDifferentParameters) {
  const auto net = point_net();
  Learner learn(point_data(), net, quiet({.optimizer = [net](const auto&) {
                  return std::make_unique<torch::optim::SGD>(
                      net->parameters(),
                      0.1);
                }}));
  learn.to_bf16();
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"different parameters", "the groups passed to it"});
}

TEST(Learner, PredictsProbabilitiesBeforeTheFirstBatch) {
  DataBunch data = point_data();
  data.classes.clear();
  Learner learn(data, point_net(), quiet());
  const auto sample = torch::ones({2});
  const auto before = learn.predict(sample).probabilities;
  EXPECT_NEAR(before.sum().item<double>(), 1, 1e-6);
  learn.validate();
  EXPECT_TRUE(torch::equal(before, learn.predict(sample).probabilities));
}

class Choosy : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& x) {
    TORCH_CHECK_VALUE(x.size(1) == 3, "[Choosy] expected 3 columns. Give 3.");
    return x;
  }
  torch::Tensor weight = register_parameter("weight", torch::ones({1}));
};

TEST(Learner, ExplainsUnsuitableInputsAndStaysUsable) {
  Learner learn(
      point_data(),
      torch::nn::Sequential(torch::nn::Linear(3, 2)),
      quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"[Model]", "[32, 2] Float;", "multiplied", "first layer."});
  expect_error<c10::ValueError>(
      [&] { learn.predict(torch::ones({5})); },
      {"inputs of [1, 5] Float"});
  const auto sample = torch::ones({3});
  EXPECT_EQ(learn.predict(sample).probabilities.numel(), 2);
  // The model's own error message is passed on unchanged.
  Learner choosy(point_data(), std::make_shared<Choosy>(), quiet());
  expect_error<c10::ValueError>(
      [&] { choosy.fit(1); },
      {"[Choosy] expected 3 columns. Give 3."});
}

TEST(Learner, ExplainsUnsuitableTargetsOfTheLoss) {
  const auto x = torch::randn({8, 2});
  const auto data = [&](const torch::Tensor& y) {
    const auto set = std::make_shared<TensorDataset>(Tensors{x}, Tensors{y});
    return DataBunch::create(set, set, {.batch_size = 4, .workers = 0});
  };
  Learner labels(
      data(torch::zeros({8, 1}, torch::kLong)),
      point_net(),
      quiet());
  expect_error<c10::ValueError>(
      [&] { labels.fit(1); },
      {"the outputs [4, 2] Float", "targets [4, 1] Long", "dataset's"});
  Learner detached(
      data(torch::zeros({8, 2})),
      point_net(),
      quiet({.loss = [](const torch::Tensor& p, const torch::Tensor& t) {
        return (p - t).abs().mean().detach();
      }}));
  expect_error<c10::ValueError>(
      [&] { detached.fit(1); },
      {"does not require a gradient", "detach"});
}

TEST(Learner, RepeatsNoWarningOfLibTorchWithinAFit) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(
      point_data(),
      point_net(),
      {.loss =
           [](const torch::Tensor& p, const torch::Tensor& t) {
             TORCH_WARN("this loss is odd");
             return torch::nn::functional::cross_entropy(p, t);
           },
       .sink = sink});
  learn.data().valid = nullptr;
  learn.fit(2);
  EXPECT_EQ(sink->warnings.size(), 1u);
}

TEST(Learner, DoesNotTrainDuringAValidation) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>({.on_eval_begin = [](Learner& l) {
    if (!l.state().is_fitting) l.fit(1);
  }});
  expect_error<c10::Error>(
      [&] { learn.validate(); },
      {"in the middle of validate"});
}

TEST(Learner, AFitWhoseOnTrainEndFailsHasFailed) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>(
      {.on_train_end = [](Learner&) { throw std::runtime_error("full"); }});
  EXPECT_THROW(learn.fit(1), std::runtime_error);
  EXPECT_EQ(learn.state().result, FitResult::failed);
}

}  // namespace
}  // namespace tern::learner_test
