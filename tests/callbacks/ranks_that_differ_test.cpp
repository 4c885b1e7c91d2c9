// Errors for ranks that do different things, and differences that ranks may
// have.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tern/callbacks/distributed.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/prune_trial.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/metrics/ranking.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/in_order.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::ranks_that_differ_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

const DistributedOptions kQuick = {
    .group = {.timeout = std::chrono::seconds(30)}};

DataBunch data_of(int64_t batch_size) {
  return point_data(256, 101, {.batch_size = batch_size, .workers = 0});
}

LearnerOptions with_sgd() {
  return quiet(
      {.optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1)),
       .metrics = {accuracy()}});
}

void expect_near(Learner& actual, Learner& expected) {
  const Tensors a = parameters_of(actual), e = parameters_of(expected);
  ASSERT_EQ(a.size(), e.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i], e[i], 1e-5, 1e-6)) << i;
  }
}

// Trains on two ranks with what `set_up` adds, and expects an error with these
// words within seconds.
void expect_refusal(
    const std::function<void(Learner&, int64_t rank)>& set_up,
    std::initializer_list<std::string_view> words) {
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), with_sgd());
    learn.to_distributed(kQuick);
    set_up(learn, environment.rank);
    const OwnTime waited;
    expect_error<DistributedError>([&] { learn.fit(3, 0.1); }, words);
    EXPECT_LT(waited.seconds(), 10);
  });
}

TEST(RanksThatDiffer, ARankThatFreezesAloneIsReported) {
  for (const bool freezes : {true, false}) {
    expect_refusal(
        [freezes](Learner& learn, int64_t rank) {
          learn.split({"2"});
          if (!freezes) learn.freeze();
          learn.add<LambdaCallback>({.on_epoch_begin = [=](Learner& l) {
            if (rank == 0 || l.state().epoch == 0) return;
            freezes ? l.freeze() : l.unfreeze();
          }});
        },
        {"rank 1 calls all_gather of the choice of trained parameters (freeze, "
         "unfreeze)"});
  }
}

TEST(RanksThatDiffer, FreezingDifferentPartsIsReported) {
  expect_refusal(
      [](Learner& learn, int64_t rank) {
        learn.split({"2"});
        learn.add<LambdaCallback>({.on_epoch_begin = [=](Learner& l) {
          if (l.state().epoch == 1) {
            l.model().parameters()[rank].tensor.requires_grad_(false);
          }
        }});
      },
      {"choice of trained parameters (freeze, unfreeze) of rank 1 is 3 of 4"});
}

TEST(RanksThatDiffer, ACollectiveCallOfOneRankIsNamed) {
  expect_refusal(
      [](Learner& learn, int64_t rank) {
        learn.add<LambdaCallback>({.on_batch_end = [=](Learner& l) {
          if (rank == 1 && l.state().iteration == 2) communicator(l).mean(1);
        }});
      },
      {"rank 1 calls all_reduce of Double []", "a callback"});
}

TEST(RanksThatDiffer, WeightsChangedOnOneRankAreFoundAtTheEndOfTheEpoch) {
  using Change = std::function<void(torch::Tensor)>;
  const auto changes = [](Learner& learn, int64_t rank, const Change& change) {
    learn.add<LambdaCallback>({.on_batch_end = [=](Learner& l) {
      if (rank == 0 || l.state().iteration != 15) return;
      const torch::NoGradGuard no_grad;
      change(l.model().parameters()[2].tensor);
    }});
  };
  // A checksum by XOR would miss these changes: an even number of equal
  // elements cancels out.
  const std::vector<Change> all = {
      [](torch::Tensor weight) { weight[0][0] += 1e-6; },
      [](torch::Tensor weight) { weight.neg_(); },
      [](torch::Tensor weight) { weight.add_(weight.flip(0) * 1e-3); }};
  for (const Change& change : all) {
    expect_refusal(
        [&](Learner& learn, int64_t rank) { changes(learn, rank, change); },
        {"after epoch 1 the weights of rank 1 differ from rank 0's weights",
         "1 of 4 parameters, the first of which is 2.weight",
         "check_weights"});
  }
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), with_sgd());
    DistributedOptions options = kQuick;
    options.check_weights = false;
    learn.to_distributed(options);
    changes(learn, environment.rank, all[0]);
    learn.fit(2, 0.1);
    EXPECT_EQ(learn.state().result, FitResult::completed);
  });
}

