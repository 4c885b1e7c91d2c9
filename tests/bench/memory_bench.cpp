// How much memory a training step needs in each precision: the peak of
// LibTorch's own accounting over two steps of ResNet-18, weights and Adam's
// state included, as a table in Markdown. `memory_bench [BATCH SIZE]`; on a GPU
// if there is one.
#include <cstdlib>

#include <torch/cuda.h>
#include <torch/utils.h>

#include "tern/callbacks/amp.h"
#include "tern/callbacks/mixed_precision.h"
#include "tern/learner/learner.h"
#include "tern/learner/memory_meter.h"
#include "tern/vision/models/resnet.h"

namespace {

using namespace tern;  // NOLINT: a program

struct Mode {
  const char* name;
  std::function<void(Learner&)> set;
};

int64_t peak_bytes(const Mode& mode, torch::Device device, int64_t batch) {
  MemoryMeter meter(device);
  const int64_t before = meter.live_bytes();
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randn({2 * batch, 3, 128, 128})},
      Tensors{torch::randint(10, {2 * batch})});
  DataBunch data =
      DataBunch::create(dataset, nullptr, {.batch_size = batch, .workers = 0});
  data.device = device;
  Learner learn(data, resnet18({.num_classes = 10}), {.sink = silent()});
  mode.set(learn);
  learn.fit(1);
  return meter.peak_bytes() - before;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t batch = argc > 1 ? std::atoll(argv[1]) : 32;
  const bool has_cuda = torch::cuda::is_available();
  const torch::Device device = has_cuda ? torch::kCUDA : torch::kCPU;
  const std::vector<Mode> modes = {
      {"fp32", [](Learner&) {}},
      {has_cuda ? "`to_fp16()`" : "`to_bf16()`",
       [&](Learner& l) { has_cuda ? l.to_fp16() : l.to_bf16(); }},
      {"`to_amp()`", [](Learner& l) { l.to_amp(); }}};
  fmt::print(
      "| ResNet-18, batch {} at 128 px, {} | peak | of fp32 |\n|---|---|---|\n",
      batch,
      has_cuda ? "CUDA" : "CPU");
  double fp32 = 0;
  for (const Mode& mode : modes) {
    const auto bytes = static_cast<double>(peak_bytes(mode, device, batch));
    if (fp32 == 0) fp32 = bytes;
    fmt::print(
        "| {} | {:.0f} MiB | {:.0f} % |\n",
        mode.name,
        bytes / (1 << 20),
        100 * bytes / fp32);
  }
  return 0;
}
