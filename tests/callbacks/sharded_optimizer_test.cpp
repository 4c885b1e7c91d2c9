#include <filesystem>

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/distributed.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/tolerance.h"

namespace tern::sharded_optimizer_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

const DistributedOptions kWhole = {
    .group = {.timeout = std::chrono::seconds(30)}};
const DistributedOptions kDivided = {
    .group = {.timeout = std::chrono::seconds(30)},
    .shard_optimizer = true};

DataBunch data() {
  return point_data(256, 100, {.batch_size = 16, .workers = 0});
}

using Mode = void (*)(Learner&);

const Mode kModes[] = {
    [](Learner&) {},
    [](Learner& l) { l.to_bf16(); },
    [](Learner& l) { l.to_fp16({.flat_master = true, .force_fp16 = true}); },
    [](Learner& l) { l.to_amp({.dtype = torch::kHalf}); },
    [](Learner& l) { l.to_fp16({.clip = 0.1, .force_fp16 = true}); },
    [](Learner& l) { l.to_bf16().add<GradientClip>(0.1); },
    [](Learner& l) { l.add<GradientAccumulation>({.batches = 3}); },
    [](Learner& l) { l.add<Ema>(); },
    [](Learner& l) {
      parts_of(l).options.optimizer = optimizer<optim::AdamW>(
          torch::optim::AdamWOptions(),
          optim::FusedOptions{.optim_bits = 8, .min_8bit_size = 1});
    },
    [](Learner& l) { l.to_bf16({.master_weights = false}); }};

// Expects bit-identical fp32 weights and buffers.
void expect_bits(Learner& actual, const StateDict& expected) {
  const StateDict state = actual.state_dict();
  ASSERT_EQ(state.size(), expected.size());
  for (const auto& entry : expected) {
    EXPECT_TRUE(test::bit_equal(state[entry.key()], entry.value()))
        << entry.key();
  }
}

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& entry : state) {
    copy.insert(entry.key(), entry.value().detach().clone());
  }
  return copy;
}

// Ports for several Learners in one process, chosen before it forks.
struct Ports {
  Ports() {
    for (uint16_t& port : of) port = free_port();
  }
  uint16_t of[4];
};

std::unique_ptr<Learner> make_learner(
    LaunchEnvironment environment,
    uint16_t port,
    const DistributedOptions& options,
    Mode mode,
    const fs::path& path = ".") {
  environment.master_port = port;
  export_environment(environment);
  auto learn =
      std::make_unique<Learner>(data(), point_net(), quiet({.path = path}));
  mode(*learn);
  learn->to_distributed(options);
  return learn;
}

TEST(ShardedOptimizer, TrainsBitIdenticallyToAnUnshardedOptimizer) {
  const Ports ports;
  for (const Mode mode : kModes) {
    expect_ranks(2, [&](const LaunchEnvironment& environment) {
      const auto whole = make_learner(environment, ports.of[0], kWhole, mode);
      const auto divided =
          make_learner(environment, ports.of[1], kDivided, mode);
      for (Learner* const learn : {whole.get(), divided.get()}) {
        const auto scaling = learn->find<MixedPrecision>();
        const bool can_skip = scaling && scaling->scaler().is_enabled();
        const bool overflows = can_skip && environment.rank == 1;
        learn->add(overflow_at(
            overflows ? std::set<int64_t>{4} : std::set<int64_t>{}));
        learn->fit(2, 1e-2).fit(1, 1e-3);
      }
      expect_bits(*divided, whole->state_dict());
      EXPECT_LT(
          divided->optimizer().state().size(),
          whole->optimizer().state().size());
    });
  }
}

TEST(ShardedOptimizer, WritesCheckpointsThatResumeWithAndWithoutSharding) {
  const Ports ports;
  for (const size_t mode_at : {1, 2, 8, 9}) {
    const Mode mode = kModes[mode_at];
    const TempFolder folder;
    expect_ranks(2, [&](const LaunchEnvironment& environment) {
      const auto whole = make_learner(environment, ports.of[0], kWhole, mode);
      whole->fit(3, 1e-2);
      const StateDict expected = copy_of(whole->state_dict());

      const auto cut = make_learner(environment, ports.of[1], kDivided, mode);
      cut->add<SaveCheckpoint>({.folder = folder / "run", .every_steps = 3});
      cut->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
        if (l.state().training && l.state().iteration == 11) l.request_stop();
      }});
      cut->fit(3, 1e-2);
      EXPECT_EQ(cut->state().iteration, 11);

      // Resumes with and without sharding.
      const uint16_t* port = ports.of + 2;
      for (const DistributedOptions& options : {kDivided, kWhole}) {
        const auto learn = make_learner(environment, *port++, options, mode);
        learn->resume(folder / "run" / "step_11");
        learn->fit(3, 1e-2);
        EXPECT_EQ(learn->state().iteration, 24);
        expect_bits(*learn, expected);
      }
    });
  }
}

