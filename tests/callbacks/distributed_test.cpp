#include "tern/callbacks/distributed.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/multi_optimizer.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/saving/save_model.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::distributed_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

const DistributedOptions kQuick = {
    .group = {.timeout = std::chrono::seconds(30)}};

DataBunch data_of(int64_t batch_size, int64_t train = 256) {
  return point_data(train, 101, {.batch_size = batch_size, .workers = 0});
}

LearnerOptions with_sgd() {
  LearnerOptions options = quiet();
  options.optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1));
  options.metrics = {accuracy(), f_beta(1)};
  return options;
}

void expect_equal_on_all(Learner& learn, const std::string& bytes) {
  const auto group = learn.find<Distributed>()->group();
  for (const std::string& other : group->all_gather(bytes)) {
    EXPECT_TRUE(other == bytes);
  }
}

void expect_near(
    Learner& actual,
    Learner& expected,
    double relative,
    double absolute) {
  const Tensors a = parameters_of(actual), e = parameters_of(expected);
  ASSERT_EQ(a.size(), e.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i], e[i], relative, absolute)) << i;
  }
}

TEST(Distributed, MatchesOneProcessWithTheWholeBatch) {
  // 250 samples: the last batch of an epoch is short.
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    DataBunch whole = data_of(32, 250), shared = data_of(16, 250);
    for (DataBunch* data : {&whole, &shared}) {
      DataLoaderOptions options = data->train->options();
      options.drop_last = false;
      data->train =
          std::make_shared<DataLoader>(data->train->dataset_ptr(), options);
    }
    Learner alone(whole, plain_net(), with_sgd());
    alone.add<TrainMetrics>().fit(3, 0.1);
    const Validation expected = alone.validate();

    // All ranks start with rank 0's weights.
    Learner learn(shared, plain_net(7 + environment.rank), with_sgd());
    learn.to_distributed(kQuick).add<TrainMetrics>().fit(3, 0.1);
    const Validation actual = learn.validate();
    expect_near(learn, alone, 1e-5, 1e-6);
    EXPECT_NEAR(actual.loss, expected.loss, 1e-6);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(actual.metrics[i].value, expected.metrics[i].value);
    }
    EXPECT_EQ(learn.state()["train_f1"], alone.state()["train_f1"]);
    expect_equal_on_all(learn, bytes_of(learn));
  });
}

// Two layers with opposing losses, trained alternately or in one step.
std::unique_ptr<Learner> two_parts(DataBunch data, bool alternate) {
  torch::nn::Sequential net = plain_net();
  const auto loss_times = [net](double factor) {
    return [net, factor](const Batch& batch) mutable {
      const torch::Tensor x = net->forward(batch.inputs[0]);
      return factor * torch::cross_entropy_loss(x, batch.targets[0]);
    };
  };
  auto learn = std::make_unique<Learner>(std::move(data), net, with_sgd());
  learn->add<MultiOptimizer>(
      {.parts =
           {{.name = "first", .loss = loss_times(2), .modules = {"0"}},
            {.name = "last", .loss = loss_times(-0.1), .modules = {"2"}}},
       .alternate = alternate});
  return learn;
}

TEST(Distributed, MatchesOneProcessWithMultiOptimizer) {
  for (const bool alternate : {false, true}) {
    expect_ranks(2, [&](const LaunchEnvironment&) {
      const auto alone = two_parts(data_of(32), alternate);
      const auto learn = two_parts(data_of(16), alternate);
      learn->to_distributed(kQuick);
      for (Learner* each : {alone.get(), learn.get()}) {
        each->fit(1, 0.1);
        each->freeze_to(1);
        each->fit(1, 0.1);
      }
      expect_near(*learn, *alone, 1e-5, 1e-6);
      expect_equal_on_all(*learn, bytes_of(*learn));
    });
  }
}

