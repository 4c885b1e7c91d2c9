#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/distributed/data_parallel.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/report/model_summary.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::parallel_model_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

const std::vector<torch::Device> kTwo = {torch::kCPU, torch::kCPU};
const std::vector<torch::Device> kThree = {
    torch::kCPU,
    torch::kCPU,
    torch::kCPU};

torch::nn::Sequential plain_net() {
  torch::manual_seed(7);
  return torch::nn::Sequential(
      torch::nn::Linear(2, 16),
      torch::nn::ReLU(),
      torch::nn::Linear(16, 2));
}

LearnerOptions with_sgd() {
  return quiet(
      {.optimizer =
           optimizer<optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)),
       .metrics = {accuracy()}});
}

bool all_close(const Tensors& a, const Tensors& b, double tolerance) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!torch::allclose(a[i], b[i], tolerance, tolerance)) return false;
  }
  return a.size() == b.size();
}

// Two inputs, two outputs; notes in which threads it computes, and in what.
struct PairImpl : torch::nn::Cloneable<PairImpl> {
  PairImpl() { reset(); }
  void reset() override {
    linear = register_module("linear", torch::nn::Linear(2, 2));
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& a,
      const torch::Tensor& b) {
    const torch::Tensor y = linear->forward(a);
    const std::lock_guard lock(seen->mutex);
    seen->threads.insert(std::this_thread::get_id());
    seen->types.insert(y.scalar_type());
    return {y, b};
  }

  struct Seen {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    std::set<torch::ScalarType> types;
  };
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Pair);

TEST(ParallelModel, SplitsAllInputsAndJoinsAllOutputs) {
  Pair pair;
  Model model = parallel_model(pair, kThree);
  const torch::Tensor a = torch::randn({7, 2}), b = torch::randn({7, 5});
  const Tensors outputs = model.forward({a, b});
  ASSERT_EQ(outputs.size(), 2);
  EXPECT_TRUE(torch::allclose(outputs[0], pair->linear->forward(a)));
  EXPECT_TRUE(outputs[1].equal(b));
  EXPECT_EQ(pair->seen->threads.size(), 3);
}

TEST(ParallelModel, KeepsNamesParametersAndTheModuleItself) {
  Pair pair;
  Model model = parallel_model(pair, kTwo);
  EXPECT_EQ(model.module(), pair.ptr());
  EXPECT_EQ(model.parameters()[0].name, "linear.weight");
  EXPECT_TRUE(model.parameters()[0].tensor.is_same(pair->linear->weight));
  model.eval();
  EXPECT_FALSE(pair->is_training());
}

TEST(ParallelModel, SaysWhatItCannotDo) {
  Pair pair;
  Model model = parallel_model(pair, kTwo);
  expect_error<c10::ValueError>(
      [&] {
        model.forward({torch::ones({2, 2}), torch::ones({3, 2})});
      },
      {"2 samples and another 3"});
  expect_error<c10::ValueError>(
      [&] { parallel_model(pair, std::vector<torch::Device>{torch::kMeta}); },
      {"parameter on cpu"});
}

TEST(ToParallel, TrainsAndValidatesAsOnOneDevice) {
  for (const auto& devices : {kTwo, kThree}) {
    Learner alone(point_data(250, 101), plain_net(), with_sgd());
    Learner learn(point_data(250, 101), plain_net(), with_sgd());
    learn.to_parallel(devices);
    for (Learner* const each : {&alone, &learn}) each->fit(3);
    EXPECT_TRUE(all_close(parameters_of(learn), parameters_of(alone), 1e-4));
    const Validation actual = learn.validate(), expected = alone.validate();
    EXPECT_NEAR(actual.loss, expected.loss, 1e-5);
    EXPECT_EQ(actual.metrics[0].value, expected.metrics[0].value);
    EXPECT_TRUE(torch::allclose(
        learn.get_preds().preds,
        alone.get_preds().preds,
        1e-4,
        1e-5));
  }
}

TEST(ToParallel, CarriesEveryPrecisionIntoTheReplicas) {
  using Mode = void (*)(Learner&);
  const std::pair<Mode, torch::ScalarType> modes[] = {
      {[](Learner& l) { l.to_amp(); }, torch::kBFloat16},
      {[](Learner& l) { l.to_bf16(); }, torch::kBFloat16},
      {[](Learner& l) { l.to_fp16({.force_fp16 = true}); }, torch::kHalf}};
  for (const auto& [mode, type] : modes) {
    Pair pair;
    const auto first = [](const Tensors& outputs, const Tensors& targets) {
      return torch::nn::functional::cross_entropy(outputs[0], targets[0]);
    };
    // The same input twice.
    const torch::Tensor x = torch::randn({96, 2});
    DataBunch data = DataBunch::create(
        std::make_shared<TensorDataset>(
            Tensors{x, x},
            Tensors{(x.sum(1) > 0).to(torch::kLong)}),
        nullptr,
        {.batch_size = 32, .workers = 0});
    data.device = torch::kCPU;
    Learner learn(data, pair, quiet({.loss = Loss(first)}));
    mode(learn);
    learn.to_parallel(kTwo).fit(2, 1e-2);
    EXPECT_EQ(pair->seen->types, std::set<torch::ScalarType>{type});
    EXPECT_GT(pair->seen->threads.size(), 1);
  }
}

TEST(ToParallel, IsUndoneByOneDevice) {
  Pair pair;
  Learner learn(point_data(), pair, quiet());
  learn.to_parallel({torch::kCPU, torch::kCPU}).to_parallel({torch::kCPU});
  learn.model().forward({torch::ones({4, 2}), torch::ones({4, 2})});
  EXPECT_EQ(pair->seen->threads.size(), 1);
}

TEST(ToParallel, SummarizesAndSavesTheModelItself) {
  Learner learn(point_data(), point_net(), quiet());
  const int64_t parameters = learn.summary().parameters;
  learn.to_parallel(kTwo);
  EXPECT_EQ(learn.summary().parameters, parameters);
  EXPECT_EQ(learn.state_dict().size(), 9);
}

}  // namespace
}  // namespace tern::parallel_model_test
