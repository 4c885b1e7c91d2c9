#include "tern/learner/export/torchscript.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <tuple>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/distributed/data_parallel.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/batch_nets.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::torchscript_test {
namespace {

using testing_support::point_data;
using testing_support::point_net;
using testing_support::quiet;
namespace fs = std::filesystem;

// Nested modules, a buffer, and a tensor with two names.
struct NestedImpl : torch::nn::Module {
  NestedImpl()
      : body(register_module(
            "body",
            torch::nn::Sequential(
                torch::nn::Conv2d(
                    torch::nn::Conv2dOptions(3, 4, 3).padding(1).bias(false)),
                torch::nn::BatchNorm2d(4)))),
        head(register_module("head", torch::nn::Linear(4, 2))),
        shift(register_buffer("shift", torch::tensor({0.5f, -1.f}))) {
    register_parameter("tied", head->bias);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head->forward(body->forward(x).relu().mean({2, 3})) + shift;
  }
  torch::nn::Sequential body;
  torch::nn::Linear head;
  torch::Tensor shift;
};

/// If all tests of a build run together, Python checks this folder too.
fs::path shared_folder(const TempFolder& temp) {
  const char* const shared = std::getenv("TERN_TORCHSCRIPT_FOLDER");
  const fs::path folder = shared != nullptr ? fs::path(shared) : temp.path();
  make_folders(folder);
  return folder;
}

TEST(TorchScript, PreservesOutputsAndNames) {
  const TempFolder temp;
  const fs::path folder = shared_folder(temp);
  torch::manual_seed(5);
  Model model(std::make_shared<NestedImpl>());
  model.forward(
      {torch::randn({8, 3, 6, 6})});  // updates the running statistics
  const torch::Tensor input = torch::randn({5, 3, 6, 6});

  export_torchscript(model, folder / "nested.pt", {input.slice(0, 0, 2)});
  EXPECT_TRUE(model.is_training());
  Model loaded = load_torchscript_trusted(folder / "nested.pt");
  model.eval();
  EXPECT_FALSE(loaded.is_training());
  const torch::NoGradGuard no_grad;
  const torch::Tensor expected = model.forward({input})[0];
  EXPECT_TRUE(torch::equal(loaded.forward({input})[0], expected));
  const StateDict state = model.state_dict();
  EXPECT_EQ(loaded.state_dict().keys(), state.keys());
  for (const auto& item : loaded.state_dict()) {
    EXPECT_TRUE(torch::equal(item.value(), state[item.key()])) << item.key();
  }

  StateDict oracle;
  oracle.insert("input", input);
  oracle.insert("output", expected);
  for (const auto& item : state) {
    oracle.insert("state." + item.key(), item.value());
  }
  save_pth(folder / "expected.pth", oracle);
}

struct PairImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& a,
      const torch::Tensor& b) {
    return {a + b, a * b};
  }
};

TEST(TorchScript, SupportsSeveralInputsAndOutputs) {
  const TempFolder temp;
  const Tensors inputs = {torch::randn({2, 3}), torch::randn({2, 3})};
  Model model(std::make_shared<PairImpl>());
  write_file(temp / "pair.pt.sha256", "of an earlier file");
  export_torchscript(model, temp / "pair.pt", inputs);
  EXPECT_FALSE(fs::exists(temp / "pair.pt.sha256"));
  Model loaded = load_torchscript_trusted(temp / "pair.pt");
  EXPECT_TRUE(testing_support::all_equal(
      loaded.forward(inputs),
      model.forward(inputs)));
}

