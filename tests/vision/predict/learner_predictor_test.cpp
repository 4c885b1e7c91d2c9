// learn.predictor(): its predictions, and that it does not affect training.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>
#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/export/export_model.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/batch_nets.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/predict/predictor.h"
#include "tern/vision/predict/predictor_queue.h"

namespace tern::learner_predictor_test {
namespace {

namespace fs = std::filesystem;
using testing_support::point_data;
using testing_support::quiet;
using torch::Tensor;

/// Layers of a network for points, with dropout in training.
struct Layers {
  explicit Layers(torch::nn::Module& net)
      : first(net.register_module("first", torch::nn::Linear(2, 16))),
        norm(net.register_module("norm", torch::nn::BatchNorm1d(16))),
        dropout(net.register_module("dropout", torch::nn::Dropout(0.3))),
        last(net.register_module("last", torch::nn::Linear(16, 2))) {}

  Tensor forward(const Tensor& x) {
    return last(dropout(norm(first(x)).relu()));
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout dropout;
  torch::nn::Linear last;
};

/// A network that is built by its registered name.
struct NamedNetImpl : torch::nn::Module, HasArchitecture {
  Architecture architecture() const override { return {"named_points", "{}"}; }
  Tensor forward(const Tensor& x) { return layers.forward(x); }
  Layers layers{*this};
};

/// A network with clone() and a name that is not registered.
struct UnknownNetImpl : torch::nn::Cloneable<UnknownNetImpl>, HasArchitecture {
  UnknownNetImpl() { reset(); }
  void reset() override { layers.emplace(*this); }
  Architecture architecture() const override { return {"unknown", "{}"}; }
  Tensor forward(const Tensor& x) { return layers->forward(x); }
  std::optional<Layers> layers;
};

/// A network with neither.
struct PlainNetImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return layers.forward(x); }
  Layers layers{*this};
};

/// A network whose clone() does not copy the inner module, but shares it.
struct HalfClonedImpl : torch::nn::Cloneable<HalfClonedImpl> {
  HalfClonedImpl() : inner(std::make_shared<PlainNetImpl>()) { reset(); }
  void reset() override {
    head = register_module("head", torch::nn::Linear(2, 2));
    register_module("inner", inner);
  }
  Tensor forward(const Tensor& x) { return inner->forward(head(x)); }
  torch::nn::Linear head{nullptr};
  std::shared_ptr<PlainNetImpl> inner;
};

torch::jit::Module script_net() {
  torch::jit::Module net("net");
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_parameter(
      "w",
      torch::randn({2, 2}).requires_grad_(),
      /*is_buffer=*/false);
  net.define(R"(
    def forward(self, x):
      return torch.dropout(x, 0.3, self.training) @ self.w
  )");
  return net;
}

struct Net {
  const char* name;
  std::function<Model()> make;
};

std::vector<Net> nets() {
  return {
      {"named", [] { return Model(std::make_shared<NamedNetImpl>()); }},
      {"sequential",
       [] {
         return Model(torch::nn::Sequential(
             torch::nn::Linear(2, 16),
             torch::nn::BatchNorm1d(16),
             torch::nn::ReLU(),
             torch::nn::Dropout(0.3),
             torch::nn::Linear(16, 2)));
       }},
      {"unknown name",
       [] { return Model(std::make_shared<UnknownNetImpl>()); }},
      {"plain", [] { return Model(std::make_shared<PlainNetImpl>()); }},
      {"half cloned", [] { return Model(std::make_shared<HalfClonedImpl>()); }},
      {"adapters",
       [] {
         return add_lora(
             Model(std::make_shared<NamedNetImpl>()),
             {.rank = 2, .train = {"last"}});
       }},
      {"adapters of a plain one",
       [] {
         return add_lora(
             Model(std::make_shared<PlainNetImpl>()),
             {.rank = 2, .train = {"last"}});
       }},
      {"adapters of a sequential one",
       [] {
         return add_lora(
             Model(torch::nn::Sequential(
                 torch::nn::Linear(2, 16),
                 torch::nn::ReLU(),
                 torch::nn::Linear(16, 2))),
             {.rank = 2});
       }},
      {"script", [] { return Model(script_net()); }},
  };
}

struct Precision {
  const char* name;
  std::function<void(Learner&)> set;
};

std::vector<Precision> precisions() {
  return {
      {"fp32", [](Learner&) {}},
      {"fp16", [](Learner& learn) { learn.to_fp16(); }},
      {"bf16", [](Learner& learn) { learn.to_bf16(); }},
      {"amp", [](Learner& learn) { learn.to_amp(); }},
  };
}

class LearnerPredictor : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_architecture("named_points", [](const Architecture&) {
      return Model(std::make_shared<NamedNetImpl>());
    });
  }

  static Learner make(const Net& net, const Precision& precision) {
    torch::manual_seed(11);
    Learner learn(
        point_data(128, 40),
        net.make(),
        quiet({.loss = torch::nn::CrossEntropyLoss(), .seed = 3}));
    precision.set(learn);
    return learn;
  }

  static Tensor predictions_of(const Predictor& predictor, const Tensor& x) {
    Tensors rows;
    for (const Prediction& prediction : predictor.predict_batch(x)) {
      rows.push_back(prediction.probabilities);
    }
    return torch::stack(rows);
  }

  /// Calls `f(net, precision)` for each combination.
  template <class F>
  static void for_each(const F& f) {
    for (const Net& net : nets()) {
      for (const Precision& precision : precisions()) {
        SCOPED_TRACE(std::string(net.name) + ", " + precision.name);
        // A TorchScript module stays in fp32.
        if (net.name == std::string("script") &&
            precision.name != std::string("fp32")) {
          continue;
        }
        f(net, precision);
      }
    }
  }

  TempFolder temp_;
  const Tensor x_ = torch::linspace(-2, 2, 24).view({12, 2});
};

