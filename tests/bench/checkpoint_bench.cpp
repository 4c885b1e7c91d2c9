// Overhead of checkpoints: a synced write compared with dd of as many bytes,
// and the stall of training during a background write compared with a copy of
// its state. Exit code 1 if a goal is missed.
#include <cstdlib>
#include <filesystem>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"
#include "tern/tests/bench/measure.h"

namespace {

using namespace tern;  // NOLINT: a program

constexpr int64_t kWidth = 1024, kLayers = 8;  // 100 MB with Adam's moments

std::unique_ptr<Learner> learner() {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(kWidth, kWidth));
  }
  auto data = DataBunch::create(
      std::make_shared<TensorDataset>(
          Tensors{torch::randn({8, kWidth})},
          Tensors{torch::randint(kWidth, {8})}),
      nullptr,
      {.batch_size = 8, .workers = 0});
  data.device = torch::kCPU;
  return std::make_unique<Learner>(data, net, LearnerOptions{.sink = silent()});
}

int64_t bytes_of(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  for (const auto* part :
       {&checkpoint.model, &checkpoint.optimizer, &checkpoint.training}) {
    for (const auto& entry : *part) {
      bytes += static_cast<int64_t>(entry.value().nbytes());
    }
  }
  return bytes;
}

StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& entry : state) {
    copy.insert(entry.key(), entry.value().clone());
  }
  return copy;
}

}  // namespace

int main(int argc, char** argv) {
  bench::read_arguments(argc, argv);
  // Not /tmp, which may be in memory; the benchmark measures a disk.
  const auto folder = std::filesystem::current_path() / "tern-checkpoint-bench";
  std::filesystem::create_directories(folder);
  const auto learn = learner();
  learn->fit(1);
  Checkpoint checkpoint = capture_checkpoint(*learn);
  const int64_t bytes = bytes_of(checkpoint);

  const std::string dd = fmt::format(
      "dd if=/dev/zero of='{}' bs=1M count={} conv=fsync status=none",
      (folder / "dd").string(),
      (bytes + (1 << 20) - 1) >> 20);
  bool is_written = true;
  const bench::Measured write = bench::measure(
      [&] {
        ++checkpoint.step;  // a checkpoint of an existing step would be kept
        write_checkpoint(folder, checkpoint, {.keep = 1});
      },
      [&] { is_written = std::system(dd.c_str()) == 0 && is_written; },
      7);
  const auto rate = [&](double seconds) {
    return fmt::format(
        "{:.0f} MB/s",
        static_cast<double>(bytes) * 1e-6 / seconds);
  };
  bool holds = bench::report(
      "checkpoint_vs_dd_with_fsync",
      rate(write.ours),
      rate(write.theirs),
      write.ratio,
      0.8);

  Checkpoint ours;
  StateDict theirs[2];
  const bench::Measured stall = bench::measure(
      [&] { ours = capture_checkpoint(*learn); },
      [&] {
        theirs[0] = copy_of(checkpoint.model);
        theirs[1] = copy_of(checkpoint.optimizer);
      });
  holds &= bench::report_times("stall_vs_copy_of_the_state", stall, 0.9);
  std::filesystem::remove_all(folder);
  return holds && is_written ? 0 : 1;
}