TEST(TorchScript, ALoadedModelCanBeTrainedFurther) {
  const TempFolder temp;
  Learner first(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  first.export_torchscript(temp / "a.pt", {torch::randn({4, 2})});
  Learner second(
      point_data(),
      load_torchscript_trusted(temp / "a.pt"),
      quiet({.metrics = {accuracy()}}));
  second.fit(3, 1e-2);
  EXPECT_GT(second.validate().metrics[0].value, 0.9);
}

// A trace keeps the mode in which it was recorded; `train` and `eval` do not
// change it.
TEST(TorchScript, WarnsThatATraceKeepsItsMode) {
  const auto said_of = [](const torch::jit::Module& module) {
    std::string said;
    Learner learn(point_data(), module, {.sink = [&](const std::string& line) {
                    said += line + "\n";
                  }});
    const std::string at_first = std::exchange(said, "");
    learn.fit(1);
    return std::pair(at_first, said);
  };
  const auto traced = [](Model& model) {
    const torch::NoGradGuard no_grad;
    return trace(model, {torch::randn({4, 2})});
  };
  torch::nn::Sequential net(
      torch::nn::Linear(2, 8),
      torch::nn::BatchNorm1d(8),
      torch::nn::Dropout(0.5),
      torch::nn::Dropout(0),
      torch::nn::BatchNorm1d(
          torch::nn::BatchNormOptions(8).track_running_stats(false)),
      torch::nn::Linear(8, 2));
  const auto contains = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  Model model(net);
  for (const bool trains : {true, false}) {
    model.train(trains);
    const auto [at_first, in_fit] = said_of(traced(model));
    EXPECT_EQ(
        contains(at_first, "batch_norm and dropout in training mode"),
        trains)
        << at_first;
    EXPECT_EQ(
        contains(in_fit, "batch_norm and dropout in evaluation mode"),
        !trains)
        << in_fit;
    EXPECT_EQ(contains(at_first, "TorchScript"), trains) << at_first;
    EXPECT_EQ(contains(in_fit, "TorchScript"), !trains) << in_fit;
  }

  // No warning for modules that read their mode, or without mode-dependent
  // layers.
  torch::jit::Module scripted("net");
  scripted.register_parameter(
      "weight",
      torch::randn({2, 2}).requires_grad_(),
      /*is_buffer=*/false);
  scripted.register_attribute("training", c10::BoolType::get(), true);
  scripted.define(
      "def forward(self, x):\n"
      "  return torch.dropout(x @ self.weight, 0.5, self.training)\n");
  Model plain =
      torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::ReLU());
  for (const torch::jit::Module& module : {scripted, traced(plain)}) {
    const auto [at_first, in_fit] = said_of(module);
    EXPECT_FALSE(contains(at_first + in_fit, "TorchScript")) << at_first;
  }
}

TEST(TorchScript, A16BitModelIsExportedInFp32AndKeepsTraining) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  learn.to_bf16().fit(1);
  const torch::Tensor input = torch::randn({4, 2});
  const torch::Tensor before = learn.model().parameters()[0].tensor.clone();
  learn.export_torchscript(temp / "a.pt", {input});
  EXPECT_TRUE(torch::equal(learn.model().parameters()[0].tensor, before));

  Model loaded = load_torchscript_trusted(temp / "a.pt");
  const StateDict exact = learn.state_dict();
  for (const auto& item : loaded.state_dict()) {
    EXPECT_TRUE(torch::equal(item.value(), exact[item.key()])) << item.key();
  }
  learn.fit(1);
}

struct DiceImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return x + torch::rand_like(x);
  }
};

TEST(TorchScript, ALoadedModelReportsUnsupportedInputs) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  learn.export_torchscript(temp / "net.pt", {torch::ones({1, 2})});
  Model loaded = load_torchscript_trusted(temp / "net.pt");
  expect_error<c10::ValueError>(
      [&] {
        loaded.forward({torch::ones({4, 5})});
      },
      {"[Model] dimension 1 of input 0 has a size of 5; expected 2",
       "Give it inputs of that size"});
  expect_error<c10::ValueError>(
      [&] { loaded.forward({torch::ones({2})}); },
      {"[Model] input 0 has 1 dimensions; expected 2"});
  expect_error<c10::ValueError>(
      [&] { loaded.forward({}); },
      {"[Model]", "missing value for argument"});
  EXPECT_EQ(loaded.forward({torch::ones({4, 2})})[0].size(0), 4);
}

TEST(TorchScript, RejectsModelsThatATraceCannotRepresent) {
  const TempFolder temp;
  expect_error<c10::ValueError>(
      [&] {
        export_torchscript(
            std::make_shared<DiceImpl>(),
            temp / "a.pt",
            {torch::zeros({2})});
      },
      {"deterministic forward"});
  expect_error<c10::ValueError>(
      [&] { export_torchscript(point_net(), temp / "a.pt", {}); },
      {"no example input"});
  EXPECT_FALSE(fs::exists(temp / "a.pt"));
}

TEST(TorchScript, RejectsATraceThatHardCodesItsBatchSize) {
  const TempFolder temp;
  for (const auto& net : testing_support::nets_of_one_batch_size()) {
    SCOPED_TRACE(net.name);
    expect_error<c10::ValueError>(
        [&] {
          export_torchscript(
              net.make(),
              temp / "a.pt",
              {torch::randn({2, 6, 8})});
        },
        {"[export_torchscript] " + net.place,
         "for a batch of 2",
         "for a batch of 5",
         "whole batches",
         "dynamic_batch"});
    EXPECT_EQ(temp.entries(), 0);
  }
}