TEST_F(LearnerPredictor, PredictionsEqualTheExportedFiles) {
  for_each([&](const Net& net, const Precision& precision) {
    Learner learn = make(net, precision);
    learn.fit(1, 1e-2);
    const Tensor predictions = predictions_of(learn.predictor(), x_);
    const Tensor of_learner = torch::stack([&] {
      Tensors rows;
      for (const Tensor& x : x_.unbind()) {
        rows.push_back(learn.predict(x).probabilities);
      }
      return rows;
    }());
    EXPECT_TRUE(torch::allclose(predictions, of_learner, 0, 3e-2));
    if (!learn.model().module()) return;  // TorchScript is not exported
    const fs::path file = temp_ / "a.safetensors";
    learn.export_model(
        file,
        {.traced = net.name == std::string("unknown name")});
    const auto of_file = Predictor::load(
        file,
        {.device = torch::kCPU, .trusted = true, .exact = true});
    EXPECT_TRUE(torch::equal(predictions, predictions_of(of_file, x_)));
  });
}

TEST_F(LearnerPredictor, UsesOneDeviceForAModelOnSeveral) {
  const std::vector<Net> all = nets();
  for (const size_t i : {1, 2, 7}) {  // to_parallel clones them
    SCOPED_TRACE(all[i].name);
    Learner learn = make(all[i], precisions()[0]);
    learn.to_parallel({torch::kCPU, torch::kCPU}).fit(1, 1e-2);
    const Predictor predictor = learn.predictor();
    EXPECT_TRUE(torch::allclose(
        predictions_of(predictor, x_[0].unsqueeze(0))[0],
        learn.predict(x_[0]).probabilities));
    const Tensor before = predictions_of(predictor, x_);
    learn.fit(1, 1e-1);
    EXPECT_TRUE(torch::equal(predictions_of(predictor, x_), before));
  }
}

TEST_F(LearnerPredictor, HasTheCardOfTheExportedFile) {
  DataBunch data = point_data();
  data.outputs = {{.kind = TargetKind::multi_category, .threshold = 0.3}};
  data.preprocessing = ImagePreprocessing{
      .height = 1,
      .width = 2,
      .channels = 1,
      .mean = {0.5},
      .stddev = {1}};
  Learner learn(
      data,
      std::make_shared<NamedNetImpl>(),
      quiet({.loss = torch::nn::BCEWithLogitsLoss()}));
  learn.export_model(temp_ / "a.safetensors");
  const ModelCard of_file =
      Predictor::load(temp_ / "a.safetensors", {.device = torch::kCPU}).card();
  const Predictor predictor = learn.predictor();
  EXPECT_EQ(to_metadata(predictor.card()), to_metadata(of_file));
  EXPECT_TRUE(predictor.options().exact);
  EXPECT_EQ(predictor.options().device, torch::Device(torch::kCPU));
  EXPECT_EQ(predictor.predict(x_[0]).kind, TargetKind::multi_category);
}

// Before the first batch, neither the loss nor class names indicate classes.
TEST_F(LearnerPredictor, PredictsClassesBeforeTheFirstFit) {
  DataBunch data = point_data();
  data.classes.clear();
  Learner learn(data, std::make_shared<NamedNetImpl>(), quiet());
  const Prediction prediction = learn.predictor().predict(x_[0]);
  EXPECT_EQ(prediction.kind, TargetKind::category);
  EXPECT_NEAR(prediction.probabilities.sum().item<double>(), 1, 1e-6);
  EXPECT_EQ(prediction.label, learn.predict(x_[0]).label);
}