TEST(Distributed, KeepsRanksEqualInEveryPrecision) {
  using Mode = void (*)(Learner&);
  const Mode kModes[] = {
      [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
      [](Learner& l) { l.to_bf16(); },
      [](Learner& l) { l.to_amp(); },
      [](Learner& l) { l.add<GradientAccumulation>({.batches = 3}); }};
  for (const Mode mode : kModes) {
    for (const bool sync_batch_norm : {false, true}) {
      expect_ranks(2, [&](const LaunchEnvironment& environment) {
        Learner learn(data_of(16), point_net(environment.rank + 1), quiet());
        mode(learn);
        DistributedOptions options = kQuick;
        options.sync_batch_norm = sync_batch_norm;
        learn.to_distributed(options).fit(2, 1e-2);
        expect_equal_on_all(learn, bytes_of(learn));
        EXPECT_LT(learn.validate().loss, 0.55);
      });
    }
  }
}

TEST(Distributed, SkipsAStepOnAllRanksIfOneOverflows) {
  const std::optional<torch::ScalarType> kTypes[] = {
      std::nullopt,
      torch::kHalf,
      torch::kBFloat16};
  for (const auto& compress_to : kTypes) {
    expect_ranks(2, [&](const LaunchEnvironment& environment) {
      Learner learn(data_of(16), point_net(), quiet());
      DistributedOptions options = kQuick;
      options.reducer.compress_to = compress_to;
      learn.to_fp16({.init_scale = 64, .force_fp16 = true});
      learn.to_distributed(options);
      learn.add(overflow_at(
          environment.rank == 1 ? std::set<int64_t>{2} : std::set<int64_t>{}));
      std::vector<int64_t> skipped;
      learn.add<LambdaCallback>({.on_step_end = [&](Learner& l) {
        if (l.state().step_result == StepResult::skipped) {
          skipped.push_back(l.state().iteration);
        }
      }});
      learn.fit(1, 1e-2);
      EXPECT_EQ(skipped, std::vector<int64_t>{2});
      expect_equal_on_all(learn, bytes_of(learn));
    });
  }
}

TEST(Distributed, LearnsWithGradientsCompressedTo16Bits) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    expect_ranks(2, [&](const LaunchEnvironment&) {
      Learner plain(data_of(32), plain_net(), with_sgd());
      plain.fit(2, 0.1);
      Learner learn(data_of(16), plain_net(), with_sgd());
      DistributedOptions options = kQuick;
      options.reducer.compress_to = dtype;
      learn.to_distributed(options).fit(2, 0.1);
      expect_near(learn, plain, 1e-2, 1e-2);
      EXPECT_FALSE(all_equal(parameters_of(learn), parameters_of(plain)));
      expect_equal_on_all(learn, bytes_of(learn));
    });
  }
}

TEST(Distributed, MatchesOneProcessWithSyncBatchNorm) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    Learner alone(data_of(32), point_net(), with_sgd());
    alone.fit(3, 0.1);
    const Validation expected = alone.validate();
    Learner learn(data_of(16), point_net(), with_sgd());
    DistributedOptions options = kQuick;
    options.sync_batch_norm = true;
    learn.to_distributed(options).fit(3, 0.1);
    EXPECT_NEAR(learn.validate().loss, expected.loss, 1e-5);
    const StateDict state = learn.state_dict();
    for (const auto& entry : alone.state_dict()) {
      EXPECT_TRUE(torch::allclose(
          state[entry.key()].to(torch::kDouble),
          entry.value().to(torch::kDouble),
          1e-4,
          1e-5))
          << entry.key();
    }
    expect_equal_on_all(learn, bytes_of(learn));
  });
}

TEST(Distributed, TrainsWithSeveralDevicesPerProcess) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    Learner alone(data_of(32), plain_net(), with_sgd());
    alone.fit(2, 0.1);
    Learner learn(data_of(16), plain_net(), with_sgd());
    const std::vector<torch::Device> devices = {torch::kCPU, torch::kCPU};
    learn.to_parallel(devices).to_distributed(kQuick).fit(2, 0.1);
    expect_near(learn, alone, 1e-5, 1e-6);
    expect_equal_on_all(learn, bytes_of(learn));
  });
}

TEST(Distributed, StopsAllRanksAfterTheStepInWhichOneRequestedAStop) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), point_net(), quiet());
    learn.to_distributed(kQuick);
    learn.add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
      const bool is_asked = environment.rank == 1 && l.state().iteration == 5;
      if (l.state().training && is_asked) l.request_stop();
    }});
    learn.fit(3, 1e-2);
    EXPECT_EQ(learn.state().iteration, 5);
    EXPECT_EQ(learn.state().result, FitResult::interrupted);
    expect_equal_on_all(learn, bytes_of(learn));
  });
}

