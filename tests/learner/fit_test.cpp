// Guarantees of the training loop: the order of events, what each event may
// change, and what happens after an exception.

#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/data/formats/error.h"
#include "tern/kernels/fast_conv_backward.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::fit_test {
namespace {

using namespace testing_support;  // NOLINT

const std::vector<std::string> kEvents = {
    "on_train_begin",
    "on_epoch_begin",
    "on_batch_begin",
    "on_loss_begin",
    "on_backward_begin",
    "on_backward_end",
    "on_step",
    "on_step_end",
    "on_batch_end",
    "on_epoch_end",
    "on_train_end"};

// Calls `call` with the name of each event.
LambdaCallbackOptions at_every_event(
    std::function<void(const std::string&, Learner&)> call) {
  const auto on = [&call](const char* name) {
    return [call, name](Learner& learn) { call(name, learn); };
  };
  return {
      .on_train_begin = on("on_train_begin"),
      .on_epoch_begin = on("on_epoch_begin"),
      .on_batch_begin = on("on_batch_begin"),
      .on_loss_begin = on("on_loss_begin"),
      .on_backward_begin = on("on_backward_begin"),
      .on_backward_end = on("on_backward_end"),
      .on_step = on("on_step"),
      .on_step_end = on("on_step_end"),
      .on_batch_end = on("on_batch_end"),
      .on_epoch_end = on("on_epoch_end"),
      .on_train_end = on("on_train_end")};
}

TEST(Fit, UsesFastConvolutionGradientsInBackwardOnly) {
  Learner learn(point_data(64), point_net(), quiet());
  std::vector<bool> is_on;
  learn.add<LambdaCallback>({.on_backward_begin = [&](Learner& l) {
    is_on.push_back(FastConvBackward::is_on());
    l.state().loss_grad.register_hook([&](const torch::Tensor&) {
      is_on.push_back(FastConvBackward::is_on());
    });
  }});
  learn.fit(1);
  EXPECT_EQ(is_on, std::vector<bool>({false, true, false, true}));
  EXPECT_FALSE(FastConvBackward::is_on());
}

TEST(Fit, RunsTheEventsInTheDocumentedOrder) {
  Learner learn(point_data(64, 32), point_net(), quiet());
  std::vector<std::string> seen;
  learn.add<LambdaCallback>(
      at_every_event([&](const std::string& event, Learner& l) {
        seen.push_back(event + (l.state().training ? "" : " (valid)"));
      }));
  learn.fit(1);
  std::vector<std::string> expected = {
      "on_train_begin (valid)",
      "on_epoch_begin (valid)"};
  for (int batch = 0; batch < 2; ++batch) {
    expected.insert(expected.end(), kEvents.begin() + 2, kEvents.begin() + 9);
  }
  for (const char* event :
       {"on_batch_begin", "on_loss_begin", "on_batch_end"}) {
    expected.push_back(std::string(event) + " (valid)");
  }
  expected.push_back("on_epoch_end (valid)");
  expected.push_back("on_train_end (valid)");
  EXPECT_EQ(seen, expected);
}

TEST(Fit, TrainsAndContinuesTrainingInASecondFit) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  learn.fit(2, 1e-2);
  const double first = learn.recorder().epochs().back().valid_loss;
  EXPECT_GT(learn.recorder().epochs().back().metrics.at(0).value, 0.8);
  learn.fit(3, 1e-2);
  EXPECT_LT(learn.recorder().epochs().back().valid_loss, first);
  EXPECT_EQ(learn.recorder().epochs().size(), 5u);
  EXPECT_EQ(learn.state().iteration, 5 * 8);
}