TEST_F(LearnerPredictor, PredictionsStayTheSameWhileTheLearnerTrains) {
  for_each([&](const Net& net, const Precision& precision) {
    Learner learn = make(net, precision);
    const Predictor predictor = learn.predictor();
    const Tensor before = predictions_of(predictor, x_);
    learn.fit(1, 1e-1);
    EXPECT_TRUE(torch::equal(predictions_of(predictor, x_), before));
    EXPECT_FALSE(torch::equal(predictions_of(learn.predictor(), x_), before));
  });
}

/// The weights and random numbers after two epochs with a callback.
struct Trained {
  Tensors weights;
  Tensor random;
};

Trained train(Learner learn, LambdaCallbackOptions options) {
  learn.fit(2, 1e-2, {std::make_shared<LambdaCallback>(std::move(options))});
  Trained trained{.weights = testing_support::parameters_of(learn)};
  for (const auto& item : learn.state_dict()) {
    trained.weights.push_back(item.value().clone());
  }
  trained.random = torch::rand({4});
  return trained;
}

TEST_F(LearnerPredictor, DoesNotAffectTraining) {
  for_each([&](const Net& net, const Precision& precision) {
    const Trained undisturbed = train(make(net, precision), {});
    const auto use = [&](Learner& learn) {
      std::vector<bool> trains, is_training;
      const auto look = [&] {
        for (const ModelTensor& p : learn.model().parameters()) {
          trains.push_back(p.tensor.requires_grad());
        }
        if (!learn.model().module()) return;
        for (const auto& module : learn.model().module()->modules()) {
          is_training.push_back(module->is_training());
        }
      };
      look();
      const auto before = std::pair(trains, is_training);
      predictions_of(learn.predictor(), x_);
      trains.clear();
      is_training.clear();
      look();
      EXPECT_EQ(std::pair(trains, is_training), before);
    };
    const auto expect_same = [&](LambdaCallbackOptions options) {
      const Trained disturbed = train(make(net, precision), std::move(options));
      EXPECT_TRUE(
          testing_support::all_equal(disturbed.weights, undisturbed.weights));
      EXPECT_TRUE(torch::equal(disturbed.random, undisturbed.random));
    };
    expect_same({.on_epoch_end = use});
    expect_same({.on_batch_end = use});
    expect_same({.on_epoch_begin = use, .on_backward_end = use});
  });
}

TEST_F(LearnerPredictor, PredictsInThreadsDuringAFit) {
  for (const Net& net : nets()) {
    SCOPED_TRACE(net.name);
    const Precision plain = precisions()[0];
    const Trained undisturbed = train(make(net, plain), {});
    std::mutex mutex;
    std::optional<Predictor> newest;
    Tensor expected;
    std::atomic<bool> is_done = false;
    std::atomic<int64_t> wrong = 0, asked = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (!is_done) {
          std::optional<Predictor> own;
          Tensor prediction;
          {
            const std::lock_guard lock(mutex);
            own = newest;
            prediction = expected;
          }
          if (!own) continue;
          wrong += !torch::equal(predictions_of(*own, x_), prediction);
          ++asked;
        }
      });
    }
    const Trained disturbed =
        train(make(net, plain), {.on_batch_end = [&](Learner& learn) {
                const Predictor predictor = learn.predictor();
                const Tensor prediction = predictions_of(predictor, x_);
                const int64_t before = asked;
                {
                  const std::lock_guard lock(mutex);
                  newest = predictor;
                  expected = prediction;
                }
                while (asked < before + 2) std::this_thread::yield();
              }});
    is_done = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(
        testing_support::all_equal(disturbed.weights, undisturbed.weights));
    EXPECT_TRUE(torch::equal(disturbed.random, undisturbed.random));
  }
}

