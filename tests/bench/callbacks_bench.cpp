// Overhead of callbacks: eight callbacks on steps of about a millisecond, and
// writing scalars for TensorBoard. Exit code 1 if a goal is missed.
#include <cstdio>
#include <filesystem>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tern/callbacks/diagnose/profiler.h"
#include "tern/callbacks/logging/loggers.h"
#include "tern/callbacks/logging/tensorboard.h"
#include "tern/callbacks/monitor.h"
#include "tern/callbacks/terminate_on_nan.h"
#include "tern/learner/learner.h"
#include "tern/tests/bench/measure.h"

namespace {

using namespace tern;  // NOLINT: a program

constexpr int64_t kBatch = 64, kSteps = 200, kInputs = 256, kHidden = 352;
constexpr int64_t kScalars = 100'000;

std::unique_ptr<Learner> learner(
    const DataBunch& data,
    const std::filesystem::path& folder) {
  torch::manual_seed(1);
  torch::nn::Sequential net(
      torch::nn::Linear(kInputs, kHidden),
      torch::nn::ReLU(),
      torch::nn::Linear(kHidden, kHidden),
      torch::nn::ReLU(),
      torch::nn::Linear(kHidden, 10));
  return std::make_unique<Learner>(
      data,
      net,
      LearnerOptions{.path = folder, .sink = silent()});
}

}  // namespace

int main(int argc, char** argv) {
  bench::read_arguments(argc, argv);
  const auto folder =
      std::filesystem::temp_directory_path() / "tern-callbacks-bench";
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randn({kBatch * kSteps, kInputs})},
      Tensors{torch::randint(10, {kBatch * kSteps})});
  DataBunch data =
      DataBunch::create(dataset, nullptr, {.batch_size = kBatch, .workers = 0});
  data.device = torch::kCPU;

  const auto plain = learner(data, folder);
  const auto full = learner(data, folder);
  full->add<EarlyStopping>({.monitor = "train_loss", .patience = 1000})
      .add<ReduceLROnPlateau>({.monitor = "train_loss", .patience = 1000})
      .add<TerminateOnNaN>()
      .add<CSVLogger>()
      .add<JsonLinesLogger>({.every = 1})
      .add<TensorBoard>()
      .add<PeakMemory>()
      .add<Profiler>();
  const auto m = bench::measure(
      [&] { full->fit(1, 1e-3); },
      [&] { plain->fit(1, 1e-3); },
      61);
  fmt::print("({} steps of {:.2f} ms)\n", kSteps, m.theirs / kSteps * 1e3);
  // At most 1.02 times the time without callbacks.
  bool is_good = bench::report_times("eight_callbacks", m, 1 / 1.02);

  TensorBoardWriter writer(folder / "scalars", silent());
  const double seconds = bench::seconds([&] {
    for (int64_t i = 0; i < kScalars; ++i) {
      writer.add_scalar("train/loss", 0.5, i);
    }
    writer.flush();
  });
  const double rate = static_cast<double>(kScalars) / seconds;
  fmt::print("tensorboard_scalars_per_second  {:.0f}  goal 50000\n", rate);
  is_good &= rate >= 50'000;
  std::filesystem::remove_all(folder);
  return is_good ? 0 : 1;
}