TEST(RanksThatDiffer, AConstantThatDiffersIsFoundBeforeTheFirstStep) {
  expect_refusal(
      [](Learner& learn, int64_t rank) {
        learn.add<LambdaCallback>(
            {.on_train_begin =
                 [=](Learner& l) {
                   const torch::NoGradGuard no_grad;
                   l.model().parameters()[0].tensor.fill_(rank == 0 ? 1 : 0.5);
                 },
             .order = callback_order::kLast + 1});
      },
      {"before the first step", "the first of which is 0.weight"});
}

TEST(RanksThatDiffer, AnEmptyParameterIsAccepted) {
  expect_ranks(2, [](const LaunchEnvironment&) {
    auto net = plain_net();
    net->register_parameter("none", torch::zeros({0, 3}));
    LearnerOptions options = with_sgd();
    options.warn_unused_parameters = false;
    Learner learn(data_of(16), net, options);
    DistributedOptions distributed = kQuick;
    distributed.reducer.find_unused_parameters = true;
    learn.to_distributed(distributed).fit(1, 0.1);
    EXPECT_EQ(learn.state().result, FitResult::completed);
  });
}

// ---- A branch that only some batches take ----

/// Adds a second layer if the batch's first number is positive.
struct BranchNetImpl : torch::nn::Module {
  BranchNetImpl() {
    torch::manual_seed(7);
    register_module("always", always = torch::nn::Linear(2, 2));
    register_module("sometimes", sometimes = torch::nn::Linear(2, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = always(x);
    return x[0][0].item<float>() > 0 ? y + sometimes(x) : y;
  }
  torch::nn::Linear always = nullptr, sometimes = nullptr;
};
TORCH_MODULE(BranchNet);

// Batches of 4 in which rank 0, rank 1, both ranks and neither take the branch.
DataBunch branch_data() {
  torch::Tensor x =
      torch::randn({32, 2}, at::detail::createCPUGenerator(1)).abs();
  const std::vector<float> signs = {1, -1, -1, 1, 1, 1, -1, -1};
  for (size_t i = 0; i < signs.size(); ++i) {
    x.narrow(0, static_cast<int64_t>(4 * i), 4) *= signs[i];
  }
  return in_order(x, (x.sum(1) > 1).to(torch::kLong), 4);
}

TEST(RanksThatDiffer, ABranchThatOneRankSkipsIsNamed) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(branch_data(), BranchNet(), with_sgd());
    learn.to_distributed(kQuick);
    const OwnTime waited;
    const auto train = [&] { learn.fit(1, 0.1); };
    const std::initializer_list<std::string_view> words = {
        "sometimes.weight, sometimes.bias got no gradient on rank 1",
        "find_unused_parameters"};
    if (environment.rank == 1) {
      expect_error<c10::Error>(train, words);
    } else {
      expect_error<DistributedError>(train, words);
    }
    EXPECT_LT(waited.seconds(), 10);
  });
}

TEST(RanksThatDiffer, CanTakeDifferentBranches) {
  // Trains in one process with the gradients of both ranks.
  const auto by_hand = [] {
    BranchNet net;
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    const DataBunch data = branch_data();
    std::vector<torch::Tensor> inputs, targets;
    for (const Batch& batch : *data.train) {
      inputs.push_back(batch.inputs[0]);
      targets.push_back(batch.targets[0]);
    }
    for (size_t i = 0; i < inputs.size(); i += 2) {
      sgd.zero_grad();
      for (size_t rank = 0; rank < 2; ++rank) {
        const auto loss = torch::nn::functional::cross_entropy(
            net->forward(inputs[i + rank]),
            targets[i + rank]);
        (loss / 2).backward();
      }
      // Parameters that neither rank used keep a gradient of zeros.
      sgd.step();
    }
    return net->parameters();
  };
  expect_ranks(2, [&](const LaunchEnvironment&) {
    LearnerOptions with_no_decay = with_sgd();
    with_no_decay.weight_decay = 0;
    Learner learn(branch_data(), BranchNet(), with_no_decay);
    DistributedOptions options = kQuick;
    options.reducer.find_unused_parameters = true;
    learn.to_distributed(options).fit(1, 0.1);
    const Tensors a = parameters_of(learn), e = by_hand();
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(torch::allclose(a[i], e[i], 1e-5, 1e-6)) << i;
    }
  });
}

// ---- Data ----

/// Inputs and targets of one rank.
struct Points {
  torch::Tensor x, y;
};

Points points_of(int64_t samples, uint64_t seed) {
  const torch::Tensor x =
      torch::randn({samples, 2}, at::detail::createCPUGenerator(seed));
  return {x, (x.sum(1) > 0).to(torch::kLong)};
}