TEST_F(LearnerPredictor, DoesNotAffectAResumedFit) {
  for (const Net& net : nets()) {
    SCOPED_TRACE(net.name);
    const Precision plain = precisions()[0];
    const auto fit = [&](Learner& learn, LambdaCallbackOptions options) {
      learn.add<LambdaCallback>(std::move(options)).fit(2, 1e-2);
    };
    Learner whole = make(net, plain);
    fit(whole, {});
    const fs::path folder = temp_ / net.name;
    const auto use = [&](Learner& learn) {
      predictions_of(learn.predictor(), x_);
      if (learn.state().iteration != 5) return;
      learn.save_checkpoint(folder);
      learn.request_stop();
    };
    Learner stopped = make(net, plain);
    fit(stopped, {.on_batch_end = use});
    ASSERT_EQ(stopped.state().result, FitResult::interrupted);
    Learner resumed = make(net, plain);
    resumed.resume(folder);
    fit(resumed, {.on_batch_end = [&](Learner& learn) {
          predictions_of(learn.predictor(), x_);
        }});
    EXPECT_TRUE(testing_support::all_equal(
        testing_support::parameters_of(resumed),
        testing_support::parameters_of(whole)));
  }
}

/// Takes two points; returns a class and a number.
struct TwoImpl : torch::nn::Cloneable<TwoImpl> {
  TwoImpl() { reset(); }
  void reset() override {
    head = register_module("head", torch::nn::Linear(2, 2));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& a, const Tensor& b) {
    return {head(a + b), a.sum(1)};
  }
  torch::nn::Linear head{nullptr};
};

TEST_F(LearnerPredictor, SupportsSeveralInputsAndOutputs) {
  const auto set = std::make_shared<TensorDataset>(
      Tensors{torch::randn({8, 2}), torch::randn({8, 2})},
      Tensors{torch::arange(8) % 2});
  DataBunch data = DataBunch::create(set, set, {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"below", "above"};
  data.outputs = {
      {.kind = TargetKind::category, .activation = Activation::softmax},
      {.kind = TargetKind::number, .names = {"sum"}}};
  const auto loss = [](const Tensors& outputs, const Tensors& targets) {
    return torch::nn::CrossEntropyLoss()(outputs[0], targets[0]);
  };
  Learner learn(data, std::make_shared<TwoImpl>(), quiet({.loss = loss}));
  const Tensors sample = {x_[0], x_[1]};
  const Prediction expected = learn.predict(sample);
  for (const auto precision : {torch::kFloat, torch::kBFloat16}) {
    const Predictor predictor = learn.predictor(
        {.device = torch::kCPU, .precision = precision, .batch_size = 2});
    PredictorQueue queue(predictor);
    const double by = precision == torch::kFloat ? 1e-6 : 2e-2;
    for (const Prediction& prediction :
         {predictor.predict(sample), queue.submit(sample).get()}) {
      EXPECT_TRUE(torch::allclose(
          prediction.probabilities,
          expected.probabilities,
          0,
          by));
      EXPECT_EQ(prediction.label, expected.label);
      EXPECT_NEAR(
          prediction.outputs[1].numbers[0],
          expected.outputs[1].numbers[0],
          by);
    }
  }
  // The Learner's own weights keep their dtype.
  EXPECT_EQ(learn.model().parameters()[0].tensor.scalar_type(), torch::kFloat);
}

TEST_F(LearnerPredictor, RejectsUnsupportedModelsAndOptions) {
  const auto set = std::make_shared<TensorDataset>(
      Tensors{torch::randn({8, 6, 8})},
      Tensors{torch::zeros({8, 1})});
  DataBunch data = DataBunch::create(set, set, {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(
      data,
      testing_support::nets_of_one_batch_size()[0].make(),
      quiet({.loss = torch::nn::MSELoss()}));
  expect_error<c10::ValueError>(
      [&] { learn.predictor(); },
      {"[Learner::predictor]",
       "nor clone()",
       "aten::stack",
       "HasArchitecture"});
  Learner named(point_data(), std::make_shared<NamedNetImpl>(), quiet());
  expect_error<c10::ValueError>(
      [&] { named.predictor({.precision = torch::kDouble}); },
      {"precision is Double"});
  expect_error<c10::ValueError>(
      [&] { named.predictor({.device = torch::Device(torch::kCUDA, 99)}); },
      {"cuda:99", "PredictorOptions::device"});
}

TEST_F(LearnerPredictor, AModelInMemoryUsesItsCard) {
  const Model net = std::make_shared<NamedNetImpl>();
  const Predictor predictor(
      net,
      {.outputs =
           {{.kind = TargetKind::category,
             .names = {"below", "above"},
             .activation = Activation::softmax}}},
      {.device = torch::kCPU, .exact = true});
  EXPECT_FALSE(net.is_training());
  const Prediction prediction = predictor.predict(x_[0]);
  EXPECT_EQ(prediction.label, prediction.index == 0 ? "below" : "above");
  EXPECT_NEAR(prediction.probabilities.sum().item<double>(), 1, 1e-6);
}

}  // namespace
}  // namespace tern::learner_predictor_test
