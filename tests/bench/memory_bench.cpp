// Peak memory of a training step in each precision, from LibTorch's accounting
// over two steps, including weights and the optimizer's state, as a Markdown table.
// Usage: `memory_bench [NETWORK]...` with networks of kJobs; uses a GPU if
// available.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

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
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"
#include "tern/vision/models/vision_arch.h"

namespace {

using namespace tern;  // NOLINT: a program
using torch::Tensor;

constexpr int64_t kClasses = 10;

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

/// \param targets  Classes of images [N] or of pixels [N, H, W].
void classes_job(
    const Job& job,
    torch::Device device,
    Model model,
    const Tensor& targets,
    void (*set)(Learner&)) {
  fit(job,
      device,
      {torch::randn({2 * job.batch, 3, job.side, job.side})},
      {targets},
      std::move(model),
      {},
      set);
}

template <auto make>
void classifier_job(
    const Job& job,
    torch::Device device,
    void (*set)(Learner&)) {
  classes_job(
      job,
      device,
      make({.num_classes = kClasses}),
      torch::randint(kClasses, {2 * job.batch}),
      set);
}

void unet_job(const Job& job, torch::Device device, void (*set)(Learner&)) {
  classes_job(
      job,
      device,
      DynamicUnet(
          VisionArch(resnet18),
          DynamicUnetOptions{.outputs = kClasses}),
      torch::randint(kClasses, {2 * job.batch, job.side, job.side}),
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
    {"resnet18", "ResNet-18", 32, 128, classifier_job<resnet18>},
    {"resnet18_224", "ResNet-18", 32, 224, classifier_job<resnet18>},
    {"resnet50", "ResNet-50", 32, 224, classifier_job<resnet50>},
    {"convnext_tiny", "ConvNeXt-Tiny", 32, 224, classifier_job<convnext_tiny>},
    {"vit_b_32", "ViT-B/32", 32, 224, classifier_job<vit_b_32>},
    {"unet", "U-Net on ResNet-18", 16, 224, unet_job},
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

std::vector<Mode> modes_of(torch::Device device) {
  const Mode to_bf16 = {"`to_bf16()`", [](Learner& l) { l.to_bf16(); }};
  const Mode without_masters = {
      "`to_bf16()` without master weights",
      [](Learner& l) { l.to_bf16({.master_weights = false}); }};
  const Mode to_amp = {"`to_amp()`", [](Learner& l) { l.to_amp(); }};
  std::vector<Mode> modes = {{"fp32", [](Learner&) {}}};
  if (device.is_cuda()) {
    modes.push_back({"`to_fp16()`", [](Learner& l) { l.to_fp16(); }});
  } else {
    modes.push_back(to_bf16);
    modes.push_back(without_masters);
  }
  modes.push_back(to_amp);
  return modes;
}

void print_header(const std::vector<Mode>& modes, torch::Device device) {
  std::string names, line;
  for (const Mode& mode : modes) {
    names += fmt::format(" {} |", mode.name);
    line += "---|";
  }
  fmt::print(
      "| on {} |{}\n|---|{}\n",
      device.is_cuda() ? "a GPU" : "a CPU",
      names,
      line);
}

void print_row(
    const Job& job,
    const std::vector<Mode>& modes,
    torch::Device device) {
  fmt::print("| {}, batch {} at {} px |", job.what, job.batch, job.side);
  double fp32 = 0;
  for (const Mode& mode : modes) {
    MemoryMeter meter(device);
    const int64_t before = meter.live_bytes();
    job.train(job, device, mode.set);
    const auto bytes = static_cast<double>(meter.peak_bytes() - before);
    const std::string relative =
        fp32 == 0 ? "" : fmt::format(" ({:.0f}%)", 100 * bytes / fp32);
    if (fp32 == 0) fp32 = bytes;
    fmt::print(" {:.0f} MiB{} |", bytes / (1 << 20), relative);
    std::fflush(stdout);
  }
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const torch::Device device =
      torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
  const std::vector<Mode> modes = modes_of(device);
  print_header(modes, device);
  for (const Job& job : kJobs) {
    if (wanted.empty() ||
        std::find(wanted.begin(), wanted.end(), job.name) != wanted.end()) {
      print_row(job, modes, device);
    }
  }
  return 0;
}
