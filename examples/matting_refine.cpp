// %% [markdown]
// # Background matting: refinement
//
// Trains the second stage of background matting. The base network computes a
// matte of a downscaled image, and a refiner corrects it at full size in
// regions where it is likely to be wrong. Both are trained together, starting
// from the base network that `matting_base.cpp` trained. To use several GPUs,
// start the program with torchrun: each process computes its part of the batch.
//
// ```sh
// matting_base   --dataset D --backgrounds B
// matting_refine --dataset D --backgrounds B \
//   --model-last-checkpoint checkpoint/base/base.safetensors
// ```

// %%
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "matting_run.h"
#include "options.h"

// %%
int main(int argc, char** argv) try {
  tern::examples::MattingRun run{
      .name = "refine",
      .size = 2048,
      .batch_size = 4,
      .epochs = 1,
      .images_interval = 1000,
      .checkpoint_interval = 2000};
  tern::MattingRefineOptions refine{.threshold = 0.7};
  std::string checkpoint, mode = tern::to_string(refine.mode);
  tern::examples::Options app("Trains both parts of background matting");
  run.add_options(app);
  app.add_option(
      "--model-last-checkpoint",
      checkpoint,
      "weights of a base network or of both parts");
  app.add_number(
      "--model-backbone-scale",
      refine.backbone_scale,
      0.01,
      0.5,
      "scale of the base network's image");
  app.add_choice(
      "--model-refine-mode",
      mode,
      {"full", "sampling", "thresholding"});
  app.add_number(
      "--model-refine-sample-pixels",
      refine.sample_pixels,
      16,
      100'000'000);
  app.add_number("--model-refine-thresholding", refine.threshold, 0, 1);
  app.add_choice("--model-refine-kernel-size", refine.kernel_size, {"1", "3"});
  app.read(argc, argv);

  // %% [markdown]
  // ## Network, data and loss

  // %%
  tern::seed_everything(run.seed);
  refine.backbone = tern::matting_backbone(run.backbone);
  refine.mode = tern::refine_mode(mode);
  tern::MattingRefine net(refine);
  if (!checkpoint.empty()) tern::load_matting_weights(net, checkpoint);
  auto learn = tern::Learner(
      run.data(/*pair_scale=*/{0.3f, 1}),
      net,
      run.options(tern::matting_refine_loss));
  learn.split({"aspp", "decoder", "refiner"});

  // %% [markdown]
  // ## Training
  //
  // The program writes figures of mattes before and after training to
  // `log/NAME`.

  // %%
  run.train(learn, {5e-5, 5e-5, 1e-4, 3e-4});
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
