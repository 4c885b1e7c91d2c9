// Peak memory of a training step in each precision, from LibTorch's accounting
// over two steps, including weights and Adam's state, as Markdown tables.
// Usage: `memory_bench [NETWORK]...` with networks of kJobs; uses a GPU if
// available.
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/report/memory_meter.h"
#include "tern/vision/matting/matting_loss.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"

namespace {

using namespace tern;  // NOLINT: a program

struct Job {
  const char* name;
  const char* what;
  int64_t batch, side;
  void (*train)(const Job&, torch::Device, void (*set)(Learner&));
};

void fit(
    const Job& job,
    torch::Device device,
    const Tensors& inputs,
    const Tensors& targets,
    Model model,
    LearnerOptions options,
    void (*set)(Learner&)) {
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(inputs, targets),
      nullptr,
      {.batch_size = job.batch, .workers = 0});
  data.device = device;
  options.sink = silent();
  Learner learn(data, std::move(model), std::move(options));
  set(learn);
  learn.fit(1);
}

void resnet18_job(const Job& job, torch::Device device, void (*set)(Learner&)) {
  const int64_t n = 2 * job.batch;
  fit(job,
      device,
      {torch::randn({n, 3, job.side, job.side})},
      {torch::randint(10, {n})},
      resnet18({.num_classes = 10}),
      {},
      set);
}

void matting_job(
    const Job& job,
    torch::Device device,
    Model model,
    Loss loss,
    void (*set)(Learner&)) {
  const auto pictures = [&](int64_t channels) {
    return torch::rand({2 * job.batch, channels, job.side, job.side});
  };
  fit(job,
      device,
      {pictures(3), pictures(3)},
      {pictures(1), pictures(3)},
      std::move(model),
      {.loss = std::move(loss),
       .optimizer = optimizer<optim::Adam>(),
       .weight_decay = 0},
      set);
}

void base_job(const Job& job, torch::Device device, void (*set)(Learner&)) {
  matting_job(job, device, MattingBase(), matting_base_loss, set);
}

void refine_job(const Job& job, torch::Device device, void (*set)(Learner&)) {
  matting_job(job, device, MattingRefine(), matting_refine_loss, set);
}

constexpr Job kJobs[] = {
    {"resnet18", "ResNet-18", 32, 128, resnet18_job},
    {"base", "MattingBase, mobilenet_v2", 4, 512, base_job},
    {"refine",
     "MattingRefine, mobilenet_v2, 80,000 pixels",
     2,
     1024,
     refine_job}};

struct Mode {
  const char* name;
  void (*set)(Learner&);
};

void print_table(const Job& job, torch::Device device) {
  const Mode modes[] = {
      {"fp32", [](Learner&) {}},
      device.is_cuda() ? Mode{"`to_fp16()`", [](Learner& l) { l.to_fp16(); }}
                       : Mode{"`to_bf16()`", [](Learner& l) { l.to_bf16(); }},
      {"`to_amp()`", [](Learner& l) { l.to_amp(); }}};
  fmt::print(
      "| {}, batch {} at {} px, {} | peak | of fp32 |\n|---|---|---|\n",
      job.what,
      job.batch,
      job.side,
      device.is_cuda() ? "CUDA" : "CPU");
  double fp32 = 0;
  for (const Mode& mode : modes) {
    MemoryMeter meter(device);
    const int64_t before = meter.live_bytes();
    job.train(job, device, mode.set);
    const auto bytes = static_cast<double>(meter.peak_bytes() - before);
    if (fp32 == 0) fp32 = bytes;
    fmt::print(
        "| {} | {:.0f} MiB | {:.0f} % |\n",
        mode.name,
        bytes / (1 << 20),
        100 * bytes / fp32);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const torch::Device device =
      torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
  for (const Job& job : kJobs) {
    if (wanted.empty() ||
        std::find(wanted.begin(), wanted.end(), job.name) != wanted.end()) {
      print_table(job, device);
      fmt::print("\n");
    }
  }
  return 0;
}
