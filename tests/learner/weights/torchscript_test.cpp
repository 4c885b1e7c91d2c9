#include "tern/learner/weights/torchscript.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <tuple>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::torchscript_test {
namespace {

using testing_support::point_data;
using testing_support::point_net;
using testing_support::quiet;
namespace fs = std::filesystem;

// Nested modules, a buffer of its own, a tensor of two names.
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

TEST(TorchScript, GivesBackOutputsAndNames) {
  // Where Python looks too, if the tests of a build are run together.
  const TempFolder temp;
  const char* const shared = std::getenv("TERN_TORCHSCRIPT_FOLDER");
  const fs::path folder = shared != nullptr ? fs::path(shared) : temp.path();
  make_folders(folder);
  torch::manual_seed(5);
  Model model(std::make_shared<NestedImpl>());
  model.forward({torch::randn({8, 3, 6, 6})});  // running statistics
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

TEST(TorchScript, TakesAndGivesSeveralTensors) {
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

TEST(TorchScript, ALoadedModelGoesOnLearning) {
  const TempFolder temp;
  Learner first(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  export_torchscript(first, temp / "a.pt", {torch::randn({4, 2})});
  Learner second(
      point_data(),
      load_torchscript_trusted(temp / "a.pt"),
      quiet({.metrics = {accuracy()}}));
  second.fit(3, 1e-2);
  EXPECT_GT(second.validate().metrics[0].value, 0.9);
}

TEST(TorchScript, A16BitTrainingIsExportedInFp32AndGoesOn) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  learn.to_bf16().fit(1);
  const torch::Tensor input = torch::randn({4, 2});
  const torch::Tensor before = learn.model().parameters()[0].tensor.clone();
  export_torchscript(learn, temp / "a.pt", {input});
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

TEST(TorchScript, SaysWhatALoadedModelCannotTake) {
  const TempFolder temp;
  Learner learn(point_data(), point_net(), quiet());
  export_torchscript(learn, temp / "net.pt", {torch::ones({1, 2})});
  Model loaded = load_torchscript_trusted(temp / "net.pt");
  expect_error<c10::ValueError>(
      [&] {
        loaded.forward({torch::ones({4, 5})});
      },
      {"[Model]", "inputs of [4, 5] Float; mat1 and mat2 shapes"});
  expect_error<c10::ValueError>(
      [&] { loaded.forward({}); },
      {"[Model]", "missing value for argument"});
  EXPECT_EQ(loaded.forward({torch::ones({4, 2})})[0].size(0), 4);
}

TEST(TorchScript, RefusesWhatATraceCannotHold) {
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

TEST(TorchScript, ItsSumIsWrittenBesideIt) {
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
  write(false);  // the old sum would refuse it
  EXPECT_FALSE(fs::exists(temp / "net.pt.sha256"));
}

TEST(TorchScript, WhatIsNoTorchScriptIsNamed) {
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
