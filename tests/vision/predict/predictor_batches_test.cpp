// A Predictor returns the network's outputs for every batch size, even if
// forward() uses the batch size in a computation.

#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <sys/resource.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/nn/functional/upsampling.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/distributed/data_parallel.h"
#include "tern/learner/export/embedded_torchscript.h"
#include "tern/learner/export/export_model.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/batch_nets.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/predict/predictor.h"

namespace tern::predictor_batches_test {
namespace {

namespace fs = std::filesystem;
using testing_support::BatchNet;
using testing_support::BatchNetImpl;
using testing_support::quiet;
using torch::Tensor;

/// Exports a network that takes inputs of this shape and dtype.
void export_net(
    const Model& model,
    const Tensor& inputs,
    const fs::path& file,
    const ExportOptions& options = {}) {
  const auto set = std::make_shared<TensorDataset>(
      Tensors{inputs},
      Tensors{torch::zeros({inputs.size(0), 1})});
  DataBunch data = DataBunch::create(set, set, {.batch_size = 2, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, model, quiet({.loss = torch::nn::MSELoss()}));
  learn.export_model(file, options);
}

/// Expects the network's outputs for batches of all these sizes, in this order.
void expect_predictions(
    const Predictor& predictor,
    Model model,
    const Tensor& x,
    const std::vector<int64_t>& sizes) {
  const torch::NoGradGuard no_grad;
  model.eval();
  for (const int64_t size : sizes) {
    const Tensor batch = x.narrow(0, 0, size);
    const Tensor expected = model.forward({batch})[0];
    const double largest = expected.abs().max().item<double>();
    const auto predictions = predictor.predict_batch(batch);
    ASSERT_EQ(std::ssize(predictions), size);
    for (int64_t i = 0; i < size; ++i) {
      const Tensor& own = predictions[i].probabilities;
      ASSERT_TRUE(own.defined()) << "sample " << i << " of " << size;
      EXPECT_LE(
          (own - expected[i]).abs().max().item<double>(),
          1e-4 * largest + 1e-7)
          << "sample " << i << " of " << size;
    }
  }
}

/// Registered by its name; needs no graph.
struct NamedNetImpl : BatchNetImpl, HasArchitecture {
  explicit NamedNetImpl(const BatchNet& net)
      : BatchNetImpl(net.forward), network("batches: " + net.name) {}
  Architecture architecture() const override { return {network, "{}"}; }
  std::string network;
};

// Predicting any number of samples needs the memory of only one batch.
TEST(PredictorBatches, ArePreparedOneAtATime) {
  const TempFolder temp;
  export_net(
      simple_cnn({3, 4, 2}),
      torch::rand({4, 3, 16, 16}),
      temp / "a.safetensors");
  const Predictor predictor = Predictor::load(
      temp / "a.safetensors",
      {.device = torch::kCPU, .batch_size = 4, .exact = true});
  std::vector<Tensor> samples(10, torch::rand({3, 16, 16}));
  samples.back() = torch::zeros({});
  const test::OpCalls layers("aten::conv2d");  // two per batch
  EXPECT_THROW(predictor.predict_batch(samples), c10::ValueError);
  EXPECT_EQ(layers.count(), 2 * 2);
  samples.back() = samples[0];
  EXPECT_EQ(predictor.predict_batch(samples).size(), 10U);
  EXPECT_EQ(layers.count(), 2 * (2 + 3));
}

// Returns the peak memory of this process in bytes.
int64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

// Shapes can only be compared once the network exists.
TEST(PredictorBatches, StopsBuildingAHugeNetworkDescribedByAFile) {
  const TempFolder temp;
  const fs::path file = temp / "a.safetensors", huge = temp / "huge";
  export_net(simple_cnn({3, 4, 2}), torch::rand({4, 3, 16, 16}), file);
  for (const char* const channels :
       {"[3, 20000, 20000, 2]",
        "[3, 1000, 1000, 1000, 1000, 1000, 1000, 2]",
        "[3, 1000000000000, 2]"}) {
    auto metadata = safetensors_metadata(file);
    std::string& options = metadata["tern.options"];
    options.replace(options.find("[3, 4, 2]"), 9, channels);
    save_safetensors(huge, load_weights(file), metadata, {.checksum = true});
    const int64_t before = peak_memory();
    expect_error<DataError>(
        [&] { Predictor::load(huge, {.device = torch::kCPU}); },
        {"huge: describes a network that is much larger"});
    EXPECT_LT(peak_memory() - before, int64_t{300} << 20);
  }
  Predictor::load(file, {.device = torch::kCPU});
}

// The profiler and the allocation limit of the test above are stored in the
// same thread-local slot.
TEST(PredictorBatches, LoadsAFileUnderAProfiler) {
  const TempFolder temp;
  const fs::path file = temp / "a.safetensors";
  export_net(simple_cnn({3, 4, 2}), torch::rand({4, 3, 16, 16}), file);
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities = {
      profiler::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  Predictor::load(file, {.device = torch::kCPU})
      .predict(torch::rand({3, 16, 16}));
  EXPECT_FALSE(profiler::disableProfiler()->events().empty());
}

// Regression: an LSTM wrote past the state of its tracing batch.
TEST(PredictorBatches, NetworksThatReadTheBatchSizeSupportAnySize) {
  const TempFolder temp;
  std::vector<BatchNet> nets = testing_support::nets_of_one_batch_size();
  for (BatchNet& net : testing_support::nets_that_read_the_batch_size()) {
    nets.push_back(std::move(net));
  }
  nets.push_back(testing_support::net_of_chunks());
  const Tensor x = torch::randn({64, 6, 8});
  for (const BatchNet& net : nets) {
    SCOPED_TRACE(net.name);
    const auto make = [net] { return std::make_shared<NamedNetImpl>(net); };
    register_architecture("batches: " + net.name, [make](const Architecture&) {
      return Model(make());
    });
    const auto module = make();
    export_net(Model(module), x.narrow(0, 0, 4), temp / "a.safetensors");
    const auto predictor =
        Predictor::load(temp / "a.safetensors", {.device = torch::kCPU});
    expect_predictions(predictor, Model(module), x, {1, 2, 5, 64, 2, 64, 3});
  }
}

TEST(PredictorBatches, RejectsAGraphWithAFixedBatchSize) {
  const TempFolder temp;
  for (const BatchNet& net : testing_support::nets_of_one_batch_size()) {
    SCOPED_TRACE(net.name);
    expect_error<c10::ValueError>(
        [&] {
          export_net(
              net.make(),
              torch::randn({4, 6, 8}),
              temp / "a.safetensors");
        },
        {"[Learner::export_model] " + net.place,
         "for a batch of 2",
         "for a batch of 5",
         "traced with two samples",
         "register_architecture"});
    EXPECT_EQ(temp.entries(), 0);
  }
}

// Regression: the graph was exported for two samples and wrong for three.
TEST(PredictorBatches, OtherGraphsSupportAnyBatchSize) {
  const TempFolder temp;
  const Tensor x = torch::randn({64, 6, 8});
  std::vector<BatchNet> nets = testing_support::nets_of_any_batch_size();
  for (BatchNet& net : testing_support::nets_that_read_the_batch_size()) {
    nets.push_back(std::move(net));
  }
  for (const BatchNet& net : nets) {
    SCOPED_TRACE(net.name);
    export_net(net.make(), x.narrow(0, 0, 4), temp / "a.safetensors");
    const auto predictor = Predictor::load(
        temp / "a.safetensors",
        {.device = torch::kCPU, .trusted = true});
    expect_predictions(predictor, net.make(), x, {1, 2, 5, 64});
  }
}

// Regression: the output of the second device was a constant of the graph.
TEST(PredictorBatches, AParallelModelIsExportedLikeTheOriginal) {
  const TempFolder temp;
  const fs::path file = temp / "a.safetensors";
  const torch::nn::Sequential net(torch::nn::Linear(8, 3));
  const Tensor x = torch::randn({64, 8});
  export_net(
      parallel_model(net, {torch::kCPU, torch::kCPU}),
      x.narrow(0, 0, 4),
      file);
  const auto predictor =
      Predictor::load(file, {.device = torch::kCPU, .trusted = true});
  expect_predictions(predictor, net, x, {1, 2, 5, 64});
}

// A file as written by older versions. Regression: heap corruption.
TEST(PredictorBatches, RejectsADifferentBatchSizeForAnOlderFileWithAState) {
  const TempFolder temp;
  const fs::path file = temp / "a.safetensors";
  const Tensor x = torch::randn({64, 6, 8});
  export_net(
      testing_support::nets_of_any_batch_size()[0].make(),
      x.narrow(0, 0, 4),
      file);
  const BatchNet lstm = testing_support::nets_that_read_the_batch_size()[0];
  Model model = lstm.make();
  {
    const torch::NoGradGuard no_grad;
    std::ostringstream stream;
    trace(model, {x.narrow(0, 0, 2)}).save(stream);
    std::string bytes = stream.str();
    const Tensor graph =
        torch::from_blob(bytes.data(), {std::ssize(bytes)}, torch::kByte);
    const auto metadata = safetensors_metadata(file);
    save_safetensors(
        file,
        {{kGraph, graph.clone()}},
        metadata,
        {.checksum = true});
  }
  for (const bool exact : {true, false}) {
    const auto predictor = Predictor::load(
        file,
        {.device = torch::kCPU, .trusted = true, .exact = exact});
    expect_predictions(predictor, model, x, {2});
    for (const int64_t size : {1, 3, 64}) {
      expect_error<c10::ValueError>(
          [&] { predictor.predict_batch(x.narrow(0, 0, size)); },
          {"[Model] aten::lstm of the module lstm has a state for 2 samples "
           "and got " +
           std::to_string(size)});
    }
    expect_predictions(predictor, model, x, {2});
  }
}

// ---- Random networks ----

using Layer = std::function<Tensor(const Tensor&)>;
using Generator = std::mt19937;

/// Random layers, chosen by a seed, on [N, T, 8] or [N, 8, H, W].
struct DrawnNetImpl : torch::nn::Module, HasArchitecture {
  DrawnNetImpl(int seed, bool has_images) : seed_(seed), images_(has_images) {
    torch::manual_seed(seed);
    Generator random(seed);
    for (int count = 3 + static_cast<int>(random() % 4); count > 0; --count) {
      layers_.push_back(has_images ? of_images(random) : of_rows(random));
    }
    head_ = register_module("head", torch::nn::Linear(8, 3));
  }

  Architecture architecture() const override {
    return {
        images_ ? "drawn of images" : "drawn of rows",
        fmt::format(R"({{"seed": {}}})", seed_)};
  }

  Tensor forward(Tensor x) {
    for (const Layer& layer : layers_) x = layer(x);
    return head_(images_ ? x.mean({2, 3}) : x.mean(1));
  }

 private:
  template <class Holder>
  Holder add(Holder module) {
    return register_module(std::to_string(children().size()), module);
  }

  Layer of_rows(Generator& random) {
    switch (random() % 13) {
      case 0:
        return add(torch::nn::Linear(8, 8));
      case 1:
        return add(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
      case 2:
        return [](const Tensor& x) { return torch::gelu(x); };
      case 3: {
        auto lstm = add(torch::nn::LSTM(
            torch::nn::LSTMOptions(8, 8).num_layers(2).batch_first(true)));
        return [lstm](const Tensor& x) mutable { return std::get<0>(lstm(x)); };
      }
      case 4: {
        auto lstm = add(
            torch::nn::LSTM(torch::nn::LSTMOptions(8, 4).bidirectional(true)));
        return [lstm](const Tensor& x) mutable {
          return std::get<0>(lstm(x.transpose(0, 1))).transpose(0, 1);
        };
      }
      case 5: {
        auto gru =
            add(torch::nn::GRU(torch::nn::GRUOptions(8, 8).batch_first(true)));
        return [gru](const Tensor& x) mutable { return std::get<0>(gru(x)); };
      }
      case 6: {
        auto rnn =
            add(torch::nn::RNN(torch::nn::RNNOptions(8, 8).batch_first(true)));
        return [rnn](const Tensor& x) mutable { return std::get<0>(rnn(x)); };
      }
      case 7: {
        auto conv = add(
            torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 8, 3).padding(1)));
        return [conv](const Tensor& x) mutable {
          return conv(x.transpose(1, 2)).transpose(1, 2);
        };
      }
      case 8: {
        auto attention = add(torch::nn::MultiheadAttention(8, 2));
        return [attention](const Tensor& x) mutable {
          const Tensor rows = x.transpose(0, 1);
          return std::get<0>(attention(rows, rows, rows)).transpose(0, 1) + x;
        };
      }
      case 9:
        return [](const Tensor& x) {
          return x.reshape({x.size(0), -1}).view({x.size(0), x.size(1), 8});
        };
      case 10:
        return [](const Tensor& x) {
          return torch::cat({torch::zeros({x.size(0), 1, 8}), x}, 1);
        };
      case 11:
        return [](const Tensor& x) {
          return x + torch::arange(x.size(1)).view({-1, 1}) * 0.1;
        };
      default:
        return [](const Tensor& x) {
          return x - x.sum(0) / static_cast<double>(x.size(0));
        };
    }
  }

  Layer of_images(Generator& random) {
    switch (random() % 9) {
      case 0:
      case 1: {
        auto conv = add(torch::nn::Conv2d(
            torch::nn::Conv2dOptions(8, 8, 3).padding(1).bias(false)));
        auto norm = add(torch::nn::BatchNorm2d(8));
        return [conv, norm](const Tensor& x) mutable {
          return norm(conv(x)).relu();
        };
      }
      case 2: {
        auto conv = add(torch::nn::Conv2d(
            torch::nn::Conv2dOptions(8, 8, 3).padding(1).groups(4)));
        return [conv](const Tensor& x) mutable { return conv(x) + x; };
      }
      case 3:
        return [](const Tensor& x) { return torch::silu(x); };
      case 4:
        return [](const Tensor& x) {  // a channel shuffle
          const int64_t n = x.size(0), h = x.size(2), w = x.size(3);
          return x.view({n, 2, 4, h, w}).transpose(1, 2).reshape(x.sizes());
        };
      case 5:
        return [](const Tensor& x) {
          return x.reshape({-1, 2, 4, x.size(2), x.size(3)})
              .transpose(1, 2)
              .flatten(1, 2);
        };
      case 6:
        return [](const Tensor& x) {
          return x.size(2) > 4 ? torch::max_pool2d(x, 2) : x;
        };
      case 7: {
        auto scale = add(torch::nn::Linear(8, 8));
        return [scale](const Tensor& x) mutable {
          const Tensor by = scale(x.mean({2, 3})).sigmoid();
          return x * by.view({x.size(0), 8, 1, 1});
        };
      }
      default:
        return [](const Tensor& x) {
          namespace F = torch::nn::functional;
          return F::interpolate(
              torch::adaptive_avg_pool2d(x, {4, 4}),
              F::InterpolateFuncOptions().size(
                  std::vector<int64_t>{x.size(2), x.size(3)}));
        };
    }
  }

  int seed_;
  bool images_;
  std::vector<Layer> layers_;
  torch::nn::Linear head_{nullptr};
};

TEST(PredictorBatches, RandomNetworksSupportAnyBatchSize) {
  const TempFolder temp;
  const fs::path file = temp / "a.safetensors";
  for (const bool has_images : {false, true}) {
    register_architecture(
        has_images ? "drawn of images" : "drawn of rows",
        [=](const Architecture& how) {
          const size_t seed = how.options.find_first_of("0123456789");
          return Model(std::make_shared<DrawnNetImpl>(
              std::stoi(how.options.substr(seed)),
              has_images));
        });
    for_random_cases(30, [&](uint64_t seed_of_case) {
      const auto seed = static_cast<int>(seed_of_case % 1'000'000'000);
      const Model model(std::make_shared<DrawnNetImpl>(seed, has_images));
      const Tensor x =
          has_images ? torch::randn({64, 8, 8, 8}) : torch::randn({64, 5, 8});
      export_net(model, x.narrow(0, 0, 4), file);
      const auto predictor = Predictor::load(file, {.device = torch::kCPU});
      std::vector<int64_t> sizes = {1, 2, 5, 64, 1, 3, 2, 5, 64, 3};
      std::shuffle(sizes.begin(), sizes.end(), Generator(seed));
      expect_predictions(predictor, model, x, sizes);
    });
  }
}

}  // namespace
}  // namespace tern::predictor_batches_test