TEST(ShardedOptimizer, SavesAndLoadsModelsWithTheWholeOptimizer) {
  const Ports ports;
  const TempFolder folder;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto learn = make_learner(
        environment,
        ports.of[0],
        kDivided,
        kModes[1],
        folder.path());
    learn->add<SaveModel>({.name = "best"}).fit(3, 1e-2);
    const Validation end = learn->validate();
    learn->save("end");
    learn->fit(1, 1e-1);
    learn->load("end");
    EXPECT_EQ(learn->validate().loss, end.loss);
    learn->fit(1, 1e-2);
  });
  EXPECT_TRUE(fs::exists(folder / "models" / "best.safetensors"));
}

TEST(ShardedOptimizer, IsNotChangedByLrFind) {
  const Ports ports;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto plain =
        make_learner(environment, ports.of[0], kDivided, kModes[1]);
    plain->fit(1, 1e-2).fit(1, 1e-2);
    const auto learn =
        make_learner(environment, ports.of[1], kDivided, kModes[1]);
    learn->fit(1, 1e-2);
    learn->lr_find({.num_it = 8});
    learn->fit(1, 1e-2);
    expect_bits(*learn, plain->state_dict());
  });
}

TEST(ShardedOptimizer, KeepsOnlyTheMasterWeightsOfItsShardDuringFit) {
  const Ports ports;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto learn =
        make_learner(environment, ports.of[0], kDivided, kModes[1]);
    int64_t elements = 0;
    learn->add<LambdaCallback>({.on_step_end = [&](Learner& l) {
      elements = 0;
      for (const auto& m : master_weights(l)->masters()) elements += m.numel();
      expect_error<c10::Error>(
          [&] { l.state_dict(); },
          {"only its part of the fp32 weights"});
    }});
    learn->fit(1, 1e-2);
    int64_t all = 0;
    for (const auto& m : master_weights(*learn)->masters()) all += m.numel();
    EXPECT_EQ(all, 2 * 16 + 16 + 16 * 2 + 2);
    const auto sum = torch::tensor({elements});
    EXPECT_LT(elements, all);
    communicator(*learn).all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), all);
    learn->to_fp32();
    EXPECT_EQ(parameters_of(*learn)[0].scalar_type(), torch::kFloat);
  });
}

// Returns the bytes of master weights and moments on this rank.
int64_t kept_bytes(Learner& learn) {
  size_t bytes = 0;
  for (const auto& m : master_weights(learn)->masters()) bytes += m.nbytes();
  for (const auto& entry : learn.optimizer().state()) {
    auto& state = dynamic_cast<optim::FusedParamState&>(*entry.second);
    for (const auto& [name, tensor] : state.tensors()) {
      if (tensor->defined()) bytes += tensor->nbytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

TEST(ShardedOptimizer, KeepsHalfOfMasterWeightsAndMomentsOnEachOfTwoRanks) {
  const Ports ports;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto whole =
        make_learner(environment, ports.of[0], kWhole, kModes[1]);
    const auto divided =
        make_learner(environment, ports.of[1], kDivided, kModes[1]);
    int64_t bytes = 0;
    for (Learner* const learn : {whole.get(), divided.get()}) {
      learn->add<LambdaCallback>(
          {.on_step_end = [&](Learner& l) { bytes = kept_bytes(l); }});
    }
    whole->fit(1, 1e-3);
    const int64_t of_all = bytes;
    divided->fit(1, 1e-3);
    const auto sum = torch::tensor({bytes});
    communicator(*divided).all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), of_all);
    EXPECT_NEAR(static_cast<double>(bytes) / of_all, 0.5, 0.1);
  });
}

TEST(ShardedOptimizer, IsUsableAfterAnError) {
  const Ports ports;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto learn =
        make_learner(environment, ports.of[0], kDivided, kModes[1]);
    learn->add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      if (l.state().training && l.state().iteration == 3) {
        throw DataError("cat.jpg", "is no image");
      }
    }});
    EXPECT_ANY_THROW(learn->fit(1, 1e-2));
    // The 16-bit weights replace the master weights that were lost.
    for (const auto& entry : learn->state_dict()) {
      EXPECT_TRUE(entry.value().isfinite().all().item<bool>()) << entry.key();
    }
    learn->to_fp32();
  });
}

TEST(ShardedOptimizer, RejectsCallbacksThatReadAllMasterWeightsInEachStep) {
  const Ports ports;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto learn =
        make_learner(environment, ports.of[0], kDivided, kModes[1]);
    learn->add<Ema>();
    // A rank that still waits for the others receives the error that it would
    // have raised itself.
    expect_error<std::exception>(
        [&] { learn->fit(1, 1e-2); },
        {"shard_optimizer", "Ema"});
  });
}

}  // namespace
}  // namespace tern::sharded_optimizer_test
