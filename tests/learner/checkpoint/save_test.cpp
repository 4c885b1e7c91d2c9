#include "tern/learner/checkpoint/save.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/tolerance.h"

namespace tern::save_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

using Mode = void (*)(Learner&);

struct NamedMode {
  const char* name;
  Mode set;
};

constexpr NamedMode kModes[] = {
    {"fp32", [](Learner&) {}},
    {"fp16", [](Learner& l) { l.to_fp16(); }},
    {"bf16", [](Learner& l) { l.to_bf16(); }},
    {"amp", [](Learner& l) { l.to_amp(); }}};

std::unique_ptr<Learner> make(const TempFolder& folder, Mode mode) {
  auto learn = std::make_unique<Learner>(
      point_data(),
      point_net(),
      quiet({.path = folder.path()}));
  mode(*learn);
  return learn;
}

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& entry : state)
    copy.insert(entry.key(), entry.value().clone());
  return copy;
}

void expect_equal(const StateDict& actual, const StateDict& expected) {
  ASSERT_EQ(actual.keys(), expected.keys());
  for (const auto& entry : actual) {
    EXPECT_TRUE(test::bit_equal(entry.value(), expected[entry.key()]))
        << entry.key();
  }
}

TEST(Save, WritesFp32WeightsInEveryPrecision) {
  for (const NamedMode& mode : kModes) {
    SCOPED_TRACE(mode.name);
    const TempFolder folder;
    const auto learn = make(folder, mode.set);
    learn->fit(1, 1e-2);
    learn->save("net");
    const StateDict saved = load_weights(folder / "models" / "net.safetensors");
    expect_equal(saved, learn->state_dict());
    EXPECT_EQ(saved["0.weight"].scalar_type(), torch::kFloat);
    EXPECT_EQ(saved["1.num_batches_tracked"].scalar_type(), torch::kLong);
    if (master_weights(*learn)) {
      EXPECT_TRUE(test::bit_equal(
          saved["0.weight"],
          master_weights(*learn)
              ->of(learn->model().parameters()[0].tensor)
              .detach()));
    }
  }
}

TEST(Save, EveryPrecisionLoadsWhatAnyOtherSaved) {
  for (const NamedMode& from : kModes) {
    const TempFolder folder;
    const auto saved = make(folder, from.set);
    saved->fit(1, 1e-2);
    saved->save("net");
    const StateDict weights = copy_of(saved->state_dict());
    for (const NamedMode& to : kModes) {
      SCOPED_TRACE(std::string(from.name) + " to " + to.name);
      const auto loaded = make(folder, to.set);
      loaded->load("net");
      expect_equal(loaded->state_dict(), weights);
      // The 16-bit weights are the rounded master weights.
      for (const ModelTensor& p : loaded->model().parameters()) {
        EXPECT_TRUE(test::bit_equal(
            p.tensor.detach(),
            weights[p.name].to(p.tensor.scalar_type())));
      }
      loaded->fit(1, 1e-2);
    }
  }
}

TEST(Save, TrainingContinuesAsIfNeverSavedAndLoaded) {
  for (const NamedMode& mode : {kModes[0], kModes[2]}) {
    SCOPED_TRACE(mode.name);
    const TempFolder folder;
    const auto learn = make(folder, mode.set);
    learn->fit(1, 1e-2);
    learn->save("net");
    const auto loaded = make(folder, mode.set);
    loaded->fit(1, 1e-1);  // different weights at the same position in the data
    loaded->load("net");
    learn->fit(1, 1e-2);
    loaded->fit(1, 1e-2);
    expect_equal(loaded->state_dict(), learn->state_dict());
  }
}

TEST(Save, OneCheckpointOfA16BitRunWorksInEveryPrecision) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner& l) { l.to_fp16(); });
  learn->fit(1, 1e-2);
  learn->save_checkpoint(folder / "run");
  // Resumed in fp16: the second fit matches the uninterrupted run.
  const auto resumed = make(folder, [](Learner& l) { l.to_fp16(); });
  resumed->resume(folder / "run");
  resumed->fit(1, 1e-2);  // already complete
  resumed->fit(1, 1e-2);
  learn->fit(1, 1e-2);
  expect_equal(resumed->state_dict(), learn->state_dict());
  // In an fp32 Learner, the weights are the master weights.
  const auto plain = make(folder, [](Learner&) {});
  std::vector<std::string> problems;
  const Checkpoint checkpoint = read_checkpoint(folder / "run", problems);
  plain->load_state_dict(
      load_weights(list_checkpoints(folder / "run")[0] / "model.safetensors"));
  expect_equal(plain->state_dict(), checkpoint.model);
}