TEST(Fit, IsBitIdenticalToAHandWrittenLoop) {
  const DataBunch data = point_data();
  auto by_hand = point_net();
  torch::optim::SGD sgd(by_hand->parameters(), 0.1);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    auto batches = data.train->epoch(epoch);
    while (auto batch = batches.next()) {
      torch::nn::functional::cross_entropy(
          by_hand->forward(batch->inputs[0]),
          batch->targets[0])
          .backward();
      sgd.step();
      sgd.zero_grad();
    }
  }
  Learner learn(
      data,
      point_net(),
      quiet({.optimizer = optimizer<torch::optim::SGD>(), .weight_decay = 0}));
  learn.fit(2, 0.1);
  EXPECT_TRUE(all_equal(parameters_of(learn), by_hand->parameters()));
}

TEST(Fit, TheSecondFitUsesANewShuffle) {
  std::vector<torch::Tensor> firsts;
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
    if (l.state().training && l.state().batch == 0) {
      firsts.push_back(l.state().batch_data.inputs[0].clone());
    }
  }});
  learn.fit(1).fit(1);
  ASSERT_EQ(firsts.size(), 2u);
  EXPECT_FALSE(torch::equal(firsts[0], firsts[1]));
}

TEST(Fit, SkipStepKeepsTheWeights) {
  Learner learn(point_data(), point_net(), quiet());
  const Tensors before = parameters_of(learn);
  learn.add<LambdaCallback>(
      {.on_step = [](Learner& l) { l.state().skip_step = true; }});
  learn.fit(1);
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
}

TEST(Fit, SkipZeroGradAccumulatesGradients) {
  Learner learn(point_data(64, 0), point_net(), quiet());
  std::vector<double> norms;
  learn.add<LambdaCallback>(
      {.on_step =
           [](Learner& l) {
             l.state().skip_step = true;
             l.state().skip_zero_grad = l.state().batch == 0;
           },
       .on_batch_end =
           [&](Learner& l) {
             const torch::Tensor& grad =
                 l.model().parameters()[0].tensor.grad();
             norms.push_back(grad.defined() ? grad.norm().item<double>() : 0);
           }});
  learn.fit(1);
  EXPECT_GT(norms.at(0), 0);
  EXPECT_EQ(norms.at(1), 0);
}

TEST(Fit, TrainsWithTheLossThatACallbackSets) {
  Learner learn(point_data(), point_net(), quiet({.weight_decay = 0}));
  const Tensors before = parameters_of(learn);
  learn.add<LambdaCallback>({.on_backward_begin = [](Learner& l) {
    l.state().loss_grad = l.state().loss_grad * 0;
  }});
  learn.fit(1);
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  EXPECT_GT(learn.recorder().losses().back(), 0);
}

TEST(Fit, StopTrainingEndsAfterTheBatchAndTheNextFitRuns) {
  Learner learn(point_data(), point_net(), quiet());
  auto stop = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [](Learner& l) {
        if (l.state().batch == 2) l.state().stop_training = true;
      }});
  learn.fit(5, {}, {stop});
  EXPECT_EQ(learn.state().iteration, 3);
  learn.fit(1);
  EXPECT_EQ(learn.state().iteration, 3 + 8);
}

TEST(Fit, StopEpochContinuesWithTheNextEpoch) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>(
      {.on_batch_begin = [](Learner& l) { l.state().stop_epoch = true; }});
  learn.fit(3);
  EXPECT_EQ(learn.state().iteration, 3);
  EXPECT_EQ(learn.recorder().epochs().size(), 3u);
}

TEST(Fit, ARequestFromAnotherThreadStopsIt) {
  Learner learn(point_data(), point_net(), quiet());
  std::thread other;
  learn.add<LambdaCallback>({.on_train_begin = [&](Learner& l) {
    other = std::thread([&l] { l.request_stop(); });
  }});
  learn.fit(100000);
  other.join();
  EXPECT_LT(learn.state().epoch, 100000);
}