// Regression: the file returned wrong outputs for other batch sizes, and an
// LSTM in it wrote past the end of its state. Later versions rejected such
// models.
TEST(TorchScript, SupportsAnyBatchSize) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  auto nets = testing_support::nets_of_any_batch_size();
  for (auto& net : testing_support::nets_that_read_the_batch_size()) {
    nets.push_back(std::move(net));
  }
  for (const auto& net : nets) {
    SCOPED_TRACE(net.name);
    for (const int64_t traced : {1, 4}) {
      Model model = net.make();
      const torch::Tensor x = torch::randn({64, 6, 8});
      export_torchscript(model, temp / "a.pt", {x.narrow(0, 0, traced)});
      Model loaded = load_torchscript_trusted(temp / "a.pt");
      for (const int64_t size : {1, 2, 5, 64}) {
        const Tensors batch = {x.narrow(0, 0, size)};
        EXPECT_TRUE(
            torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]))
            << size;
      }
    }
  }
}

TEST(TorchScript, AFixedBatchSupportsOnlyThatSize) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  auto nets = testing_support::nets_of_one_batch_size();
  nets.push_back(testing_support::nets_that_read_the_batch_size()[0]);
  for (const auto& net : nets) {
    SCOPED_TRACE(net.name);
    Model model = net.make();
    const torch::Tensor x = torch::randn({3, 6, 8});
    export_torchscript(model, temp / "a.pt", {x}, {.dynamic_batch = false});
    Model loaded = load_torchscript_trusted(temp / "a.pt");
    EXPECT_TRUE(torch::allclose(loaded.forward({x})[0], model.forward({x})[0]));
    expect_error<c10::ValueError>(
        [&] {
          loaded.forward({torch::randn({7, 6, 8})});
        },
        {"[Model] the batch has 7 samples; expected 3", "dynamic_batch"});
    // As LibTorch and Python run the file.
    torch::jit::Module module = torch::jit::load((temp / "a.pt").string());
    expect_error<std::exception>(
        [&] {
          module.forward({torch::randn({7, 6, 8})});
        },
        {"the batch has 7 samples; expected 3"});
  }
}

TEST(TorchScript, PythonSupportsOnlyTheFixedBatchSize) {
  const TempFolder temp;
  const fs::path file = shared_folder(temp) / "lstm.pt";
  const auto lstm = testing_support::nets_that_read_the_batch_size()[0];
  export_torchscript(
      lstm.make(),
      file,
      {torch::randn({2, 6, 8})},
      {.dynamic_batch = false});
  EXPECT_TRUE(fs::exists(file));  // check_torchscript.py does the rest
}

struct FixedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x.view({2, 3}) * 2; }
};

TEST(TorchScript, ReportsThatAModelAcceptsNoOtherBatchSize) {
  const TempFolder temp;
  const Model model(std::make_shared<FixedImpl>());
  const Tensors two = {torch::randn({2, 3})};
  expect_error<c10::ValueError>(
      [&] { export_torchscript(model, temp / "a.pt", two); },
      {"[export_torchscript]",
       "failed with 5 samples in place of 2",
       "shape '[2, 3]' is invalid",
       "dynamic_batch = false"});
  export_torchscript(model, temp / "a.pt", two, {.dynamic_batch = false});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  EXPECT_TRUE(torch::equal(loaded.forward(two)[0], two[0] * 2));
}

struct WithStateImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& h) {
    return std::get<0>(gru(x, h.transpose(0, 1).contiguous()));
  }
  torch::nn::GRU gru = register_module(
      "gru",
      torch::nn::GRU(torch::nn::GRUOptions(8, 16).batch_first(true)));
};

TEST(TorchScript, AnInputStateAdaptsToAnyBatchSize) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model model(std::make_shared<WithStateImpl>());
  const auto inputs = [](int64_t size) {
    return Tensors{torch::randn({size, 6, 8}), torch::randn({size, 1, 16})};
  };
  export_torchscript(model, temp / "a.pt", inputs(2));
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  for (const int64_t size : {1, 2, 5, 64}) {
    const Tensors batch = inputs(size);
    EXPECT_TRUE(
        torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]));
  }
  expect_error<c10::ValueError>(
      [&] {
        loaded.forward({inputs(5)[0], inputs(4)[1]});
      },
      {"[Model] dimension 0 of input 1 has a size of 4 and dimension 0 of "
       "input 0 a size of 5"});
}

