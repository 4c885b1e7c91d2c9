// Tern's side of the comparisons `matting_*`: a training step of each network,
// or patches cropped from images and pasted back. Writes its times as JSON for
// the runner; peers/matting_torch.py does the same in Python.
#include <fstream>

#include <CLI/CLI.hpp>
#include <torch/utils.h>

#include "tern/data/support/memory.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/model.h"
#include "tern/learner/optim/adam.h"
#include "tern/tests/bench/matting_step.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"

namespace {

using torch::Tensor;

double train(tern::Model model, int64_t n, int64_t side, bool bf16, int steps) {
  const Tensor src = torch::rand({n, 3, side, side});
  const Tensor bgr = torch::rand({n, 3, side, side});
  std::vector<Tensor> weights;
  for (const auto& item : model.parameters()) weights.push_back(item.tensor);
  tern::optim::Adam optimizer(weights, torch::optim::AdamOptions(1e-4));
  tern::GradScaler scaler({.device = torch::kCPU, .enabled = bf16});
  model.train();
  return tern::bench::median_seconds(steps, [&] {
    Tensor loss;
    {
      const tern::AutocastGuard autocast(torch::kCPU, {}, bf16);
      loss = tern::bench::matting_step_loss(model.forward({src, bgr}), src);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  });
}

// On 512 pixels: selection by err, both crops, replacement, and all gradients.
double patches(int steps) {
  constexpr int64_t kPictures = 2, kSide = 512, kPatches = 5000;
  const auto layout = torch::MemoryFormat::ChannelsLast;
  const Tensor half =
      torch::rand({kPictures, 42, kSide / 2, kSide / 2}).contiguous(layout);
  const Tensor whole = torch::rand({kPictures, 6, kSide, kSide});
  const Tensor coarse = torch::rand({kPictures, 4, kSide, kSide});
  const Tensor err = torch::rand({kPictures, kSide * kSide / 16});
  return tern::bench::median_seconds(steps, [&] {
    const Tensor images = half.detach().requires_grad_();
    const Tensor top = std::get<1>(err.topk(kPatches, 1, true, false));
    const Tensor chosen = torch::zeros_like(err).scatter_(1, top, 1);
    const auto places =
        tern::patch_places(chosen.view({kPictures, kSide / 4, kSide / 4}));
    const Tensor a = tern::crop_patches(images, places, 2, 3);
    const Tensor b = tern::crop_patches(whole.contiguous(layout), places, 4, 2);
    const Tensor refined =
        a.narrow(1, 0, 4).slice(2, 2, 6).slice(3, 2, 6) + b.mean();
    tern::replace_patches(coarse.clone(), places, refined).sum().backward();
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::string job, json;
  bool bf16 = false;
  int steps = 5;
  CLI::App app{"Times one job of background matting"};
  app.add_option("--job", job)
      ->required()
      ->check(CLI::IsMember({"base", "refine", "patches"}));
  app.add_flag("--bf16", bf16);
  app.add_option("--steps", steps);
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  tern::keep_freed_memory();  // as the Learner does on a CPU
  torch::manual_seed(1);
  const double seconds =
      job == "base"     ? train(tern::MattingBase(), 4, 256, bf16, steps)
      : job == "refine" ? train(tern::MattingRefine(), 2, 512, bf16, steps)
                        : patches(steps);
  std::ofstream(json) << fmt::format(
      "{{\"step_seconds\": {}, \"peak_megabytes\": {}}}\n",
      seconds,
      tern::bench::peak_megabytes());
  return 0;
}