TEST(Distributed, StopsValidationOnAllRanks) {
  // 101 samples in batches of 16: one rank has 4 batches; all ranks have at
  // least 3.
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), point_net(), quiet());
    learn.to_distributed(kQuick);
    int64_t seen = 0;
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      if (l.state().training) return;
      if (++seen == 2 && environment.rank == 1) l.request_stop();
    }});
    learn.fit(3, 1e-2);
    EXPECT_EQ(seen, 2);
    EXPECT_EQ(learn.state().epoch, 0);
    EXPECT_EQ(learn.state().result, FitResult::interrupted);
    expect_equal_on_all(learn, bytes_of(learn));
    learn.validate();  // outside of fit, no rank waits for stop requests
  });
}

// Rank 0's process runs the store through which errors are reported.
TEST(Distributed, ReportsTheErrorOfOneRankOnAllRanks) {
  for (const int64_t failing : {0, 1, 2}) {
    expect_ranks(3, [&](const LaunchEnvironment& environment) {
      Learner learn(data_of(24), point_net(), quiet());
      learn.to_distributed(kQuick);
      learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
        if (environment.rank == failing && l.state().iteration == 3) {
          throw DataError(
              "igloo/NCCL.jpg",
              "is no image");  // the name of the file must not matter
        }
      }});
      const OwnTime waited;
      if (environment.rank == failing) {
        expect_error<DataError>([&] { learn.fit(1, 1e-2); }, {"igloo"});
      } else {
        const std::string teller = fmt::format("rank {} ended with", failing);
        expect_error<DistributedError>(
            [&] { learn.fit(1, 1e-2); },
            {teller, "igloo/NCCL.jpg", "is no image"});
      }
      EXPECT_LT(waited.seconds(), 5);
      EXPECT_FALSE(learn.state().is_fitting);
    });
  }
}

// Rank 0 exits immediately, and its store with it, unless it waits for the
// other ranks.
TEST(Distributed, ReportsTheErrorOfRankZeroOnBusyRanks) {
  expect_ranks(3, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(24), point_net(), quiet());
    learn.to_distributed(kQuick);
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      if (l.state().iteration != 3) return;
      if (environment.rank == 0) throw DataError("cat.jpg", "is no image");
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }});
    if (environment.rank == 0) {
      expect_error<DataError>([&] { learn.fit(1, 1e-2); }, {"cat.jpg"});
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    expect_error<DistributedError>(
        [&] { learn.fit(1, 1e-2); },
        {"rank 0 ended with", "cat.jpg"});
  });
}

// Each rank throws its own error, which must not be replaced by the error of
// another rank.
TEST(Distributed, ReportsEachRanksOwnErrorWhenAllFail) {
  expect_ranks(3, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(24), point_net(), quiet());
    learn.to_distributed(kQuick);
    const std::string file = fmt::format("{}.jpg", environment.rank);
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner&) {
      // The other ranks have reported their errors by then.
      std::this_thread::sleep_for(
          std::chrono::milliseconds(150 * environment.rank));
      throw DataError(file, "is no image");
    }});
    const OwnTime waited;
    expect_error<DataError>([&] { learn.fit(1, 1e-2); }, {file});
    EXPECT_LT(waited.seconds(), 5);
  });
}

TEST(Distributed, ReportsARankThatWasKilledWithinSeconds) {
  const auto results = run_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), point_net(), quiet());
    learn.to_distributed(kQuick);
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      if (environment.rank == 1 && l.state().iteration == 3) {
        ::raise(SIGKILL);
      }
    }});
    const OwnTime waited;
    expect_error<DistributedError>(
        [&] { learn.fit(1, 1e-2); },
        {"rank 0 of 2 lost its connection"});
    EXPECT_LT(waited.seconds(), 5);
  });
  EXPECT_EQ(results, (std::vector<int>{0, -SIGKILL}));
}