/// Its first dimension is time, so changing that size does not change the
/// batch.
struct ByTimeImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return std::get<0>(lstm(x)); }
  torch::nn::LSTM lstm = register_module("lstm", torch::nn::LSTM(8, 16));
};

TEST(TorchScript, ABatchMayBeInTheSecondDimension) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model model(std::make_shared<ByTimeImpl>());
  export_torchscript(model, temp / "a.pt", {torch::randn({6, 2, 8})});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  for (const auto& [time, samples] : {std::pair(9, 2), {6, 5}, {2, 1}}) {
    const Tensors batch = {torch::randn({time, samples, 8})};
    EXPECT_TRUE(
        torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]))
        << time << " " << samples;
  }
}

/// A network for images [N, 3, H, W] or rows [N, T, 8].
struct SizedImpl : torch::nn::Module {
  using Forward = std::function<torch::Tensor(SizedImpl&, torch::Tensor)>;

  explicit SizedImpl(Forward forward) : forward_(std::move(forward)) {}
  torch::Tensor forward(const torch::Tensor& x) { return forward_(*this, x); }

  torch::nn::Conv2d conv = register_module(
      "conv",
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(3, 4, 3).stride(2).padding(1)));
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(4 * 4 * 3, 5));
  torch::nn::RNN rnn = register_module(
      "rnn",
      torch::nn::RNN(torch::nn::RNNOptions(8, 4).batch_first(true)));

 private:
  Forward forward_;
};

struct SizedNet {
  const char* name;
  SizedImpl::Forward forward;
};

// Regression: the file used the example's sizes for inputs of other sizes.
TEST(TorchScript, SupportsOtherInputSizes) {
  using torch::Tensor;
  const auto check = [](const SizedNet& net,
                        std::vector<int64_t> example,
                        const std::vector<std::vector<int64_t>>& others) {
    SCOPED_TRACE(net.name);
    const TempFolder temp;
    const torch::NoGradGuard no_grad;
    torch::manual_seed(5);
    Model model(std::make_shared<SizedImpl>(net.forward));
    model.eval();
    export_torchscript(model, temp / "a.pt", {torch::randn(example)});
    Model loaded = load_torchscript_trusted(temp / "a.pt");
    for (const std::vector<int64_t>& sizes : others) {
      const Tensors batch = {torch::randn(sizes)};
      EXPECT_TRUE(
          torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]))
          << batch[0].sizes();
    }
  };
  for (const SizedNet& net : std::vector<SizedNet>{
           {"to tokens",
            [](auto& net, const Tensor& x) {
              const Tensor y = net.conv(x);
              return y.view({y.size(0), 4, y.size(2) * y.size(3)}).mT();
            }},
           {"twice as large",
            [](auto& net, const Tensor& x) {
              return torch::upsample_bilinear2d(
                  net.conv(x),
                  {2 * x.size(2), x.size(3)},
                  false);
            }},
           {"half of the columns",
            [](auto& net, const Tensor& x) {
              const Tensor y = net.conv(x);
              return x.slice(3, y.size(3)) * y.mean({1, 2, 3}, true);
            }},
           {"padding of one image", [](auto& net, const Tensor& x) {
              return net.conv(x + torch::zeros({1, 3, x.size(2), x.size(3)}));
            }}}) {
    check(net, {1, 3, 8, 6}, {{3, 3, 8, 6}, {2, 3, 16, 12}, {1, 3, 10, 28}});
  }
  for (const SizedNet& net : std::vector<SizedNet>{
           {"mean of a sequence",
            [](auto& net, const Tensor& x) {
              const Tensor y = std::get<0>(net.rnn(x));
              return y.sum(1) / static_cast<double>(x.size(1));
            }},
           {"positions", [](auto&, const Tensor& x) {
              return x + torch::arange(x.size(1)).view({1, -1, 1});
            }}}) {
    check(net, {2, 6, 8}, {{1, 6, 8}, {4, 12, 8}, {3, 1, 8}, {7, 5, 8}});
  }
}

TEST(TorchScript, ReportsTheOnlySupportedSize) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  const auto halves = [](SizedImpl& net, const torch::Tensor& x) {
    return net.conv(x).slice(2, 0, (x.size(2) + 3) / 4);
  };
  const auto flat = [](SizedImpl& net, const torch::Tensor& x) {
    return net.fc(net.conv(x).flatten(1));
  };
  for (const SizedNet& net :
       {SizedNet{"halves", halves}, SizedNet{"flat", flat}}) {
    SCOPED_TRACE(net.name);
    Model model(std::make_shared<SizedImpl>(net.forward));
    export_torchscript(model, temp / "a.pt", {torch::randn({2, 3, 8, 6})});
    const Tensors higher = {torch::randn({2, 3, 10, 6})};
    const std::string_view words =
        "dimension 2 of input 0 has a size of 10; expected 8";
    Model loaded = load_torchscript_trusted(temp / "a.pt");
    expect_error<c10::ValueError>(
        [&] { loaded.forward(higher); },
        {"[Model]", words, "Give it inputs of that size"});
    // As LibTorch and Python run the file.
    torch::jit::Module module = torch::jit::load((temp / "a.pt").string());
    expect_error<std::exception>([&] { module.forward({higher[0]}); }, {words});
  }
}