TEST(Fit, DoesNotRecordAnEpochThatAStopRequestInterrupts) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  learn.add<LambdaCallback>({.on_batch_end = [](Learner& l) {
    // During the second epoch's validation.
    if (l.state().epoch == 1 && !l.state().training) l.request_stop();
  }});
  learn.fit(3);
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  const auto& epochs = learn.recorder().epochs();
  ASSERT_EQ(epochs.size(), 1u);
  EXPECT_FALSE(std::isnan(epochs[0].valid_loss));
  EXPECT_TRUE(std::isnan(learn.state().valid_loss));
}

TEST(Fit, ExtraCallbacksAreActiveInOneFitOnly) {
  Learner learn(point_data(), point_net(), quiet());
  int epochs = 0;
  auto count = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_epoch_end = [&](Learner&) { ++epochs; }});
  learn.fit(2, {}, {count});
  learn.fit(1);
  EXPECT_EQ(epochs, 2);
}

TEST(Fit, RunsCallbacksInAscendingOrderAndThenAsAdded) {
  Learner learn(point_data(32, 0), point_net(), quiet());
  std::string seen;
  const auto note = [&](char name, int order) {
    learn.add<LambdaCallback>(
        {.on_train_begin = [&seen, name](Learner&) { seen += name; },
         .order = order});
  };
  note('d', 5);
  note('b', 0);
  note('a', -5);
  note('c', 0);
  learn.fit(1);
  EXPECT_EQ(seen, "abcd");
}

TEST(Fit, ACallbackMayRemoveItselfAndTheOthersStillRun) {
  Learner learn(point_data(32, 0), point_net(), quiet());
  int first = 0, second = 0;
  std::shared_ptr<Callback> self = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_epoch_begin = [&](Learner& l) {
        ++first;
        l.remove(*self);
      }});
  learn.add(self);
  learn.add<LambdaCallback>({.on_epoch_begin = [&](Learner&) { ++second; }});
  learn.fit(3);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 3);
}

class ThrowingEventTest : public testing::TestWithParam<std::string> {};

TEST_P(ThrowingEventTest, EndsFitRunsOnTrainEndAndLeavesTheLearnerUsable) {
  Learner learn(point_data(), point_net(), quiet({.weight_decay = 0}));
  int train_ends = 0;
  learn.add<LambdaCallback>(
      {.on_train_end = [&](Learner&) { ++train_ends; }, .order = -100});
  auto thrower = std::make_shared<LambdaCallback>(
      at_every_event([&](const std::string& event, Learner& l) {
        const bool is_per_batch = event.find("train_") == std::string::npos &&
                                  event.find("epoch") == std::string::npos;
        if (event == GetParam() && (!is_per_batch || l.state().batch == 3)) {
          throw std::runtime_error("from " + event);
        }
      }));
  try {
    learn.fit(1, {}, {thrower});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "from " + GetParam());
  }
  EXPECT_EQ(train_ends, 1);
  EXPECT_FALSE(learn.state().is_fitting);
  for (const ModelTensor& p : learn.model().parameters()) {
    EXPECT_FALSE(p.tensor.grad().defined());
  }
  const int64_t before = learn.state().iteration;
  learn.fit(1);
  EXPECT_EQ(learn.state().iteration, before + 8);
}

INSTANTIATE_TEST_SUITE_P(
    Events,
    ThrowingEventTest,
    testing::ValuesIn(kEvents),
    [](const auto& info) { return info.param; });

TEST(Fit, SendsEvalEventsForEachEvaluation) {
  Learner learn(point_data(64, 32), point_net(), quiet());
  std::string seen;
  bool fails = false;
  learn.add<LambdaCallback>(
      {.on_batch_begin =
           [&](Learner& l) {
             if (!l.state().training && fails) throw std::runtime_error("x");
           },
       .on_epoch_end = [&](Learner&) { seen += "epoch "; },
       .on_eval_begin = [&](Learner&) { seen += "["; },
       .on_eval_end = [&](Learner&) { seen += "] "; }});
  learn.fit(2);
  learn.validate();
  learn.get_preds();
  learn.predict(torch::zeros({2}));
  EXPECT_EQ(seen, "[] epoch [] epoch [] [] [] ");
  fails = true;
  EXPECT_THROW(learn.validate(), std::runtime_error);
  EXPECT_THROW(learn.fit(1), std::runtime_error);
  EXPECT_EQ(seen, "[] epoch [] epoch [] [] [] [] [] ");
}

