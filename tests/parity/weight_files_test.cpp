#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/learner/model.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/parity/resnet20.h"
#include "tern/tests/parity/weight_net.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/state_dicts.h"
#include "tern/tests/support/test_data.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::weight_files_test {
namespace {

namespace fs = std::filesystem;
using test::layout_state;
using test::same_state;
using test::types_state;
using test::WeightNet;
using test::without;

// A file of make_weight_files.py, written live or stored.
fs::path file(const std::string& name) {
  const char* live = std::getenv("TERN_WEIGHT_FILES");
  const fs::path path =
      (live != nullptr ? live : in_tests_folder("parity/fixtures/weights")) /
      name;
  // Without the `safetensors` package, the live test uses the stored file.
  return fs::exists(path) ? path
                          : in_tests_folder("parity/fixtures/weights") / name;
}

TEST(WeightFiles, ReadsEveryDtypeInEveryFormatOfTorchSave) {
  for (const char* name :
       {"types.pth", "protocol3.pth", "protocol4.pth", "protocol5.pth"}) {
    EXPECT_TRUE(same_state(load_weights(file(name)), types_state())) << name;
  }
  EXPECT_TRUE(same_state(
      load_weights(file("types_legacy.pth")),
      without(
          types_state(),
          {"uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"})));
}

TEST(WeightFiles, ReadsFilesOfPythonsSafetensors) {
  const fs::path path = file("types.safetensors");
  for (const bool memory_map : {false, true}) {
    const StateDict state = load_weights(path, {.memory_map = memory_map});
    // The package sorts tensors by dtype and name.
    StateDict sorted;
    for (const auto& item : types_state()) {
      if (state.contains(item.key())) {
        sorted.insert(item.key(), state[item.key()]);
      }
    }
    EXPECT_TRUE(same_state(sorted, without(types_state(), {"complex128"})));
    EXPECT_EQ(state.size(), sorted.size());
  }
  EXPECT_EQ(safetensors_metadata(path).at("format"), "pt");
}

TEST(WeightFiles, KeepsStridesAndSharedMemory) {
  for (const char* name : {"layout.pth", "layout_legacy.pth"}) {
    for (const bool memory_map : {false, true}) {
      const StateDict state =
          load_weights(file(name), {.memory_map = memory_map});
      const StateDict expected = layout_state();
      EXPECT_TRUE(same_state(state, expected)) << name;
      for (const auto& item : expected) {
        EXPECT_EQ(state[item.key()].strides(), item.value().strides())
            << name << " " << item.key();
      }
      EXPECT_TRUE(state["part"].is_alias_of(state["base"]));
      EXPECT_EQ(state["same"].data_ptr(), state["base"].data_ptr());
      EXPECT_FALSE(state["channels_last"].is_alias_of(state["base"]));
      state["base"].fill_(0);  // changes the copy in memory, never the file
      EXPECT_EQ(state["transposed"].sum().item<float>(), 0);
    }
    EXPECT_TRUE(same_state(load_weights(file(name)), layout_state()));
  }
}

TEST(WeightFiles, ANetHasPythonsNamesInPythonsOrderAndLoadsStrictly) {
  const StateDict state = load_weights(file("net.pth"));
  Model model = WeightNet();
  EXPECT_EQ(model.state_dict().keys(), state.keys());
  const LoadReport report = model.load_state_dict(state);
  EXPECT_TRUE(report.is_complete());
  EXPECT_EQ(report.loaded, static_cast<int64_t>(state.size()));
  EXPECT_TRUE(same_state(model.state_dict(), state));

  StateDict parameters = load_weights(file("parameters.pth"));
  EXPECT_EQ(parameters.size(), 7u);
  EXPECT_FALSE(parameters["body.0.weight"].requires_grad());
}

TEST(WeightFiles, ATorchScriptModuleHasPythonsNamesToo) {
  // The test wrote the file, so it is trusted.
  Model model = torch::jit::load(file("script.pt"));
  EXPECT_EQ(
      model.state_dict().keys(),
      (std::vector<std::string>{"weight", "bias"}));
  StateDict ones;
  ones.insert("weight", torch::ones({2, 2}));
  ones.insert("bias", torch::ones({2}));
  EXPECT_TRUE(model.load_state_dict(ones).is_complete());
  EXPECT_TRUE(same_state(model.state_dict(), ones));
}

TEST(WeightFiles, FindsTheOnlyStateDictInACheckpoint) {
  const StateDict expected = load_weights(file("net.pth"));
  for (const char* name : {"checkpoint.pth", "checkpoint_legacy.pth"}) {
    EXPECT_EQ(load_weights(file(name)).keys(), expected.keys());
    EXPECT_TRUE(same_state(
        load_weights(file(name), {.key = "state_dict"}),
        load_weights(file("checkpoint.pth"))));
  }
  EXPECT_TRUE(
      load_weights(file("checkpoint.pth"), {.key = "/"}).contains("best"));
  // A wrapped model, nested two dictionaries deep.
  Model model = WeightNet();
  const StateDict wrapped = load_weights(file("wrapped.pth"));
  EXPECT_TRUE(wrapped.contains("module.body.0.weight"));
  EXPECT_TRUE(model.load_state_dict(wrapped).is_complete());
  EXPECT_TRUE(same_state(
      load_weights(file("wrapped.pth"), {.key = "ema/model"}),
      wrapped));
}

TEST(WeightFiles, APublishedResNet20PredictsAsInPython) {
  TERN_REQUIRE_DATA(data);
  const fs::path folder = data / "weights";
  Model model = test::ResNet20();
  // A legacy file whose names start with "module.", written before
  // num_batches_tracked existed.
  const LoadReport report =
      model.load_state_dict(load_weights(folder / "resnet20-12fca82f.th"));
  EXPECT_EQ(report.loaded, 97);
  model.eval();
  const auto reference =
      nlohmann::json::parse(std::ifstream(folder / "reference_outputs.json"));
  const torch::NoGradGuard no_grad;
  const torch::Tensor x =
      (torch::arange(2 * 3 * 32 * 32).remainder(251) / 250.f)
          .reshape({2, 3, 32, 32});
  const torch::Tensor y = model.forward({x}).at(0);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t c = 0; c < 10; ++c) {
      EXPECT_NEAR(
          y[i][c].item<float>(),
          reference["resnet20"][i][c].get<float>(),
          1e-4);
    }
  }
}