// The numbers at two sizes do not determine how they depend on the size.
TEST(TorchScript, ANumberThatMatchesTwoSizesIsNotTakenForAMultiple) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model few(std::make_shared<SizedImpl>([](auto& net, const torch::Tensor& x) {
    return net.conv(x.slice(3, 0, std::min<int64_t>(x.size(3), 8)));
  }));
  export_torchscript(few, temp / "a.pt", {torch::randn({2, 3, 8, 6})});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  const Tensors higher = {torch::randn({5, 3, 12, 6})};
  EXPECT_TRUE(torch::equal(loaded.forward(higher)[0], few.forward(higher)[0]));
  expect_error<c10::ValueError>(
      [&] {
        loaded.forward({torch::randn({2, 3, 8, 10})});
      },
      {"dimension 3 of input 0 has a size of 10; expected 6",
       "aten::slice",
       "takes 6 for a size of 6"});

  const Model padded(
      std::make_shared<SizedImpl>([](auto&, const torch::Tensor& x) {
        const int64_t threes = (x.size(0) + 2) / 3;
        return x / static_cast<double>(
                       3 * threes - 1);  // equals the batch size for 2 and 5
      }));
  expect_error<c10::ValueError>(
      [&] {
        export_torchscript(padded, temp / "b.pt", {torch::randn({2, 3})});
      },
      {"[export_torchscript] aten::div",
       "for a batch of 2",
       "for a batch of 3"});
}

/// For token ids, with a mask over all pairs of positions. The mask has no
/// batch dimension.
struct MaskedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& mask) {
    const torch::Tensor x =
        words(ids) + places->weight.slice(0, 0, ids.size(1));
    return torch::scaled_dot_product_attention(x, x, x, mask);
  }
  torch::nn::Embedding words =
      register_module("words", torch::nn::Embedding(20, 8));
  torch::nn::Embedding places =
      register_module("places", torch::nn::Embedding(9, 8));
};

TEST(TorchScript, MasksFollowTheSequenceLength) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model model(std::make_shared<MaskedImpl>());
  const auto inputs = [](int64_t samples, int64_t length) {
    return Tensors{
        torch::randint(20, {samples, length}),
        torch::ones({length, length}, torch::kBool).tril()};
  };
  for (const int64_t length :
       {5, 9}) {  // the second is the number of learned positions
    export_torchscript(model, temp / "a.pt", inputs(3, length));
    Model loaded = load_torchscript_trusted(temp / "a.pt");
    for (const auto& [samples, other] : {std::pair(1, 9), {4, 2}, {2, 7}}) {
      const Tensors batch = inputs(samples, other);
      EXPECT_TRUE(
          torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]))
          << length << " " << other;
    }
  }
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  expect_error<c10::ValueError>(
      [&] { loaded.forward(inputs(2, 10)); },
      {"dimension 1 of input 0 has a size of 10; expected at most 9"});
}

