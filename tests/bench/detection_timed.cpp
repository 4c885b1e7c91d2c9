// Tern's side of the comparison `detection`: training and evaluation of a
// RetinaNet on photos, each with a box derived from its number.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/data/formats/file_io.h"
#include "tern/vision/data_block.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/detection_learner.h"
#include "tern/vision/transforms/geometry.h"

using namespace tern;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kSize = 256, kBatchSize = 8, kWarmUp = 2, kBatches = 8;
constexpr int64_t kClasses = 10;

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The first photos are for training, the next ones for evaluation.
BoxAnnotations annotated(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder + "/train")) {
    if (entry.path().extension() == ".jpg") {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  files.resize((kWarmUp + 2 * kBatches) * kBatchSize);
  BoxAnnotations annotations;
  for (int64_t label = 0; label < kClasses; ++label) {
    annotations.classes.push_back(std::to_string(label));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const auto bytes = read_file(files[i]);
    const ImageSize size = EncodedImage(bytes, files[i]).size();
    const auto width = static_cast<double>(size.width);
    const auto height = static_cast<double>(size.height);
    const double left = 0.05 * static_cast<double>(i % 5);
    annotations.images.push_back(
        {files[i],
         {{{left * width,
            0.1 * height,
            (left + 0.6) * width,
            0.8 * height,
            std::to_string(i % kClasses)}},
          size}});
  }
  return annotations;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string folder, json;
  CLI::App app{"Trains and evaluates a detector and writes its times"};
  app.add_option("--data", folder)->required();
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);

  const BoxAnnotations annotations = annotated(folder);
  const DataBlock block{
      .items = annotations.items(),
      .split =
          [](const ImageItems& items) {
            std::vector<Split> splits(items.size(), Split::valid);
            std::fill_n(
                splits.begin(),
                (kWarmUp + kBatches) * kBatchSize,
                Split::train);
            return splits;
          },
      .classes = annotations.classes,
      .boxes = annotations.labeller()};
  const DataBunch data = block.bunch(
      {.size = kSize,
       .transforms = {{flip_lr()}, {}},
       .resize = ResizeMethod::squish,
       .batch_size = kBatchSize,
       .workers = 2});
  Learner learn = detection_learner(
      data,
      "retinanet_resnet18_fpn",
      {.learner = {.seed = 1, .sink = silent()}});
  // Keeps all candidates, since a new network has no score above the usual
  // threshold.
  learn.data().outputs[0].detection.score_thresh = 0;
  double begin = 0, train_seconds = 0;
  learn.add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
    if (!l.state().training) return;
    if (l.state().batch + 1 == kWarmUp) begin = now();
    if (l.state().batch + 1 == kWarmUp + kBatches)
      train_seconds = now() - begin;
  }});
  learn.fit(1, 1e-4);
  begin = now();
  learn.validate();
  const double valid_seconds = now() - begin;
  std::ofstream(json) << fmt::format(
      "{{\"train_seconds\": {}, \"valid_seconds\": {}}}\n",
      train_seconds,
      valid_seconds);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "detection_timed: {}\n", error.what());
  return 1;
}