TEST(Fit, ACallbackMayValidateAndPredictInTheMiddleOfAStep) {
  const auto train = [](bool looks) {
    Learner learn(point_data(), point_net(), quiet());
    std::vector<int64_t> batches;
    LambdaCallbackOptions callback;
    const auto look = [&](Learner& l) {
      if (!looks || !l.state().training) return;
      EXPECT_GT(l.validate().loss, 0);
      l.predict(torch::zeros({2}));
      EXPECT_TRUE(l.state().training);
      EXPECT_EQ(l.state().batch_data.size(), 32);
      EXPECT_EQ(l.state().batches, 8);
    };
    callback.on_backward_begin = callback.on_step = look;
    callback.on_batch_end = [&](Learner& l) {
      if (l.state().training) batches.push_back(l.state().batch);
      look(l);
    };
    learn.add<LambdaCallback>(callback).fit(2);
    EXPECT_EQ(batches.size(), 16u);
    EXPECT_EQ(batches.back(), 7);
    EXPECT_EQ(learn.recorder().losses().size(), 16u);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(Fit, ACallbackMayRejectBeingAdded) {
  struct Only final : Callback {
    void on_add(Learner& learn) override {
      if (learn.find<Only>()) throw std::runtime_error("one is enough");
    }
  };
  Learner learn(point_data(64, 32), point_net(), quiet());
  EXPECT_EQ(learn.find<Only>(), nullptr);
  learn.add<Only>();
  const size_t callbacks = learn.callbacks().size();
  EXPECT_THROW(learn.add<Only>(), std::runtime_error);
  EXPECT_THROW(
      learn.fit(1, {}, {std::make_shared<Only>()}),
      std::runtime_error);
  EXPECT_EQ(learn.callbacks().size(), callbacks);
  EXPECT_FALSE(learn.state().is_fitting);
  learn.fit(1);
}

TEST(Fit, ReportsTheFirstErrorIfOnTrainEndAlsoThrows) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<LambdaCallback>(
      {.on_epoch_begin = [](Learner&) { throw std::runtime_error("first"); },
       .on_train_end = [](Learner&) { throw std::runtime_error("second"); }});
  expect_error<std::runtime_error>([&] { learn.fit(1); }, {"first"});
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_NE(sink->warnings[0].find("second"), std::string::npos);
}

TEST(Fit, NamesACallbackThatFailsAtTheEndOnce) {
  const auto warning_of = [](const char* error) {
    const auto sink = std::make_shared<MemorySink>();
    Learner learn(point_data(), point_net(), {.sink = sink});
    learn.add<LambdaCallback>(
        {.on_epoch_begin = [](Learner&) { throw std::runtime_error("first"); },
         .on_train_end = [=](Learner&) { throw std::runtime_error(error); }});
    EXPECT_THROW(learn.fit(1), std::runtime_error);
    return sink->warnings.at(0);
  };
  EXPECT_EQ(
      warning_of("no space"),
      "LambdaCallback also failed at the end: no space");
  EXPECT_EQ(
      warning_of("[LambdaCallback] no space"),
      "A callback also failed at the end: [LambdaCallback] no space");
}

// ---- Bad input ----

TEST(Fit, SendsLibTorchsWarningsToTheSink) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.add<LambdaCallback>(
      {.on_epoch_begin = [](Learner&) { TORCH_WARN("something to know"); }});
  learn.fit(1);
  ASSERT_EQ(sink->warnings.size(), 1u);
  EXPECT_EQ(sink->warnings[0], "something to know");
}