// Regression: numbers that depend on one input's size were read from a
// different input whose size was equal by chance.
TEST(TorchScript, SizesThatAreEqualByChanceAreDistinguished) {
  struct TwoImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b) {
      return a.mean(1) + b.sum(1) / static_cast<double>(b.size(1));
    }
  };
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  const auto inputs = [](int64_t samples, int64_t first, int64_t second) {
    return Tensors{
        torch::randn({samples, first, 8}),
        torch::randn({samples, second, 8})};
  };
  Model model(std::make_shared<TwoImpl>());
  export_torchscript(model, temp / "a.pt", inputs(2, 6, 6));
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  for (const auto& [first, second] : {std::pair(6, 9), {9, 6}, {4, 4}}) {
    const Tensors batch = inputs(3, first, second);
    EXPECT_TRUE(
        torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]))
        << first << " " << second;
  }
  // If both sizes are equal, the export cannot know which of them is the batch.
  struct PrototypesImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& other) {
      return x.mm(other.t()).sum(1) / static_cast<double>(other.size(0));
    }
  };
  Model prototypes(std::make_shared<PrototypesImpl>());
  const auto rows = [](int64_t samples, int64_t others) {
    return Tensors{torch::randn({samples, 8}), torch::randn({others, 8})};
  };
  export_torchscript(prototypes, temp / "b.pt", rows(4, 4));
  Model alike = load_torchscript_trusted(temp / "b.pt");
  expect_error<c10::ValueError>(
      [&] { alike.forward(rows(6, 4)); },
      {"dimension 0 of input 1 has a size of 4 and dimension 0 of input 0 a "
       "size of 6",
       "in which they differ"});
  export_torchscript(prototypes, temp / "b.pt", rows(5, 4));
  Model apart = load_torchscript_trusted(temp / "b.pt");
  const Tensors six = rows(6, 4), three = rows(3, 7);
  EXPECT_TRUE(
      torch::allclose(apart.forward(six)[0], prototypes.forward(six)[0]));
  EXPECT_TRUE(
      torch::allclose(apart.forward(three)[0], prototypes.forward(three)[0]));
}

// A size that is halved and rounded down differs from one that is rounded up.
// Padding to a multiple of 32 adds nothing to a multiple.
TEST(TorchScript, OddSizesGiveCorrectOutputsOrAnError) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  const auto rounded = [](SizedImpl& net, const torch::Tensor& x) {
    return torch::adaptive_avg_pool2d(
        net.conv(x),
        {x.size(2) / 2, x.size(3) / 2});
  };
  const auto padded = [](SizedImpl& net, const torch::Tensor& x) {
    const auto rest = [&](int64_t size) { return (32 - size % 32) % 32; };
    const auto larger =
        torch::constant_pad_nd(x, {0, rest(x.size(3)), 0, rest(x.size(2))});
    return net.conv(larger).mean({2, 3});
  };
  for (const SizedNet& net :
       {SizedNet{"rounded", rounded}, SizedNet{"padded", padded}}) {
    SCOPED_TRACE(net.name);
    Model model(std::make_shared<SizedImpl>(net.forward));
    export_torchscript(model, temp / "a.pt", {torch::randn({2, 3, 64, 64})});
    Model loaded = load_torchscript_trusted(temp / "a.pt");
    expect_error<c10::ValueError>(
        [&] {
          loaded.forward({torch::randn({2, 3, 65, 64})});
        },
        {"[Model] dimension 2 of input 0 has a size of 65; expected 64"});
  }
}

TEST(TorchScript, ReportsWhichMultipleASizeMustBe) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  struct PairsImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) {
      return x.view({x.size(0), -1, 2}).sum(2);
    }
  };
  Model pairs(std::make_shared<PairsImpl>());
  export_torchscript(pairs, temp / "a.pt", {torch::randn({2, 8})});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  const Tensors ten = {torch::randn({3, 10})};
  EXPECT_TRUE(torch::equal(loaded.forward(ten)[0], pairs.forward(ten)[0]));
  expect_error<c10::ValueError>(
      [&] {
        loaded.forward({torch::randn({3, 9})});
      },
      {"dimension 1 of input 0 has a size that is not a multiple of 2"});
}

// A number that depends on values may equal a size by chance.
TEST(TorchScript, ANumberThatDependsOnValuesIsNotTakenForASize) {
  struct MeanImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
      return x.sum(1) / static_cast<double>(mask.sum().item<int64_t>());
    }
  };
  const TempFolder temp;
  expect_error<c10::ValueError>(
      [&] {
        export_torchscript(
            Model(std::make_shared<MeanImpl>()),
            temp / "a.pt",
            {torch::randn({2, 6}), torch::ones({2, 6}, torch::kBool)});
      },
      {"aten::div", "no number that depends on values"});
  // A selection by value may select all rows of the example.
  struct ChosenImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) {
      return x.index({x.sum(1) > 0});
    }
  };
  const torch::NoGradGuard no_grad;
  export_torchscript(
      Model(std::make_shared<ChosenImpl>()),
      temp / "b.pt",
      {torch::ones({3, 4})});
  Model loaded = load_torchscript_trusted(temp / "b.pt");
  EXPECT_EQ(loaded.forward({torch::eye(4) - 0.5})[0].size(0), 0);
  EXPECT_EQ(loaded.forward({torch::eye(4)})[0].size(0), 4);
}

