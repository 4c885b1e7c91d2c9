// %% [markdown]
// # Cars in street scenes
//
// Trains a RetinaNet to find cars in CamVid's photos (`train/`, `trainannot/`,
// `val/`, `valannot/`). Each connected region of cars in a mask becomes a box.
// The program prints COCO's metrics, and draws detected cars, missed cars and
// false positives. `--pretrained` names a file of ImageNet weights for
// ResNet-18.

// %%
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <tern/tern.h>

#include "options.h"

namespace fs = std::filesystem;

// %% [markdown]
// ## Boxes from masks

// %%
/// Returns a box around each connected region of cars in a mask. Ignores small
/// regions, which are parts of hidden cars. Cars that overlap form one region.
tern::ImageBoxes car_boxes(const fs::path& mask) {
  constexpr int kCar = 8, kLeastPixels = 150;
  const cv::Mat classes = cv::imread(mask.string(), cv::IMREAD_GRAYSCALE);
  cv::Mat labels, stats, centers;
  const int regions =
      cv::connectedComponentsWithStats(classes == kCar, labels, stats, centers);
  tern::ImageBoxes boxes({}, {classes.rows, classes.cols});
  for (int i = 1; i < regions; ++i) {  // 0 is the background
    const double area = stats.at<int>(i, cv::CC_STAT_AREA);
    if (area < kLeastPixels) continue;
    const double left = stats.at<int>(i, cv::CC_STAT_LEFT);
    const double top = stats.at<int>(i, cv::CC_STAT_TOP);
    boxes.boxes.push_back(
        {.x1 = left,
         .y1 = top,
         .x2 = left + stats.at<int>(i, cv::CC_STAT_WIDTH),
         .y2 = top + stats.at<int>(i, cv::CC_STAT_HEIGHT),
         .label = "car",
         .area = area});
  }
  return boxes;
}

/// Returns the photos with their boxes. The mask of val/1.png is
/// valannot/1.png.
tern::DataBunch street_scenes(const fs::path& folder, int64_t height) {
  auto items = tern::items_from_folder(folder / "train");
  for (const auto& item : tern::items_from_folder(folder / "val")) {
    items.push_back(item);
  }
  const tern::DataBlock block{
      .items = items,
      .split = tern::split_by_folder("train", "val"),
      .classes = {"car"},
      .boxes = [](const tern::ImageItem& item) {
        const fs::path image = item.path;
        return car_boxes(
            image.parent_path().string() + "annot/" +
            image.filename().string());
      }};
  return block.bunch(
      {.size = tern::ImageSize{height, height * 4 / 3},
       .transforms =
           {{tern::flip_lr(),
             tern::rand_zoom({1, 1.5}),
             tern::brightness(),
             tern::contrast()},
            {}},
       .batch_size = 8,
       .workers = 2});
}

// %%
int main(int argc, char** argv) try {
  std::string folder, pretrained, plot = "cars.png";
  int64_t epochs = 40, height = 240;
  double lr = 1e-3;
  bool bf16 = false;
  tern::examples::Options app("Trains a detector of cars in street scenes");
  app.add_option("folder", folder, "CamVid's folder")->required();
  app.add_option("--pretrained", pretrained, "weights, .pth or .safetensors");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_number(
      "--height",
      height,
      24,
      4096,
      "image height in pixels, 3/4 of the width");
  app.add_number("--lr", lr, 1e-8, 10, "maximum learning rate");
  app.add_option("--plot", plot);
  app.add_flag("--bf16", bf16);
  app.read(argc, argv);
  torch::manual_seed(42);

  // %%
  const tern::DataBunch data = street_scenes(folder, height);
  tern::show_batch(data, "batch.png", tern::Split::train, {.count = 4});

  // %% [markdown]
  // ## Training a detector

  // %%
  const bool is_pretrained = !pretrained.empty();
  auto learn = tern::detection_learner(
      data,
      "retinanet_resnet18_fpn_v2",
      {.pretrained = is_pretrained ? tern::DetectorWeights::imagenet
                                   : tern::DetectorWeights::none,
       .file = pretrained,
       .smallest_anchor = 16,
       .learner = {.seed = 42}});
  if (bf16) learn.to_bf16();
  if (is_pretrained) {
    learn.fine_tune(epochs, {.base_lr = lr});
  } else {
    learn.fit_one_cycle(epochs, lr);
  }

  // %% [markdown]
  // ## Evaluation

  // %%
  const auto interp = tern::DetectionInterpretation::from(
      learn,
      tern::Split::valid,
      {.score = 0.3});
  fmt::print("\n{}\n{}", interp.evaluation().to_string(), interp.to_string());
  tern::show_results(learn, plot, tern::Split::valid, {.count = 4});
  fmt::print("targets and predictions are in {}\n", plot);
  learn.export_model("cars.safetensors");
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
