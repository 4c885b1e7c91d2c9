#include "matting_run.h"

#include <filesystem>

#include <fmt/format.h>
#include <tern/callbacks/distributed.h>
#include <tern/data/formats/samples/png.h>
#include <tern/learner/optim/optimizer_factory.h>

#include "options.h"

namespace tern::examples {
namespace {

namespace fs = std::filesystem;

void set_precision(Learner& learn, const std::string& precision) {
  if (precision == "fp32") return;
  AmpOptions options{.amp_in_valid = false};
  if (precision == "fp16") options.dtype = torch::kHalf;
  if (precision == "bf16") options.dtype = torch::kBFloat16;
  learn.to_amp(options);
}

/// Logs images every `interval` training batches and for the first batch of
/// each evaluation.
void log_images(Learner& learn, int64_t interval) {
  learn.add<LambdaCallback>({.on_batch_end = [interval](Learner& l) {
    const TrainState& state = l.state();
    const bool is_due =
        state.training ? state.iteration % interval == 0 : state.batch == 0;
    if (!is_due || !l.state().is_fitting || !communicator(l).is_main_process())
      return;
    const torch::Tensor image =
        matting_picture(state.batch_data, state.outputs);
    const std::span<const uint8_t> pixels(
        image.const_data_ptr<uint8_t>(),
        static_cast<size_t>(image.numel()));
    l.find<TensorBoard>()->writer().add_image(
        state.training ? "train/images" : "valid/images",
        encode_png(pixels, image.size(1), image.size(0), 3),
        state.iteration);
  }});
}

/// Prints the mean errors on the validation images. `when` labels the line.
void print_errors(Learner& learn, const char* when) {
  const Validation valid = learn.validate();
  if (!communicator(learn).is_main_process()) return;
  fmt::print("{}:", when);
  for (const MetricValue& error : valid.metrics) {
    fmt::print(" {} {:.4f}", error.name, error.value);
  }
  fmt::print("\n");
}

}  // namespace

void MattingRun::add_options(Options& app) {
  app.add_option("--dataset", dataset, "folder with pha and fgr")->required();
  app.add_option("--backgrounds", backgrounds, "folder of photos")->required();
  app.add_option("--model-name", name, "name of the run's folders");
  app.add_choice(
      "--model-backbone",
      backbone,
      {"resnet101", "resnet50", "mobilenetv2"});
  app.add_number("--batch-size", batch_size, 1, 65536);
  app.add_number("--num-workers", workers, 0, 1024);
  app.add_number("--epoch-end", epochs, 0, 10'000);
  app.add_number(
      "--log-train-loss-interval",
      loss_interval,
      1,
      1'000'000,
      "batches");
  app.add_number(
      "--log-train-images-interval",
      images_interval,
      1,
      1'000'000,
      "batches");
  app.add_number(
      "--checkpoint-interval",
      checkpoint_interval,
      1,
      1'000'000,
      "batches");
  app.add_choice(
      "--precision",
      precision,
      {"amp", "fp16", "bf16", "fp32"},
      "amp: fp16 on a GPU, bf16 on a CPU");
  app.add_number("--size", size, 16, 8192, "height and width of images");
  app.add_number("--rate", rate, 0.001, 1000, "factor for all learning rates");
  app.add_flag("--one-cycle", one_cycle, "one-cycle learning rates");
  app.add_number("--seed", seed, 0, UINT32_MAX, "seed of the initial weights");
}

DataBunch MattingRun::data(Range pair_scale) const {
  return matting_data(
      dataset,
      backgrounds,
      {.dataset = {.size = size, .transforms = matting_transforms(pair_scale)},
       .batch_size = batch_size,
       .workers = workers});
}

LearnerOptions MattingRun::options(Loss loss) const {
  return {
      .loss = std::move(loss),
      .optimizer = optimizer<optim::Adam>(),
      .metrics = matting_metrics(),
      .weight_decay = 0};
}

void MattingRun::train(Learner& learn, std::vector<double> rates) const {
  const fs::path checkpoints = fs::path("checkpoint") / name;
  const fs::path log = fs::path("log") / name;
  fs::create_directories(log);
  for (double& lr : rates) lr *= rate;
  set_precision(learn, precision);
  // One process has too few images for the statistics of BatchNorm.
  learn.to_distributed({.sync_batch_norm = true});
  learn.add<TensorBoard>({.folder = log, .every = loss_interval});
  log_images(learn, images_interval);
  learn.resume(checkpoints, {.if_exists = true});
  if (!has_checkpoint(checkpoints)) {
    print_errors(learn, "before training");
    show_mattes(learn, log / "before.png");
  }
  learn.add<SaveCheckpoint>(
      {.folder = checkpoints,
       .every_steps = checkpoint_interval,
       .on_signals = true});
  const auto lr = LearningRates::per_group(rates);
  if (one_cycle) {
    learn.fit_one_cycle(epochs, lr);
  } else {
    learn.fit(epochs, lr);
  }
  if (learn.state().result == FitResult::interrupted) {
    fmt::print("stopped; start it again to resume\n");
    return;
  }
  print_errors(learn, "after training");
  if (!communicator(learn).is_main_process()) return;
  const fs::path network = checkpoints / (name + ".safetensors");
  learn.export_model(network);
  show_mattes(learn, log / "after.png");
  fmt::print("network: {}, images: {}\n", network.string(), log.string());
}

}  // namespace tern::examples
