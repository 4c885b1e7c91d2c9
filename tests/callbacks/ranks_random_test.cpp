// Random training runs on one to four ranks that are stopped or killed and then
// resumed end exactly as uninterrupted runs do.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/averages/swa.h"
#include "tern/callbacks/distributed.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/run_control.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/losses/losses.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::ranks_random_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

enum class Precision { fp32, amp, amp_kept, bf16, bf16_kept, fp16 };
enum class Rule { cross_entropy, ignoring, weighted, focal };

/// Configuration of one training run.
struct Drawn {
  int64_t ranks = 1;
  Precision precision = Precision::fp32;
  Rule rule = Rule::cross_entropy;
  int64_t samples = 0, valid = 0, batch_size = 0, epochs = 0, window = 1;
  bool drops_last = false, has_adam = false, has_schedule = false;
  bool has_batch_norm = false, syncs_batch_norm = false, has_dropout = false;
  bool shards_optimizer = false, shards_data = true, has_branch = false;
  bool clips = false, averages = false, has_swa = false, judges = false;
  bool freezes = false, two_fits = false;
  int64_t every_steps = 1;
  // When to stop, in thousandths of the steps; `stopping_rank` requests the
  // stop, or all ranks are killed at once.
  std::vector<int64_t> stops;
  int64_t stopping_rank = 0;
  bool is_killed = false;

  std::string text() const;
};

Drawn draw(uint64_t seed) {
  std::mt19937_64 numbers(seed);
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(
                       numbers() % static_cast<uint64_t>(most - least + 1));
  };
  const auto one_in = [&](int64_t n) { return from(1, n) == 1; };
  Drawn d;
  d.ranks = from(1, 4);
  d.precision =
      one_in(2) ? Precision::fp32 : static_cast<Precision>(from(1, 5));
  d.rule = one_in(2) ? Rule::cross_entropy : static_cast<Rule>(from(1, 3));
  d.batch_size = from(2, 8);
  d.samples = d.ranks * d.batch_size * from(2, 6) + from(0, 7);
  d.valid = from(d.ranks, 40);
  d.epochs = from(1, 3);
  d.window = one_in(2) ? 1 : from(2, 3);
  d.drops_last = one_in(3);
  d.has_adam = one_in(2);
  d.has_schedule = one_in(3);
  d.has_batch_norm = one_in(3);
  d.syncs_batch_norm = d.has_batch_norm && one_in(2);
  d.has_dropout = one_in(3);
  d.averages = one_in(5);
  d.has_swa = !d.averages && one_in(6);
  d.shards_optimizer = !d.averages && !d.has_swa && one_in(4);
  d.shards_data = !one_in(5);
  d.has_branch = one_in(5);
  d.clips = one_in(4);
  d.judges = one_in(2);
  d.freezes = one_in(4);
  d.two_fits = one_in(3);
  d.every_steps = from(1, 4);
  for (int64_t i = from(1, 2); i > 0; --i) d.stops.push_back(from(0, 999));
  d.stopping_rank = from(0, d.ranks - 1);
  d.is_killed = one_in(2);
  // BatchNorm needs at least two samples, also in the last batch of each rank.
  if (d.has_batch_norm) d.drops_last = d.shards_data = true;
  return d;
}

std::string Drawn::text() const {
  return fmt::format(
      "ranks {}, precision {}, loss {}, samples {}, valid {}, batch {}, epochs "
      "{}, window {}, drops_last {}, adam {}, schedule {}, batch_norm {} (sync "
      "{}), dropout {}, shards optimizer {} and data {}, branch {}, clips {}, "
      "ema {}, swa {}, judges {}, freezes {}, two fits {}, every {}, stops {} "
      "of rank {}, killed {}",
      ranks,
      static_cast<int>(precision),
      static_cast<int>(rule),
      samples,
      valid,
      batch_size,
      epochs,
      window,
      drops_last,
      has_adam,
      has_schedule,
      has_batch_norm,
      syncs_batch_norm,
      has_dropout,
      shards_optimizer,
      shards_data,
      has_branch,
      clips,
      averages,
      has_swa,
      judges,
      freezes,
      two_fits,
      every_steps,
      fmt::join(stops, " and "),
      stopping_rank,
      is_killed);
}

