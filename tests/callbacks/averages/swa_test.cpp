#include "tern/callbacks/averages/swa.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::swa_test {
namespace {

using namespace testing_support;  // NOLINT

std::unique_ptr<Learner> learner() {
  return std::make_unique<Learner>(point_data(), point_net(), quiet());
}

// Records the fp32 weights at the end of each epoch.
std::shared_ptr<Callback> record(std::vector<Tensors>& epochs) {
  return std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_epoch_end = [&](Learner& l) {
        epochs.emplace_back();
        for (const ModelTensor& p : l.model().parameters()) {
          epochs.back().push_back(
              (master_weights(l) ? master_weights(l)->of(p.tensor) : p.tensor)
                  .detach()
                  .clone());
        }
      }});
}

TEST(Swa, EndsWithTheMeanOfTheLastEpochs) {
  for (const bool half : {false, true}) {
    const auto learn = learner();
    if (half) learn->to_fp16({.force_fp16 = true});
    std::vector<Tensors> epochs;
    learn->add<Swa>({.start = 0.5}).add(record(epochs)).fit(2).fit(6);
    const Tensors mean = parameters_of(learn->to_fp32());
    for (size_t i = 0; i < mean.size(); ++i) {
      const torch::Tensor expected =
          (epochs[5][i] + epochs[6][i] + epochs[7][i]) / 3;
      EXPECT_TRUE(torch::allclose(mean[i], expected, 1e-5, 1e-6)) << i;
    }
  }
}

// The learning rates are still annealing then, and there is no average yet.
TEST(Swa, CanBeResumedInItsFirstEpoch) {
  const TempFolder folder;
  const auto make = [] {
    torch::manual_seed(7);
    auto learn = std::make_unique<Learner>(
        point_data(),
        torch::nn::Sequential(
            {{"a_layer_with_a_long_name", torch::nn::Linear(2, 2)}}),
        quiet());
    learn->add<Swa>({.start = 0, .lr = 1e-3});
    return learn;
  };
  const auto whole = make();
  whole->add<SaveCheckpoint>(
      {.folder = folder / "run", .every_steps = 1, .keep = 0});
  whole->fit(1, 1e-2);
  const auto resumed = make();
  resumed->resume(folder / "run/step_3").fit(1, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(*resumed), parameters_of(*whole)));
}

TEST(Swa, AveragesAtLeastTheLastEpoch) {
  const auto learn = learner();
  std::vector<Tensors> epochs;
  learn->add<Swa>().add(record(epochs)).fit(1);
  EXPECT_TRUE(all_equal(parameters_of(*learn), epochs[0]));
}

// As torch.optim.swa_utils.update_bn: batches have equal weight, the variance
// is unbiased.
TEST(UpdateBatchNorm, SetsTheStatisticsToTheirMeansOverTheBatches) {
  const auto learn = learner();
  learn->fit(1);
  update_batch_norm(*learn);
  auto net = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(
      learn->model().module());
  auto batches = learn->data().train->epoch(0);
  std::vector<torch::Tensor> means, vars;
  {
    const torch::NoGradGuard no_grad;
    auto* linear = net->ptr(0)->as<torch::nn::Linear>();
    while (auto batch = batches.next()) {
      const torch::Tensor x = linear->forward(batch->inputs[0]);
      means.push_back(x.mean(0));
      vars.push_back(x.var(0));
    }
  }
  auto* bn = net->ptr(1)->as<torch::nn::BatchNorm1d>();
  EXPECT_TRUE(torch::allclose(
      bn->running_mean,
      torch::stack(means).mean(0),
      1e-4,
      1e-5));
  EXPECT_TRUE(
      torch::allclose(bn->running_var, torch::stack(vars).mean(0), 1e-4, 1e-5));
  EXPECT_EQ(bn->num_batches_tracked.item<int64_t>(), 8);
  EXPECT_EQ(bn->options.momentum(), 0.1);
}

TEST(UpdateBatchNorm, IgnoresEvaluationsWithinItsPass) {
  Tensors statistics;
  for (const bool is_nested : {false, true}) {
    const auto learn = learner();
    learn->fit(1);
    int depth = 0;
    const auto evaluate = [&](Learner& l) {
      if (depth > 0) return;
      ++depth;
      l.validate();
      --depth;
    };
    const auto nested = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
        .on_batch_begin = evaluate,
        .on_eval_begin = evaluate});
    if (is_nested) learn->add(nested);
    EXPECT_TRUE(update_batch_norm(*learn));
    statistics.push_back(learn->model().buffers()[0].tensor.clone());
  }
  EXPECT_TRUE(torch::equal(statistics[0], statistics[1]));
}