TEST(Distributed, RejectsRanksThatTrainOnDifferentData) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16 + environment.rank), point_net(), quiet());
    learn.to_distributed(kQuick);
    expect_error<DistributedError>(
        [&] { learn.fit(1, 1e-2); },
        {"batch size of rank 1 is 17, but rank 0 has 16"});
  });
}

TEST(Distributed, PrintsAndWritesOnlyOnTheMainProcess) {
  const TempFolder folder;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto words = std::make_shared<MemorySink>();
    Learner learn(
        data_of(16),
        point_net(),
        {.path = folder.path() / std::to_string(environment.rank),
         .sink = words});
    fs::create_directories(learn.options().path);
    learn.to_distributed(kQuick);
    learn.add<CSVLogger>().add<SaveCheckpoint>();
    learn.fit(1, 1e-2);
    EXPECT_EQ(words->lines.empty(), environment.rank == 1);
    EXPECT_EQ(fs::is_empty(learn.options().path), environment.rank == 1);
  });
}

/// Counts batches with a step that depends on the rank; rank 0 and the others
/// save entries with different names.
class CountsOnItsRank final : public Callback {
 public:
  void on_batch_end(Learner& learn) override {
    if (!learn.state().training) return;
    is_main_ = communicator(learn).is_main_process();
    count_ += communicator(learn).rank() + 1;
  }
  StateDict state_dict() const override {
    return {
        {"count", torch::tensor(count_)},
        {is_main_ ? "is_main" : "is_other", torch::zeros({0})}};
  }
  void load_state_dict(const StateDict& state) override {
    count_ = state["count"].item<int64_t>();
    entries_ = fmt::to_string(fmt::join(state.keys(), " "));
  }
  int64_t count() const { return count_; }
  /// Names of the entries of the loaded state; empty if none was loaded.
  const std::string& entries() const { return entries_; }

 private:
  bool is_main_ = true;
  int64_t count_ = 0;
  std::string entries_;
};

// Formats the history that a rank has recorded, with all digits.
std::string history_of(Learner& learn) {
  std::string text = std::to_string(learn.find<CountsOnItsRank>()->count());
  for (const double loss : learn.recorder().smooth_losses()) {
    text += fmt::format(" {}", loss);
  }
  for (const EpochRecord& epoch : learn.recorder().epochs()) {
    text += fmt::format("; {} {}", epoch.train_loss, epoch.valid_loss);
    for (const MetricValue& metric : epoch.metrics) {
      text += fmt::format(" {} {}", metric.name, metric.value);
    }
  }
  return text;
}

// Three ranks all-reduce a bucket of gradients in parts, so the sums depend on
// the layout of the bucket.
class ResumedRanks : public testing::TestWithParam<int64_t> {};

TEST_P(ResumedRanks, ContinueBitIdenticallyFromACheckpoint) {
  const int64_t ranks = GetParam();
  const TempFolder folder;
  const auto make = [&](const fs::path& path) {
    torch::nn::Sequential net = point_net();
    net->push_back(torch::nn::Dropout(0.2));  // on the logits, for randomness
    auto learn = std::make_unique<Learner>(
        data_of(32 / ranks),
        net,
        quiet({.metrics = {accuracy()}}));
    learn->to_distributed(kQuick);
    learn->add<SaveCheckpoint>({.folder = path, .every_steps = 3});
    learn->add<TrainMetrics>().add<EarlyStopping>({.monitor = "train_loss"});
    learn->add(std::make_shared<CountsOnItsRank>());
    return learn;
  };
  const auto history_file = [&](Learner& learn) {
    return folder / fmt::format("history {}", communicator(learn).rank());
  };
  expect_ranks(ranks, [&](const LaunchEnvironment&) {
    const auto whole = make(folder / "whole");
    whole->fit(3, 1e-2);
    expect_equal_on_all(*whole, bytes_of(*whole));
    write_file(history_file(*whole), history_of(*whole));
    if (communicator(*whole).is_main_process()) {
      write_file(folder / "expected", bytes_of(*whole));
    }
  });
  expect_ranks(ranks, [&](const LaunchEnvironment&) {
    const auto learn = make(folder / "cut");
    learn->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
      if (l.state().training && l.state().iteration == 5) l.request_stop();
    }});
    learn->fit(3, 1e-2);
  });
  expect_ranks(ranks, [&](const LaunchEnvironment&) {
    const auto learn = make(folder / "cut");
    learn->resume(folder / "cut");
    learn->fit(3, 1e-2);
    const auto text_in = [](const fs::path& file) {
      const auto bytes = read_file(file);
      return std::string(bytes.begin(), bytes.end());
    };
    EXPECT_TRUE(bytes_of(*learn) == text_in(folder / "expected"));
    EXPECT_EQ(history_of(*learn), text_in(history_file(*learn)));
    const bool is_main = communicator(*learn).is_main_process();
    EXPECT_EQ(
        learn->find<CountsOnItsRank>()->entries(),
        is_main ? "count is_main" : "count is_other");
  });
}