/// Adds a layer if the batch's first number is positive.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Drawn& d) : has_branch(d.has_branch) {
    torch::manual_seed(7);
    first = register_module("first", torch::nn::Linear(2, 8));
    if (d.has_batch_norm) {
      norm = register_module("norm", torch::nn::BatchNorm1d(8));
    }
    if (d.has_dropout) {
      dropout = register_module("dropout", torch::nn::Dropout(0.2));
    }
    if (has_branch) branch = register_module("branch", torch::nn::Linear(8, 8));
    last = register_module("last", torch::nn::Linear(8, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = first(x);
    if (norm) y = norm(y);
    y = y.tanh();
    if (dropout) y = dropout(y);
    if (has_branch && x[0][0].item<float>() > 0) y = y + branch(y);
    return last(y);
  }
  bool has_branch;
  torch::nn::Linear first{nullptr}, branch{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Net);

std::shared_ptr<Dataset>
points_of(const Drawn& d, int64_t samples, int64_t seed) {
  const torch::Tensor x = torch::randn(
      {samples, 2},
      at::detail::createCPUGenerator(static_cast<uint64_t>(seed)));
  torch::Tensor y = (x.sum(1) > 0).to(torch::kLong);
  if (d.rule == Rule::ignoring) y.masked_fill_(x.select(1, 1) > 0.8, -100);
  return std::make_shared<TensorDataset>(Tensors{x}, Tensors{y});
}

DataBunch data_of(const Drawn& d, int64_t rank) {
  const int64_t seed = d.shards_data ? 0 : rank + 1;
  // With separate data, each rank has the same number of batches, and fewer
  // samples in the last batch.
  const int64_t samples =
      d.shards_data ? d.samples : d.batch_size * 5 - rank % d.batch_size;
  DataLoaderOptions options{.batch_size = d.batch_size, .workers = 0};
  DataBunch data = DataBunch::create(
      points_of(d, samples, seed),
      points_of(d, d.valid, 10 + seed),
      options);
  options.training = true;
  options.drop_last = d.drops_last && d.shards_data;
  options.sampler = data.train->sampler();
  data.train = std::make_shared<DataLoader>(data.train->dataset_ptr(), options);
  data.device = torch::kCPU;
  return data;
}

Loss loss_of(Rule rule) {
  switch (rule) {
    case Rule::cross_entropy:
    case Rule::ignoring:
      return torch::nn::CrossEntropyLoss();
    case Rule::weighted:
      return torch::nn::CrossEntropyLoss(
          torch::nn::CrossEntropyLossOptions().weight(
              torch::tensor({0.3, 1.7}, torch::kFloat)));
    case Rule::focal:
      return focal_loss();
  }
  return {};
}

void set_precision(Learner& learn, Precision precision) {
  switch (precision) {
    case Precision::fp32:
      break;
    case Precision::amp:
      learn.to_amp();
      break;
    case Precision::amp_kept:
      learn.to_amp({.keep_fp32 = {"last"}});
      break;
    case Precision::bf16:
      learn.to_bf16();
      break;
    case Precision::bf16_kept:
      learn.to_bf16({.keep_fp32 = {"first"}});
      break;
    case Precision::fp16:
      learn.to_fp16({.force_fp16 = true});
      break;
  }
}

/// A training run on one rank, before its first step.
struct Training {
  std::unique_ptr<Learner> learn;
  int64_t ticks = 0;     // completed batches
  int64_t stop_at = -1;  // stops after this batch

  Training(const Drawn& d, int64_t rank, const fs::path& path) {
    LearnerOptions options;
    options.path = path;
    options.loss = loss_of(d.rule);
    options.metrics = {accuracy()};
    options.warn_unused_parameters = false;
    options.optimizer =
        d.has_adam ? optimizer<optim::AdamW>(torch::optim::AdamWOptions())
                   : optimizer<optim::SGD>(
                         torch::optim::SGDOptions(0.1).momentum(0.9));
    learn = std::make_unique<Learner>(data_of(d, rank), Net(d), quiet(options));
    set_precision(*learn, d.precision);
    DistributedOptions distributed{
        .group = {.timeout = std::chrono::seconds(30)},
        .sync_batch_norm = d.syncs_batch_norm,
        .shard_optimizer = d.shards_optimizer,
        .shard_data = d.shards_data};
    distributed.reducer.find_unused_parameters = d.has_branch;
    learn->to_distributed(distributed);
    if (d.window > 1) learn->add<GradientAccumulation>({.batches = d.window});
    if (d.clips) learn->add<GradientClip>(0.5);
    if (d.averages) learn->add<Ema>({.decay = 0.9});
    if (d.has_swa) learn->add<Swa>({.start = 0.4});
    learn->add<TrainMetrics>();
    if (d.judges) {
      learn->add<EarlyStopping>({.monitor = "train_loss", .patience = 2});
      if (!d.has_schedule)
        learn->add<ReduceLROnPlateau>({.monitor = "valid_loss", .factor = 2});
    }
    if (d.freezes) {
      learn->add<LambdaCallback>({.on_epoch_begin = [](Learner& l) {
        const bool trains = l.state().epoch % 2 == 1;
        for (const ModelTensor& p : l.model().parameters()) {
          if (p.name.starts_with("first")) p.tensor.requires_grad_(trains);
        }
      }});
    }
    learn->add<SaveCheckpoint>(
        {.folder = "run", .every_steps = d.every_steps, .durable = false});
    learn->add<LambdaCallback>(
        {.on_batch_end =
             [this, &d, rank](Learner& l) {
               if (!l.state().training || ticks++ != stop_at) return;
               if (d.is_killed) ::raise(SIGKILL);
               if (rank == d.stopping_rank) l.request_stop();
             },
         .order = callback_order::kLast});
  }

  void run(const Drawn& d) {
    learn->resume("run", {.if_exists = true});
    d.has_schedule ? learn->fit_one_cycle(d.epochs, 0.02)
                   : learn->fit(d.epochs, 0.02);
    const bool goes_on = learn->state().result == FitResult::completed;
    if (d.two_fits && goes_on) learn->fit(1, 0.01);
  }

  // Formats the losses and metrics that this rank has recorded.
  std::string history() const {
    std::string text;
    for (const double loss : learn->recorder().smooth_losses()) {
      text += fmt::format(" {}", loss);
    }
    for (const EpochRecord& epoch : learn->recorder().epochs()) {
      text += fmt::format("; {} {}", epoch.train_loss, epoch.valid_loss);
      for (const MetricValue& metric : epoch.metrics) {
        text += fmt::format(" {} {}", metric.name, metric.value);
      }
    }
    return text;
  }
};

fs::path file_of(const fs::path& folder, const char* what, int64_t rank) {
  return folder / fmt::format("{} {}", what, rank);
}

/// Trains on all ranks and writes the final weights and history of each, and
/// the number of trained batches, to the folder.
std::vector<int>
train(const Drawn& d, const fs::path& folder, std::optional<int64_t> stop) {
  return run_ranks(d.ranks, [&](const LaunchEnvironment& environment) {
    Training training(d, environment.rank, folder);
    if (stop) training.stop_at = *stop;
    training.run(d);
    const int64_t rank = environment.rank;
    write_file(file_of(folder, "weights", rank), bytes_of(*training.learn));
    write_file(file_of(folder, "history", rank), training.history());
    write_file(folder / "ticks", fmt::format("{}", training.ticks));
  });
}

std::string text_in(const fs::path& file) {
  if (!fs::exists(file)) return "";
  const std::vector<uint8_t> bytes = read_file(file);
  return {bytes.begin(), bytes.end()};
}

void check_case(uint64_t seed) {
  const Drawn d = draw(seed);
  SCOPED_TRACE(d.text());
  const TempFolder whole, cut;
  const std::vector<int> well(static_cast<size_t>(d.ranks), 0);
  ASSERT_EQ(train(d, whole.path(), {}), well) << "uninterrupted";
  const int64_t ticks = std::stoll(text_in(whole / "ticks"));
  for (const int64_t stop : d.stops) {
    const auto ends = train(d, cut.path(), stop * ticks / 1000);
    for (const int end : ends) {
      // Other ranks may exit before their own kill signal arrives.
      ASSERT_TRUE(end == 0 || (d.is_killed && end != -SIGALRM)) << end;
    }
  }
  ASSERT_EQ(train(d, cut.path(), {}), well) << "resumed";
  for (int64_t rank = 0; rank < d.ranks; ++rank) {
    const auto at_end = [&](const TempFolder& folder, const char* what) {
      return text_in(file_of(folder.path(), what, rank));
    };
    EXPECT_TRUE(at_end(cut, "weights") == at_end(whole, "weights")) << rank;
    EXPECT_EQ(at_end(cut, "history"), at_end(whole, "history")) << rank;
  }
}

TEST(RandomRanks, EndAsUninterruptedAfterStopsAndKills) {
  for_random_cases(4, check_case);
}

}  // namespace
}  // namespace tern::ranks_random_test