TEST(RanksThatDiffer, DifferentDataOfTheSameSizeIsRejected) {
  const auto refuses = [](bool in_validation, std::string_view words) {
    expect_ranks(2, [&](const LaunchEnvironment& environment) {
      const auto set = [](uint64_t seed) {
        const Points p = points_of(32, seed);
        return std::make_shared<TensorDataset>(Tensors{p.x}, Tensors{p.y});
      };
      const auto own = static_cast<uint64_t>(environment.rank);
      DataBunch data = DataBunch::create(
          set(in_validation ? 0 : own),
          set(in_validation ? own : 0),
          {.batch_size = 8, .workers = 0});
      data.device = torch::kCPU;
      Learner learn(data, plain_net(), with_sgd());
      learn.to_distributed(kQuick);
      expect_error<DistributedError>(
          [&] { learn.fit(1, 0.1); },
          {words, "shard_data"});
    });
  };
  refuses(false, "fingerprint of the training data of rank 1");
  refuses(true, "fingerprint of the validation data of rank 1");
}

TEST(RanksThatDiffer, DifferentOptionsOfToDistributedAreRejected) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    Learner learn(data_of(16), plain_net(), with_sgd());
    DistributedOptions options = kQuick;
    options.reducer.find_unused_parameters = environment.rank == 1;
    learn.to_distributed(options);
    expect_error<DistributedError>(
        [&] { learn.fit(1, 0.1); },
        {"rank 1", "find_unused_parameters true"});
  });
}

constexpr int64_t kBatch = 8;

DistributedOptions with_own_data() {
  DistributedOptions options = kQuick;
  options.shard_data = false;
  return options;
}

// Three batches of 8 per rank, the last of which is short.
Points own_points(int64_t rank) {
  const std::vector<int64_t> samples = {20, 23, 18};
  return points_of(samples[rank], 10 + rank);
}

DataBunch own_data(int64_t rank) {
  const Points p = own_points(rank);
  return in_order(p.x, p.y, kBatch);
}

// The same data for one process, whose batch b contains all ranks' batches b.
DataBunch joint_data(int64_t ranks) {
  Tensors x, y;
  for (int64_t first = 0; first < 3 * kBatch; first += kBatch) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Points p = own_points(rank);
      const int64_t end = std::min(first + kBatch, p.x.size(0));
      x.push_back(p.x.slice(0, first, end));
      y.push_back(p.y.slice(0, first, end));
    }
  }
  return in_order(torch::cat(x), torch::cat(y), ranks * kBatch);
}

TEST(RanksThatDiffer, CanHaveSeparateData) {
  for (const int64_t ranks : {2, 3}) {
    for (const int64_t window : {1, 2}) {
      expect_ranks(ranks, [&](const LaunchEnvironment& environment) {
        const auto accumulates = [&](Learner& learn) {
          learn.add<GradientAccumulation>({.batches = window});
          learn.fit(2, 0.1);
        };
        Learner alone(joint_data(ranks), plain_net(), with_sgd());
        accumulates(alone);
        Learner learn(own_data(environment.rank), plain_net(), with_sgd());
        learn.to_distributed(with_own_data());
        accumulates(learn);
        expect_near(learn, alone);
        EXPECT_NEAR(learn.state().valid_loss, alone.state().valid_loss, 1e-5);
        EXPECT_EQ(learn.state()["accuracy"], alone.state()["accuracy"]);
        EXPECT_EQ(communicator(learn).mean(1), 1);  // still in sync
      });
    }
  }
}

TEST(RanksThatDiffer, SeparateDataIsLimitedByBatchesPerRank) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const Points p = points_of(16 + 16 * environment.rank, 3);
    Learner learn(in_order(p.x, p.y, kBatch), plain_net(), with_sgd());
    learn.to_distributed(with_own_data());
    learn.add<LimitBatches>({.train = 2});
    learn.fit(2, 0.1);
    EXPECT_EQ(learn.state().iteration, 4);
  });
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const Points p = points_of(16 + 16 * environment.rank, 3);
    Learner learn(in_order(p.x, p.y, kBatch), plain_net(), with_sgd());
    learn.to_distributed(with_own_data());
    expect_error<DistributedError>(
        [&] { learn.fit(1, 0.1); },
        {"number of training batches in an epoch of rank 1 is 4, but rank 0 "
         "has 2",
         "LimitBatches"});
  });
}