INSTANTIATE_TEST_SUITE_P(Distributed, ResumedRanks, testing::Values(2, 3, 4));

// Rank 0's optimizer holds only its shard and differs from the others then.
TEST(Distributed, KeepsAllShardsOfTheOptimizerInTheFitAfterAResumedFit) {
  const TempFolder folder;
  const auto make = [&] {
    auto learn = std::make_unique<Learner>(
        data_of(32),
        plain_net(),
        quiet(
            {.optimizer = optimizer<optim::SGD>(
                 torch::optim::SGDOptions(0.1).momentum(0.9))}));
    DistributedOptions distributed = kQuick;
    distributed.shard_optimizer = true;
    learn->to_distributed(distributed);
    return learn;
  };
  expect_ranks(2, [&](const LaunchEnvironment&) {
    const auto whole = make();
    whole->fit(2, 0.1).fit(1, 0.01);
    write_file(folder / "expected", bytes_of(*whole));
  });
  expect_ranks(2, [&](const LaunchEnvironment&) {
    const auto cut = make();
    cut->add<SaveCheckpoint>({.folder = folder / "run"});
    cut->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
      if (l.state().training && l.state().iteration == 5) l.request_stop();
    }});
    cut->fit(2, 0.1);
  });
  expect_ranks(2, [&](const LaunchEnvironment&) {
    const auto learn = make();
    learn->resume(folder / "run").fit(2, 0.1).fit(1, 0.01);
    const auto expected = read_file(folder / "expected");
    EXPECT_TRUE(
        bytes_of(*learn) == std::string(expected.begin(), expected.end()));
  });
}

TEST(Distributed, FreezesAndUnfreezesDuringAFitAsOneProcessDoes) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    const auto freezes = [](Learner& learn) {
      learn.split({"2"}).freeze();
      learn.add<LambdaCallback>({.on_epoch_begin = [](Learner& l) {
        if (l.state().epoch == 1) l.unfreeze();
        if (l.state().epoch == 2) l.freeze();
      }});
      learn.add<LambdaCallback>({.on_batch_begin = [](Learner& l) {
        const TrainState& s = l.state();
        if (s.training && s.epoch == 2 && s.batch == 4) l.unfreeze();
      }});
      learn.fit(3, 0.1);
    };
    Learner alone(data_of(32), plain_net(), with_sgd());
    freezes(alone);
    Learner learn(data_of(16), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    freezes(learn);
    expect_near(learn, alone, 1e-5, 1e-6);
    expect_equal_on_all(learn, bytes_of(learn));
  });
}

TEST(Distributed, RejectsRanksWithDifferentOptions) {
  const auto refuses = [](const auto& options_of, const char* words) {
    expect_ranks(2, [&](const LaunchEnvironment& environment) {
      Learner learn(
          data_of(16),
          plain_net(),
          quiet(options_of(environment.rank == 1)));
      learn.to_distributed(kQuick);
      expect_error<DistributedError>([&] { learn.fit(1, 1e-2); }, {words});
    });
  };
  refuses(
      [](bool is_second) {
        return is_second ? with_sgd()
                         : LearnerOptions{.metrics = with_sgd().metrics};
      },
      "the optimizer of rank 1 is tern::optim::SGD");
  refuses(
      [](bool is_second) {
        return LearnerOptions{.weight_decay = is_second ? 0.5 : 0.1};
      },
      "the weight decay of rank 1 is 0.5, but rank 0 has 0.1");
  refuses(
      [](bool is_second) {
        return is_second ? LearnerOptions{.metrics = {accuracy()}}
                         : LearnerOptions();
      },
      "the list of metrics of rank 1 is accuracy");
}