TEST(Load, CanStartWithANewOptimizer) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner&) {});
  learn->fit(1, 1e-2);
  learn->save("net");
  learn->load("net", {.with_optimizer = false});
  EXPECT_TRUE(learn->optimizer().state().empty());
}

TEST(Load, RestoresStateThatTheOptimizersConstructorCreates) {
  const TempFolder folder;
  const auto make = [&] {
    auto learn = std::make_unique<Learner>(
        point_data(),
        point_net(),
        quiet(
            {.optimizer = optimizer<torch::optim::Adagrad>(),
             .path = folder.path()}));
    return learn;
  };
  const auto learn = make();
  learn->fit(1, 1e-2);
  learn->save("net");
  learn->load("net", {.with_optimizer = false}).fit(1, 1e-2);
  const auto again = make(), loaded = make();
  again->fit(1, 1e-2);
  again->fit(1, 1e-2);
  loaded->fit(1, 1e-1);
  loaded->load("net").fit(1, 1e-2);
  expect_equal(loaded->state_dict(), again->state_dict());
}

TEST(Load, NeedsTheOptimizersStateByDefault) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner&) {});
  learn->fit(1, 1e-2);
  learn->save("net");
  fs::remove(folder / "models" / "net.optimizer.safetensors");
  const StateDict before = copy_of(learn->state_dict());
  expect_error<DataError>(
      [&] { learn->load("net"); },
      {"net.optimizer.safetensors", "missing", "with_optimizer = false"});
  expect_equal(learn->state_dict(), before);
}

TEST(Load, RejectsTheOptimizersStateOfADifferentSave) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner&) {});
  learn->fit(1, 1e-2);
  learn->save("net");
  const fs::path models = folder / "models";
  const auto weights = read_file(models / "net.safetensors");
  learn->save("net");
  write_file(models / "net.safetensors", weights);
  expect_error<DataError>([&] { learn->load("net"); }, {"not saved together"});
}

TEST(Save, RemovesTheChecksumFilesOfTheFilesItReplaces) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner&) {});
  learn->fit(1, 1e-2);
  learn->save("net");
  const fs::path files[] = {
      folder / "models" / "net.safetensors",
      folder / "models" / "net.optimizer.safetensors"};
  const auto write_sums = [&] {
    for (const fs::path& file : files) {
      const std::string name = file.filename().string();
      write_file(sum_file(file), to_text({{name, sha256_file(file)}}));
    }
  };
  write_sums();
  learn->load("net");
  learn->fit(1, 1e-2);
  learn->save("net");
  for (const fs::path& file : files) EXPECT_FALSE(fs::exists(sum_file(file)));
  learn->load("net");
  write_sums();
  remove_saved(*learn, "net");
  EXPECT_TRUE(fs::is_empty(folder / "models"));
}

TEST(Load, RejectsTheStateOfADifferentOptimizerAndChangesNothing) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner&) {});
  learn->fit(1, 1e-2);
  learn->save("net");
  Learner other(
      point_data(),
      point_net(3),
      quiet(
          {.optimizer =
               optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1)),
           .path = folder.path()}));
  const StateDict before = copy_of(other.state_dict());
  expect_error<DataError>(
      [&] { other.load("net"); },
      {"tern::optim::AdamW", "torch::optim::SGD"});
  expect_equal(other.state_dict(), before);
}

TEST(Load, LoadsABodyIntoAModelWithADifferentHead) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner&) {});
  learn->fit(1, 1e-2);
  learn->save("net");
  torch::manual_seed(9);
  Learner wider(
      point_data(),
      torch::nn::Sequential(
          torch::nn::Linear(2, 16),
          torch::nn::BatchNorm1d(16),
          torch::nn::ReLU(),
          torch::nn::Linear(16, 5)),
      quiet({.path = folder.path()}));
  wider.to_bf16();
  const torch::Tensor head = wider.state_dict()["3.weight"].clone();
  expect_error<c10::ValueError>(
      [&] { wider.load("net", {.with_optimizer = false}); },
      {"net.safetensors: ", "3.weight", "ignore_mismatched_sizes"});
  wider.load(
      "net",
      {.weights = {.strict = false, .ignore_mismatched_sizes = true},
       .with_optimizer = false});
  EXPECT_TRUE(torch::equal(
      wider.state_dict()["0.weight"],
      learn->state_dict()["0.weight"]));
  EXPECT_TRUE(torch::equal(wider.state_dict()["3.weight"], head));
}

TEST(Load, NamesTheMissingFile) {
  const TempFolder folder;
  const auto learn = make(folder, [](Learner&) {});
  expect_error<IoError>([&] { learn->load("none"); }, {"none.safetensors"});
  expect_error<c10::ValueError>([&] { learn->save(""); }, {"name is empty"});
}

}  // namespace
}  // namespace tern::save_test