// A dataset that leaves out the samples from `first` to `last` - 1, as if their
// images could not be read.
class WithGap final : public Dataset {
 public:
  WithGap(const Points& p, int64_t first, int64_t last)
      : all_(Tensors{p.x}, Tensors{p.y}), first_(first), last_(last) {}
  int64_t size() const override { return all_.size(); }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    std::vector<int64_t> kept, left_out;
    for (int64_t row = 0; row < std::ssize(indices); ++row) {
      const bool is_in_gap = indices[row] >= first_ && indices[row] < last_;
      if (is_in_gap) {
        left_out.push_back(row);
      } else {
        kept.push_back(indices[row]);
      }
    }
    Batch batch = all_.get_batch(kept, context);
    batch.left_out = std::move(left_out);
    return batch;
  }

 private:
  TensorDataset all_;
  int64_t first_, last_;
};

// Batches of one rank may lose some or all of their samples. The result must
// equal validation on the remaining samples.
TEST(RanksThatDiffer, SamplesLeftOutOfValidationCountOnNoRank) {
  struct Case {
    int64_t samples, first, last;
  };
  for (const auto& [samples, first, last] :
       {Case{20, 4, 8}, {20, 5, 15}, {8, 4, 8}, {3, 0, 1}}) {
    const Points p = points_of(samples, 5);
    const auto kept =
        torch::cat({torch::arange(first), torch::arange(last, samples)});
    const auto data_with = [](std::shared_ptr<const Dataset> valid) {
      DataBunch data = data_of(16);
      data.valid = std::make_shared<DataLoader>(
          std::move(valid),
          DataLoaderOptions{.batch_size = 2, .workers = 0});
      return data;
    };
    const auto options = [] {
      LearnerOptions all = with_sgd();
      all.metrics = {accuracy(), f1(), roc_auc()};
      return all;
    };
    Learner alone(
        data_with(std::make_shared<TensorDataset>(
            Tensors{p.x.index_select(0, kept)},
            Tensors{p.y.index_select(0, kept)})),
        plain_net(),
        options());
    const Validation expected = alone.validate();
    for (const int64_t world_size : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} samples, {} ranks", samples, world_size));
      expect_ranks(world_size, [&](const LaunchEnvironment&) {
        Learner learn(
            data_with(std::make_shared<WithGap>(p, first, last)),
            plain_net(),
            options());
        learn.to_distributed(kQuick);
        learn.add<LambdaCallback>({.on_batch_end = [](Learner& l) {
          if (!l.state().training) l.log("two", 2);
        }});
        learn.fit(1, 0.0);
        EXPECT_EQ(learn.state()["two"], 2);
        const auto& metrics = learn.state().last_metrics;
        EXPECT_NEAR(learn.state().valid_loss, expected.loss, 1e-6);
        ASSERT_EQ(metrics.size(), expected.metrics.size() + 1);
        for (size_t i = 0; i < expected.metrics.size(); ++i) {
          if (std::isnan(expected.metrics[i].value)) {
            EXPECT_TRUE(std::isnan(metrics[i].value)) << metrics[i].name;
          } else {
            EXPECT_NEAR(metrics[i].value, expected.metrics[i].value, 1e-6)
                << metrics[i].name;
          }
        }
      });
    }
  }
}

TEST(RanksThatDiffer, AnEmptyValidationIsReportedOnAllRanks) {
  const Points p = points_of(8, 5);
  for (const int64_t world_size : {1, 2}) {
    expect_ranks(world_size, [&](const LaunchEnvironment&) {
      DataBunch data = data_of(16);
      data.valid = std::make_shared<DataLoader>(
          std::make_shared<WithGap>(p, 0, 8),
          DataLoaderOptions{.batch_size = 2, .workers = 0});
      Learner learn(data, plain_net(), with_sgd());
      learn.to_distributed(kQuick);
      expect_error<c10::ValueError>(
          [&] { learn.fit(1, 0.1); },
          {"the valid loader has no batch"});
    });
  }
}

TEST(RanksThatDiffer, SamplesCannotBeLeftOutOfTraining) {
  DataBunch data = data_of(16);
  data.train = std::make_shared<DataLoader>(
      std::make_shared<WithGap>(points_of(8, 5), 2, 3),
      DataLoaderOptions{.batch_size = 4, .workers = 0});
  Learner learn(data, plain_net(), with_sgd());
  expect_error<c10::ValueError>(
      [&] { learn.fit(1, 0.1); },
      {"omitted 1 samples from a training batch",
       "DataLoaderOptions::training"});
}