TEST(Distributed, RejectsACheckpointOfADifferentNumberOfProcesses) {
  const TempFolder folder;
  // Two epochs of 8 steps each on two ranks, of 16 steps on one.
  const auto train = [&](int64_t processes, const fs::path& run, bool goes_on) {
    expect_ranks(processes, [&](const LaunchEnvironment&) {
      Learner learn(data_of(16), plain_net(), quiet());
      learn.to_distributed(kQuick);
      if (goes_on) {
        expect_error<CheckpointError>(
            [&] { learn.resume(run); },
            {"batches was", "processes was"});
        const auto first_epoch = run / (processes == 1 ? "step_8" : "step_16");
        learn.resume(first_epoch, {.allow_change = true}).fit(2, 1e-2);
        EXPECT_EQ(learn.state().iteration, 8 + 16);
      } else {
        learn.add<SaveCheckpoint>({.folder = run}).fit(2, 1e-2);
      }
    });
  };
  train(2, folder / "of two", false);
  train(1, folder / "of two", true);
  train(1, folder / "of one", false);
  train(2, folder / "of one", true);
}

TEST(Distributed, KeepsRanksEqualAfterLoadingTheBestModel) {
  const TempFolder folder;
  expect_ranks(2, [&](const LaunchEnvironment&) {
    Learner learn(data_of(16), point_net(), quiet({.path = folder.path()}));
    learn.to_distributed(kQuick);
    learn.add(scripted_valid_loss({3, 1, 2, 4, 3, 5, 6})).add<SaveModel>();
    learn.fit(3, 1e-2).fit(3, 1e-2);
    expect_equal_on_all(learn, bytes_of(learn));
    learn.remove(*learn.find<SaveModel>());
    learn.fit(1, 1e-2);
    expect_equal_on_all(learn, bytes_of(learn));
  });
}

// If rank 0 could not write the model, no rank assumes that it exists.
TEST(Distributed, KeepsRanksEqualIfTheBestModelCannotBeSaved) {
  const TempFolder folder;
  const fs::path models = folder / "models", away = folder / "away";
  expect_ranks(2, [&](const LaunchEnvironment&) {
    Learner learn(data_of(16), point_net(), quiet({.path = folder.path()}));
    learn.to_distributed(kQuick);
    learn.add(scripted_valid_loss({3})).add<SaveModel>();
    learn.add<LambdaCallback>({.on_epoch_begin = [&](Learner& l) {
      if (!communicator(l).is_main_process()) return;
      fs::rename(models, away);
      write_file(models, "a file");
    }});
    learn.fit(1, 1e-2);
    EXPECT_FALSE(learn.find<SaveModel>()->has_loaded());
    expect_equal_on_all(learn, bytes_of(learn));
  });
}

TEST(Distributed, GivesBatchTransformsDifferentRandomNumbersOnEachRank) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    DataBunch data = data_of(16);
    std::string drawn;
    data.batch_transforms.push_back(
        [&](Batch&, const BatchTransformContext& context) {
          if (context.training) {
            drawn += std::to_string(context.rng(0)()) + " ";
          }
        });
    Learner learn(data, point_net(), quiet());
    learn.to_distributed(kQuick).fit(1, 1e-2);
    const auto all = learn.find<Distributed>()->group()->all_gather(drawn);
    EXPECT_NE(all[0], all[1]);
  });
}

TEST(Distributed, ChangesNothingInASingleProcess) {
  expect_ranks(1, [](const LaunchEnvironment&) {
    Learner learn(data_of(16), point_net(), quiet());
    learn.to_distributed();
    EXPECT_EQ(learn.find<Distributed>(), nullptr);
    EXPECT_TRUE(communicator(learn).is_main_process());
    learn.fit(1, 1e-2);
    EXPECT_EQ(learn.state().iteration, 16);
  });
}

}  // namespace
}  // namespace tern::distributed_test