// Two small batches or two short sequences do not reveal an upper bound.
TEST(TorchScript, FindsABoundBeyondTheFirstSizes) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  const auto bounded = [](int64_t dimension) {
    return Model(std::make_shared<SizedImpl>(
        [dimension](SizedImpl&, const torch::Tensor& x) {
          const int64_t few = std::min<int64_t>(x.size(dimension), 28);
          return x - x.slice(dimension, 0, few).mean(dimension, true);
        }));
  };
  expect_error<c10::ValueError>(
      [&] {
        export_torchscript(bounded(0), temp / "a.pt", {torch::randn({2, 6})});
      },
      {"aten::slice", "and 28 for a batch of 67"});
  export_torchscript(bounded(1), temp / "a.pt", {torch::randn({2, 8})});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  expect_error<c10::ValueError>(
      [&] {
        loaded.forward({torch::randn({2, 9})});
      },
      {"dimension 1 of input 0 has a size of 9; expected 8",
       "28 for a size of 32"});
}

// For a graph: an edge may refer to any node, so two rows are too few.
TEST(TorchScript, ANetworkThatNeedsMoreThanTwoSamplesIsTracedWithTheExamples) {
  struct GraphImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& edges) {
      const torch::Tensor from = x.index_select(0, edges[0]);
      return torch::zeros({x.size(0), 8}).index_add(0, edges[1], from);
    }
  };
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model model(std::make_shared<GraphImpl>());
  const auto inputs = [](int64_t nodes, int64_t edges) {
    return Tensors{torch::randn({nodes, 8}), torch::randint(8, {2, edges})};
  };
  export_torchscript(model, temp / "a.pt", inputs(8, 30));
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  for (const auto& [nodes, edges] : {std::pair(8, 30), {20, 7}, {9, 40}}) {
    const Tensors batch = inputs(nodes, edges);
    EXPECT_TRUE(
        torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]));
  }
}

// Tensors that the first call creates exist in later calls.
TEST(TorchScript, TensorsCachedByTheFirstCallAreNotADifferentPath) {
  struct LazyImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) {
      if (!later_.defined()) later_ = torch::ones({6, 6}).tril();
      return torch::matmul(later_, x);
    }
    torch::Tensor later_;
  };
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model model(std::make_shared<LazyImpl>());
  export_torchscript(model, temp / "a.pt", {torch::randn({2, 6, 8})});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  const Tensors batch = {torch::randn({5, 6, 8})};
  EXPECT_TRUE(
      torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]));
}

TEST(TorchScript, RejectsAnEmptyExample) {
  const TempFolder temp;
  expect_error<c10::ValueError>(
      [&] {
        export_torchscript(point_net(), temp / "a.pt", {torch::zeros({0, 2})});
      },
      {"[export_torchscript] the example is [0, 2] Float",
       "inputs that are not empty"});
}

// Two small batches do not reveal that the model computes 32 samples at a time.
TEST(TorchScript, ChecksThatTheOutputHasOneRowPerSample) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model model = testing_support::net_of_chunks().make();
  const torch::Tensor x = torch::randn({64, 6, 8});
  export_torchscript(model, temp / "a.pt", {x.slice(0, 0, 2)});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  const Tensors some = {x.slice(0, 0, 32)};
  EXPECT_TRUE(torch::equal(loaded.forward(some)[0], model.forward(some)[0]));
  expect_error<c10::ValueError>(
      [&] { loaded.forward({x}); },
      {"[Model] the output has 32 rows for 64 samples", "this batch size"});
  expect_error<c10::ValueError>(
      [&] { export_torchscript(model, temp / "a.pt", {x}); },
      {"for a batch of 2", "for a batch of 64"});
}

/// As older versions and possibly Python's tracer wrote it: with the state of
/// two samples and without a check.
torch::jit::Module unchecked_trace(Model model) {
  const torch::NoGradGuard no_grad;
  model.eval();
  return trace(model, {torch::randn({2, 6, 8})});
}

// Regression: heap corruption.
TEST(TorchScript, AnOlderFileWithAStateRejectsOtherBatchSizes) {
  const TempFolder temp;
  for (const auto& net : testing_support::nets_that_read_the_batch_size()) {
    const size_t in = net.place.find(" in its module ");
    if (in == std::string::npos) continue;
    SCOPED_TRACE(net.name);
    const torch::jit::Module module = unchecked_trace(net.make());
    module.save((temp / "a.pt").string());
    Model loaded = load_torchscript_trusted(temp / "a.pt");
    Model model = net.make();
    const torch::Tensor x = torch::randn({64, 6, 8});
    const Tensors two = {x.narrow(0, 0, 2)};
    EXPECT_TRUE(torch::allclose(loaded.forward(two)[0], model.forward(two)[0]));
    for (const int64_t size : {1, 3, 64}) {
      expect_error<c10::ValueError>(
          [&] { loaded.forward({x.narrow(0, 0, size)}); },
          {"[Model] " + net.place.substr(0, in),
           "has a state for 2 samples and got " + std::to_string(size)});
    }
    // The caller's module is unchanged and contains no check.
    const auto graph = module.get_method("forward").graph();
    for (const torch::jit::Node* node : graph->nodes()) {
      EXPECT_NE(node->kind(), c10::prim::If);
    }
  }
}