// Otherwise the other ranks would wait until the timeout.
TEST(RanksThatDiffer, AFitThatCannotStartOnOneRankStartsOnNone) {
  expect_ranks(3, [](const LaunchEnvironment& environment) {
    DataBunch data = own_data(0);
    const auto valid = data.valid;
    if (environment.rank == 1) {
      const Points p = points_of(3, 1);
      DataLoaderOptions options = valid->options();
      options.drop_last = true;
      data.valid = std::make_shared<DataLoader>(
          std::make_shared<TensorDataset>(Tensors{p.x}, Tensors{p.y}),
          options);
    }
    Learner learn(data, plain_net(), with_sgd());
    learn.to_distributed(with_own_data());
    const std::string error = error_of<c10::Error>([&] { learn.fit(1, 0.1); });
    EXPECT_NE(error.find("no batch"), std::string::npos) << error;
    EXPECT_EQ(
        error.find("rank 1: ") != std::string::npos,
        environment.rank != 1)
        << error;
    learn.data().valid = valid;
    learn.fit(1, 0.1);
    EXPECT_EQ(learn.state().result, FitResult::completed);
  });
}

// If a stop is requested on one rank, validation ends on all ranks after the
// same batch.
TEST(RanksThatDiffer, AStopInAValidationOfDifferentLengthsStopsAllRanks) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    DataBunch data = own_data(0);
    const Points p = points_of(16 + 64 * environment.rank, 3);
    data.valid = in_order(p.x, p.y, kBatch).valid;
    Learner learn(data, plain_net(), with_sgd());
    learn.to_distributed(with_own_data());
    learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
      const TrainState& s = l.state();
      if (environment.rank == 1 && !s.training && s.batch == 1)
        l.request_stop();
    }});
    learn.fit(3, 0.1);
    EXPECT_EQ(learn.state().result, FitResult::interrupted);
    EXPECT_EQ(communicator(learn).mean(1), 1);
  });
}

TEST(RanksThatDiffer, ResumeBitIdenticallyWithSeparateData) {
  const TempFolder folder;
  const auto make = [](int64_t data, uint64_t seed) {
    auto learn =
        std::make_unique<Learner>(own_data(data), plain_net(seed), with_sgd());
    learn->to_distributed(with_own_data());
    return learn;
  };
  const auto file = [&](int64_t rank) {
    return folder / fmt::format("of rank {}", rank);
  };
  const auto result_of = [](Learner& learn) {
    return fmt::format(
        "{} {}",
        bytes_of(learn),
        fmt::join(learn.recorder().smooth_losses(), " "));
  };
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto whole = make(environment.rank, 7);
    whole->fit(3, 0.1);
    write_file(file(environment.rank), result_of(*whole));
  });
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto cut = make(environment.rank, 7);
    cut->add<SaveCheckpoint>({.folder = folder / "run"});
    cut->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
      if (l.state().training && l.state().iteration == 4) l.request_stop();
    }});
    cut->fit(3, 0.1);
  });
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto other = make(2 - environment.rank, 7);
    expect_error<CheckpointError>(
        [&] { other->resume(folder / "run"); },
        {"fingerprint of the data"});
  });
  expect_ranks(3, [&](const LaunchEnvironment& environment) {
    const auto more = make(environment.rank, 7);
    more->resume(folder / "run", {.allow_change = true});
    expect_error<CheckpointError>(
        [&] { more->fit(3, 0.1); },
        {"by 2 processes", "in the middle of an epoch"});
  });
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto resumed = make(environment.rank, 3);
    resumed->resume(folder / "run").fit(3, 0.1);
    const auto expected = read_file(file(environment.rank));
    EXPECT_TRUE(
        result_of(*resumed) == std::string(expected.begin(), expected.end()));
  });
}

// ---- Decisions that all ranks share ----

TEST(RanksThatDiffer, ATrialPrunedOnOneRankEndsOnAllRanks) {
  for (const int64_t world_size : {1, 2, 3}) {
    expect_ranks(world_size, [&](const LaunchEnvironment& environment) {
      const auto study = std::make_shared<Study>();
      // Only the last rank has seen a better trial.
      const bool has_seen = environment.rank == world_size - 1;
      for (const bool is_first : {true, false}) {
        if (is_first && !has_seen) continue;
        Learner learn(data_of(16), plain_net(), with_sgd());
        learn.add(
            scripted_valid_loss(std::vector<double>(2, is_first ? 0.0 : 1.0)));
        learn.add<PruneTrial>({.study = study, .startup_trials = 1});
        if (!is_first) learn.to_distributed(kQuick);
        learn.fit(2, 0.1);
        EXPECT_EQ(
            learn.state().result,
            is_first ? FitResult::completed : FitResult::pruned);
        EXPECT_EQ(study->trials().back().result, learn.state().result);
        EXPECT_EQ(study->trials().back().values.size(), is_first ? 2u : 1u);
      }
    });
  }
}

}  // namespace
}  // namespace tern::ranks_that_differ_test