TEST(UpdateBatchNorm, KeepsTheStatisticsIfThePassFails) {
  const auto learn = learner();
  learn->fit(1);
  const torch::Tensor before = learn->model().buffers()[0].tensor.clone();
  const auto fails = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_end = [](Learner&) { throw std::runtime_error("stop"); }});
  learn->add(fails);
  EXPECT_THROW(update_batch_norm(*learn), std::runtime_error);
  learn->remove(*fails);
  EXPECT_TRUE(torch::equal(learn->model().buffers()[0].tensor, before));
  learn->fit(1);
}

TEST(Swa, AnnealsTheLearningRatesToItsOwn) {
  const auto learn = learner();
  learn->split({"3"});
  std::vector<std::vector<double>> rates;
  learn
      ->add<Swa>(
          {.start = 0.5, .lr = LearningRates{0.1, 1.0}, .anneal_epochs = 2})
      .add<LambdaCallback>(
          {.on_epoch_end =
               [&](Learner& l) { rates.push_back(l.learning_rates()); }})
      .fit(6, {0.2, 2.0});
  EXPECT_EQ(rates[2], (std::vector<double>{0.2, 2.0}));
  EXPECT_NEAR(rates[3][0], 0.15, 1e-12);
  EXPECT_NEAR(rates[3][1], 1.5, 1e-12);
  EXPECT_NEAR(rates[5][1], 1.0, 1e-12);
  expect_error<c10::ValueError>(
      [&] { learn->fit_one_cycle(1); },
      {"Swa and ParamScheduler both set the learning rate"});
  const auto plain = learner();
  plain->add<Swa>().fit_one_cycle(2);
}

TEST(Swa, ContinuesFromItsSavedState) {
  std::vector<StateDict> saved;
  const auto save = [&](Learner& l) {
    saved.push_back(l.find<Swa>()->state_dict());
  };
  const auto learn = learner();
  learn->add<Swa>({.start = 0})
      .add<LambdaCallback>(
          {.on_epoch_end = save, .order = callback_order::kLast})
      .fit(3);
  const auto swa = std::make_shared<Swa>(Swa::Options{.start = 0});
  swa->load_state_dict(saved[1]);
  EXPECT_EQ(swa->state_dict()["averaged"].item<int64_t>(), 2);
  for (const auto& item : saved[1]) {
    EXPECT_TRUE(torch::equal(item.value(), swa->state_dict()[item.key()]));
  }
}

TEST(Swa, RejectsOptionsOutOfRange) {
  expect_error<c10::ValueError>([] { Swa swa({.start = 1}); }, {"start is 1"});
  expect_error<c10::ValueError>(
      [] { Swa swa({.anneal_epochs = 0}); },
      {"anneal_epochs is 0"});
}

TEST(UpdateBatchNorm, KeepsStatisticsThatTrainingDoesNotUpdate) {
  // One BatchNorm that the model keeps in eval mode, one without momentum, one
  // that trains; and statistics that add_lora freezes.
  struct NetImpl : torch::nn::Module {
    torch::nn::BatchNorm1d kept = register_module("kept", statistics_of_3(0.1));
    torch::nn::BatchNorm1d still = register_module("still", statistics_of_3(0));
    torch::nn::BatchNorm1d norm = register_module("norm", statistics_of_3(0.1));
    torch::nn::Linear layer = register_module("layer", torch::nn::Linear(2, 2));
    static torch::nn::BatchNorm1d statistics_of_3(double momentum) {
      torch::nn::BatchNorm1d norm(
          torch::nn::BatchNormOptions(2).momentum(momentum));
      norm->running_mean.fill_(3);
      return norm;
    }
    void train(bool on) override {
      Module::train(on);
      kept->eval();
    }
    torch::Tensor forward(const torch::Tensor& x) {
      return layer(norm(still(kept(x))));
    }
  };
  const auto net = std::make_shared<NetImpl>();
  Learner learn(point_data(), net, quiet());
  learn.add<Swa>().fit(2);
  EXPECT_EQ(net->kept->running_mean[0].item<float>(), 3.f);
  EXPECT_EQ(net->still->running_mean[0].item<float>(), 3.f);
  EXPECT_NE(net->norm->running_mean[0].item<float>(), 3.f);

  const auto plain = point_net();
  Learner before(point_data(), plain, quiet());
  before.fit(1);
  const torch::Tensor mean = plain->named_buffers()["1.running_mean"].clone();
  int64_t passes = 0;
  Learner adapted(
      point_data(),
      add_lora(plain, {.rank = 2, .targets = {"0"}, .train = {"3"}}),
      quiet());
  adapted.add<Swa>()
      .add<LambdaCallback>({.on_eval_begin = [&](Learner&) { ++passes; }})
      .fit(2);
  EXPECT_TRUE(torch::equal(plain->named_buffers()["1.running_mean"], mean));
  EXPECT_EQ(passes, 2);  // no pass to update frozen statistics
}

}  // namespace
}  // namespace tern::swa_test