TEST(TorchScript, AModelWithAStateTrainsOnBatchesOfItsSize) {
  const auto data = [](int64_t batch_size) {
    const auto set = std::make_shared<TensorDataset>(
        Tensors{torch::randn({4, 6, 8})},
        Tensors{torch::randn({4, 6, 16})});
    DataBunch bunch =
        DataBunch::create(set, set, {.batch_size = batch_size, .workers = 0});
    bunch.device = torch::kCPU;
    return bunch;
  };
  const auto net = testing_support::nets_that_read_the_batch_size()[0];
  const Model model = unchecked_trace(net.make());
  const std::string weight = "lstm.weight_ih_l0";
  const torch::Tensor before = model.state_dict()[weight].clone();
  const auto options = quiet({.loss = torch::nn::MSELoss()});
  Learner(data(2), model, options).fit(1);
  EXPECT_FALSE(torch::equal(model.state_dict()[weight], before));
  Learner learn(data(4), model, options);
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"has a state for 2 samples and got 4"});
}

// Regression: the output of the second device was a constant of the file.
TEST(TorchScript, AParallelModelIsExportedLikeTheOriginal) {
  const TempFolder temp;
  const torch::NoGradGuard no_grad;
  Model model = parallel_model(point_net(), {torch::kCPU, torch::kCPU});
  export_torchscript(model, temp / "a.pt", {torch::randn({4, 2})});
  Model loaded = load_torchscript_trusted(temp / "a.pt");
  model.eval();
  for (const int64_t size : {4, 7}) {
    const Tensors batch = {torch::randn({size, 2})};
    EXPECT_TRUE(
        torch::allclose(loaded.forward(batch)[0], model.forward(batch)[0]));
  }
}

// Regression: the export read a module that did not exist.
TEST(TorchScript, ALearnerOfTorchScriptCannotExportAGraph) {
  const TempFolder temp;
  export_torchscript(point_net(), temp / "a.pt", {torch::randn({4, 2})});
  Learner learn(point_data(), load_torchscript_trusted(temp / "a.pt"), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.export_model(temp / "a.safetensors"); },
      {"[Learner::export_model] the model is TorchScript"});
}

TEST(TorchScript, AnExportDrawsNoRandomNumbers) {
  const TempFolder temp;
  torch::manual_seed(3);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  EXPECT_THROW(
      export_torchscript(
          std::make_shared<DiceImpl>(),
          temp / "a.pt",
          {torch::zeros({2})}),
      c10::ValueError);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST(TorchScript, ItsChecksumIsWrittenBesideIt) {
  const TempFolder temp;
  const auto write = [&](bool sha256_file) {
    export_torchscript(
        Model(torch::nn::Linear(3, 2)),
        temp / "net.pt",
        {torch::ones({2, 3})},
        {.sha256_file = sha256_file});
  };
  write(true);
  EXPECT_EQ(sum_beside(temp / "net.pt"), sha256_file(temp / "net.pt"));
  EXPECT_NO_THROW(load_torchscript_trusted(temp / "net.pt"));
  const std::vector<uint8_t> whole = read_file(temp / "net.pt");
  std::vector<uint8_t> longer = whole;
  longer.push_back(0);
  write_file(temp / "net.pt", longer);
  expect_error<DataError>(
      [&] { load_torchscript_trusted(temp / "net.pt"); },
      {"net.pt", "SHA-256", sha256(whole)});
  write(false);  // the old checksum would reject it
  EXPECT_FALSE(fs::exists(temp / "net.pt.sha256"));
}

TEST(TorchScript, ReportsFilesThatAreNotTorchScript) {
  const TempFolder temp;
  write_file(temp / "a.pt", "no program");
  expect_error<DataError>(
      [&] { load_torchscript_trusted(temp / "a.pt"); },
      {"a.pt", "torch.jit.save"});
  expect_error<IoError>(
      [&] { load_torchscript_trusted(temp / "none.pt"); },
      {"none.pt"});
}

}  // namespace
}  // namespace tern::torchscript_test