TEST(WeightFiles, RequiresAKeyIfThereAreSeveralStateDicts) {
  expect_error<DataError>(
      [] { load_weights(file("two.pth")); },
      {"two.pth", "several", "'model' (20 tensors)", "'ema' (7 tensors)"});
  EXPECT_TRUE(same_state(
      load_weights(file("two.pth"), {.key = "ema"}),
      layout_state()));
  expect_error<DataError>(
      [] { load_weights(file("two.pth"), {.key = "emma"}); },
      {"'emma'", "'ema'"});
  expect_error<DataError>(
      [] { load_weights(file("types.safetensors"), {.key = "model"}); },
      {"safetensors", "key"});
}

TEST(WeightFiles, FindsDictionariesAtEveryDepth) {
  expect_error<DataError>(
      [] { load_weights(file("deep.pth")); },
      {"several", "'a/b/c' (20 tensors)", "'ema' (7 tensors)"});
  EXPECT_TRUE(same_state(
      load_weights(file("deep.pth"), {.key = "a/b/c"}),
      types_state()));
}

TEST(WeightFiles, FindsDictionariesInListsButSkipsOptimizerStates) {
  expect_error<DataError>(
      [] { load_weights(file("nets.pth")); },
      {"several dictionaries of tensors: 'nets/0' (20 tensors), "
       "'ema' (7 tensors). Select"});
  EXPECT_TRUE(same_state(
      load_weights(file("nets.pth"), {.key = "nets/0"}),
      types_state()));
}

TEST(WeightFiles, ReadsLazyConjugatesAndNegatives) {
  for (const char* name : {"lazy.pth", "lazy_legacy.pth"}) {
    for (const bool memory_map : {false, true}) {
      const StateDict state =
          load_weights(file(name), {.memory_map = memory_map});
      const torch::Tensor real = torch::arange(4.f), ones = torch::ones({4});
      EXPECT_TRUE(state["z"].equal(torch::complex(real, ones))) << name;
      EXPECT_TRUE(state["conj"].equal(torch::complex(real, -ones))) << name;
      EXPECT_TRUE(state["neg"].equal(-ones)) << name;
      EXPECT_TRUE(state["conj"].is_alias_of(state["z"]));
    }
  }
}

TEST(WeightFiles, ReadsTheModelOfFastaisLearnerSave) {
  Model model = WeightNet();
  const StateDict state = load_weights(file("fastai.pth"));
  EXPECT_TRUE(model.load_state_dict(state).is_complete());
  EXPECT_EQ(state.keys(), load_weights(file("net.pth")).keys());
  EXPECT_EQ(state["body.1.num_batches_tracked"].item<int64_t>(), 2);
}

TEST(WeightFiles, RejectsNamesThatWeightsDoNotNeedAndRunsNoCode) {
  for (const char* name : {"canary.pth", "canary_legacy.pth"}) {
    expect_error<DataError>(
        [&] { load_weights(file(name)); },
        {name, "'posix.system'", "never run"});
  }
  EXPECT_FALSE(fs::exists("canary"));
  expect_error<DataError>(
      [] { load_weights(file("namespace.pth"), {.key = "model"}); },
      {"'argparse.Namespace'", "state_dict"});
  expect_error<DataError>(
      [] { load_weights(file("script.pt")); },
      {"TorchScript", "torch.save"});
  expect_error<DataError>(
      [] { load_weights(file("tensor.pth")); },
      {"no dictionary of tensors"});
}

}  // namespace
}  // namespace tern::weight_files_test