TEST(Fit, RejectsAModelWithoutTrainableParameters) {
  auto net = point_net();
  for (auto& p : net->parameters()) p.requires_grad_(false);
  Learner learn(point_data(), net, quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"none of the model's 6 parameters", "unfreeze()"});
  learn.unfreeze().fit(1);
}

TEST(Fit, RejectsAnEmptyTrainLoaderAndExplainsWhy) {
  Learner learn(point_data(20), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"20 samples", "batch size 32", "smaller"});
}

TEST(Fit, RejectsLabelsOutsideTheModelsOutputs) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randn({64, 2})},
      Tensors{torch::full({64}, 7L)});
  DataBunch data =
      DataBunch::create(dataset, nullptr, {.batch_size = 32, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, point_net(), quiet());
  const Tensors before = parameters_of(learn);
  expect_error<c10::IndexError>(
      [&] { learn.fit(1); },
      {"class 7", "2 outputs", "0 to 1"});
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
}

TEST(Fit, RejectsAnEmptyValidationSetBeforeTheFirstStep) {
  DataBunch data = point_data();
  data.valid = std::make_shared<DataLoader>(points(0), DataLoaderOptions{});
  Learner learn(data, point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"the valid loader has no batch: 0 samples", "data.valid = nullptr"});
  EXPECT_EQ(learn.state().iteration, 0);
}

TEST(Fit, ExplainsABatchOfOneSampleWithBatchNorm) {
  DataBunch data = point_data();
  data.train = std::make_shared<DataLoader>(
      points(33),
      DataLoaderOptions{.batch_size = 32, .training = true, .workers = 0});
  Learner learn(data, point_net(), quiet());
  expect_error<c10::ValueError>([&] { learn.fit(1); }, {"drop_last"});
}

TEST(Fit, DoesNotLetADifferentThreadValidateDuringIt) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LambdaCallback>({.on_batch_begin = [](Learner& l) {
    if (!l.state().training || l.state().batch > 0) return;
    std::thread([&] {
      expect_error<c10::Error>(
          [&] { l.validate(); },
          {"a different thread than the running fit"});
      expect_error<c10::Error>([&] { l.get_preds(); }, {"a different thread"});
    }).join();
    l.validate();
  }});
  learn.fit(1);
  EXPECT_EQ(learn.recorder().losses().size(), 8u);
}

TEST(Fit, RejectsALossThatIsNotAScalar) {
  Learner learn(
      point_data(),
      point_net(),
      quiet({.loss = Loss([](const torch::Tensor& p, const torch::Tensor&) {
               return p;
             })}));
  expect_error<c10::ValueError>([&] { learn.fit(1); }, {"[32, 2]", "mean"});
}

TEST(Fit, NamesTheSampleThatAWorkerCouldNotLoad) {
  class Broken final : public Dataset {
   public:
    int64_t size() const override { return 64; }
    Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
        const override {
      for (const int64_t i : indices) {
        if (i == 40) throw DataError("cat.jpg", "is no image");
      }
      return {
          {torch::zeros({static_cast<int64_t>(indices.size()), 2})},
          {torch::zeros({static_cast<int64_t>(indices.size())}, torch::kLong)}};
    }
  };
  DataBunch data = DataBunch::create(
      std::make_shared<Broken>(),
      nullptr,
      {.batch_size = 32, .workers = 2});
  data.device = torch::kCPU;
  Learner learn(data, point_net(), quiet());
  expect_error<DataError>(
      [&] { learn.fit(1); },
      {"cat.jpg", "sample 40", "is no image"});
}

TEST(Fit, RejectsNegativeEpochsAndAFitInsideAFit) {
  Learner learn(point_data(), point_net(), quiet());
  EXPECT_THROW(learn.fit(-1), c10::ValueError);
  learn.add<LambdaCallback>({.on_epoch_begin = [](Learner& l) { l.fit(1); }});
  expect_error<c10::Error>([&] { learn.fit(1); }, {"already training"});
}

}  // namespace
}  // namespace tern::fit_test
