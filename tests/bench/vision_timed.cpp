// Tern's side of the comparisons `vision_*`: batches of photos from files or a
// pack, one augmented batch, and training of a network, for a few batches or by
// the recipe of examples/image_folder.cpp to its end.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/learner/learner.h"
#include "tern/learner/losses/losses.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/datasets/presize.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/pixels.h"
#include "tern/vision/vision_learner.h"

namespace {

using namespace tern;  // NOLINT: a program
namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

DataBunch photos(const std::string& folder, int64_t batch_size) {
  return ImageDataBunch::from_folder(
      folder,
      {.valid = "validation",
       .size = ImageSize{128, 128},
       .transforms = {{random_resized_crop(), flip_lr()}, {center_crop()}},
       .batch_size = batch_size,
       .workers = 2});
}

/// Seconds for 1000 images of training ResNet-18, after a few batches.
double train(const std::string& folder) {
  constexpr int64_t kBatchSize = 32, kWarmUp = 4, kBatches = 20;
  DataBunch data = photos(folder, kBatchSize);
  data.valid.reset();
  double begin = 0;
  Learner learn(data, resnet18({.num_classes = 10}), {.sink = silent()});
  learn.add<LimitBatches>({.train = kWarmUp + kBatches})
      .add<LambdaCallback>(
          {.on_batch_end =
               [&](Learner& l) {
                 if (l.state().batch + 1 == kWarmUp) {
                   begin = now();
                 }
               }})
      .fit(1, 1e-3);
  return (now() - begin) * 1000 / (kBatchSize * kBatches);
}

struct Report {
  double seconds = 0;
  double accuracy = 0;  // of the recipe
};

/// The recipe of docs/vision.md: total seconds and the accuracy.
Report recipe(const std::string& folder, int64_t epochs, uint64_t seed) {
  const double begin = now();
  auto data = ImageDataBunch::from_folder(
      folder,
      {.valid = "validation",
       .seed = seed,
       .size = ImageSize{128, 128},
       .transforms =
           {.train =
                {random_resized_crop({0.35f, 1}),
                 flip_lr(),
                 brightness(),
                 contrast()},
            .valid = {center_crop()}},
       .batch_size = 32,
       .workers = 2});
  data.presize("pack", {160, 160});
  auto learn = vision_learner(
      data,
      VisionArch("resnet18"),
      {.learner = {
           .loss = label_smoothing_cross_entropy(),
           .metrics = {accuracy()},
           .bn_weight_decay = false,
           .seed = seed,
           .sink = silent()}});
  learn.to_bf16().fit_one_cycle(epochs, 4e-3);
  return {now() - begin, learn.validate().metrics[0].value};
}

/// Seconds for 1000 images, measured in the second epoch.
double load(const std::string& folder, bool is_packed) {
  const fs::path cache =
      fs::temp_directory_path() / fmt::format("tern-vision-{}", getpid());
  DataBunch data = photos(folder, 64);
  if (is_packed) {
    data.presize(cache, {160, 160});
  }
  double seconds = 0;
  int64_t images = 0;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const double begin = now();
    images = 0;
    auto batches = data.train->epoch(epoch);
    while (auto batch = batches.next()) {
      data.batch_transforms[0](*batch, {.training = true});
      images += batch->size();
    }
    seconds = now() - begin;
  }
  std::error_code ignored;
  fs::remove_all(cache, ignored);
  return seconds * 1000 / static_cast<double>(images);
}

/// Seconds for one batch of 64 at 224 pixels with the geometry and lighting of
/// get_transforms.
double augment() {
  const BatchTransform transform = augment_batch(get_transforms().train);
  const torch::Tensor images =
      torch::randint(256, {64, 224, 224, 3}, torch::kByte);
  constexpr int kRounds = 20;
  double begin = 0;
  for (int round = -2; round < kRounds; ++round) {
    if (round == 0) begin = now();
    Batch batch{{images}, {}};
    transform(batch, {.training = true, .batch = round + 2});
  }
  return (now() - begin) / kRounds;
}

}  // namespace

int main(int argc, char** argv) {
  std::string job, data, json;
  int64_t epochs = 30;
  uint64_t seed = 42;
  CLI::App app{"Loads or augments images and writes its times"};
  app.add_option("--job", job)->required();
  app.add_option("--data", data);
  app.add_option("--epochs", epochs, "of the recipe");
  app.add_option("--seed", seed, "of the recipe");
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  const Report report = job == "augment" ? Report{augment()}
                        : job == "train" ? Report{train(data)}
                        : job == "recipe"
                            ? recipe(data, epochs, seed)
                            : Report{load(data, job == "presized")};
  std::ofstream(json) << fmt::format(
      "{{\"seconds\": {}, \"accuracy\": {}, \"peak_megabytes\": {}}}\n",
      report.seconds,
      report.accuracy,
      bench::peak_megabytes());
  return 0;
}
