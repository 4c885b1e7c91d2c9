#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/activation_checkpoint.h"
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

LearnerOptions with_sgd() {
  LearnerOptions options = quiet();
  options.optimizer =
      optimizer<optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  options.metrics = {accuracy()};
  return options;
}

bool all_close(const Tensors& a, const Tensors& b, double tolerance) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!torch::allclose(a[i], b[i], tolerance, tolerance)) return false;
  }
  return a.size() == b.size();
}

// Two inputs and two outputs. Records the threads and dtypes in which it
// computes.
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

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& entry : state) {
    copy.insert(entry.key(), entry.value().detach().clone());
  }
  return copy;
}

TEST(ParallelModel, SplitsAllInputsAndConcatenatesAllOutputs) {
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

/// A net that LibTorch's Cloneable clones, with another module inside.
template <class Inner>
struct AroundImpl : torch::nn::Cloneable<AroundImpl<Inner>> {
  AroundImpl() { this->reset(); }
  void reset() override {
    first = this->register_module("first", torch::nn::Linear(2, 8));
    inner = this->register_module("inner", std::make_shared<Inner>());
    last = this->register_module("last", torch::nn::Linear(8, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(inner->forward(first(x)));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  std::shared_ptr<Inner> inner;
};

template <class Inner>
void expect_same_as_alone() {
  torch::manual_seed(3);
  const auto net = std::make_shared<AroundImpl<Inner>>();
  const torch::Tensor x = torch::randn({7, 2});
  for (const bool trains : {true, false}) {
    net->train(trains);
    const torch::Tensor alone = net->forward(x);
    const Model model = parallel_model(net, kThree);
    EXPECT_TRUE(torch::allclose(Model(model).forward({x})[0], alone));
  }
}

struct CheckpointedImpl : ActivationCheckpointImpl {
  CheckpointedImpl()
      : ActivationCheckpointImpl(
            torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::Tanh())) {
  }
};

/// Cloneable, with tensors of several dtypes.
struct MaskedImpl : torch::nn::Cloneable<MaskedImpl> {
  MaskedImpl() { reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::rand({8}));
    mask = register_buffer("mask", torch::rand({8}) > 0.5);
    register_buffer("half", torch::rand({2}, torch::kHalf));
    register_buffer("bytes", torch::ones({2}, torch::kByte));
    register_buffer("none", torch::zeros({0, 2}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight * mask; }
  torch::Tensor weight, mask;
};

struct StatelessImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return is_training() ? x.tanh() : x.relu();
  }
};

TEST(ParallelModel, ClonesCheckpointsAndModulesWithoutState) {
  expect_same_as_alone<CheckpointedImpl>();
  expect_same_as_alone<StatelessImpl>();
  expect_same_as_alone<MaskedImpl>();
}

struct WithParameter : torch::nn::Module {
  WithParameter() { weight = register_parameter("weight", torch::ones({8})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};
struct WithBuffer : torch::nn::Module {
  WithBuffer() {
    count = register_buffer("count", torch::zeros({}, torch::kLong));
    register_buffer("flag", torch::ones({}, torch::kBool));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + count; }
  torch::Tensor count;
};
struct WithLayer : torch::nn::Module {
  WithLayer() { layer = register_module("layer", torch::nn::Linear(8, 8)); }
  torch::Tensor forward(const torch::Tensor& x) { return layer(x); }
  torch::nn::Linear layer{nullptr};
};

// LibTorch clones these without an error, but with the initial values of their
// constructors. A clone of WithParameter is correct only until the first step.
TEST(ParallelModel, NamesWhatCannotBeCloned) {
  const auto refuses = [](const Model& model, const std::string& name) {
    const StateDict before = copy_of(model.state_dict());
    expect_error<c10::NotImplementedError>(
        [&] { parallel_model(model, kTwo); },
        {"\"inner." + name + "\"", ": inner (", "torch::nn::Cloneable"});
    for (const auto& entry : model.state_dict()) {
      EXPECT_TRUE(entry.value().equal(before[entry.key()])) << entry.key();
    }
    parallel_model(model, {torch::kCPU});  // needs no clone
  };
  refuses(std::make_shared<AroundImpl<WithParameter>>(), "weight");
  refuses(std::make_shared<AroundImpl<WithBuffer>>(), "count");
  const auto net = std::make_shared<AroundImpl<WithLayer>>();
  refuses(net, "layer.weight");
  expect_error<c10::NotImplementedError>(
      [&] {
        data_parallel(net, torch::ones({4, 2}), kTwo);
      },
      {"\"inner.layer.weight\""});
}

// The check temporarily changes the tensors' values.
TEST(ParallelModel, LeavesTheModelUnchanged) {
  torch::nn::Sequential net = point_net();
  const auto x = torch::randn({16, 2});
  net->forward(x).sum().backward();
  const Model model(net);
  const StateDict before = copy_of(model.state_dict());
  Tensors gradients;
  std::vector<const void*> places;
  for (const ModelTensor& p : model.parameters()) {
    gradients.push_back(p.tensor.grad().clone());
    places.push_back(p.tensor.const_data_ptr());
  }
  parallel_model(model, kTwo);
  for (const auto& entry : model.state_dict()) {
    EXPECT_TRUE(entry.value().equal(before[entry.key()])) << entry.key();
  }
  const auto after = model.parameters();
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_TRUE(after[i].tensor.grad().equal(gradients[i])) << i;
    EXPECT_EQ(after[i].tensor.const_data_ptr(), places[i]) << i;
    EXPECT_TRUE(after[i].tensor.requires_grad()) << i;
  }
}

TEST(ParallelModel, RejectsWhatItCannotDo) {
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

TEST(ToParallel, TrainsAndValidatesLikeOneDevice) {
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

TEST(ToParallel, DropoutIsReproducible) {
  const auto weights = [] {
    torch::nn::Sequential net = plain_net();
    net->push_back(torch::nn::Dropout(0.3));
    Learner learn(point_data(250, 101), net, with_sgd());
    learn.to_parallel(kThree).fit(2);
    return copy_of(learn.state_dict());
  };
  const StateDict first = weights();
  for (int i = 0; i < 5; ++i) {
    const StateDict again = weights();
    for (const auto& entry : first) {
      EXPECT_TRUE(entry.value().equal(again[entry.key()])) << entry.key();
    }
  }
}

TEST(ToParallel, ComputesEveryPrecisionInTheReplicas) {
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

TEST(ToParallel, IsUndoneBySelectingOneDevice) {
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
