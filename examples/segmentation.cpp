// %% [markdown]
// # Segmentation of street scenes
//
// Trains a U-Net with a ResNet encoder to classify each pixel of CamVid's
// photos (`train/`, `trainannot/`, `val/`, `valannot/`). The program prints the
// scores of each class and draws predictions over photos. `--pretrained` names
// a file of ImageNet weights.

// %%
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"

namespace fs = std::filesystem;

const std::vector<std::string> kClasses = {
    "sky",
    "building",
    "pole",
    "road",
    "pavement",
    "tree",
    "sign",
    "fence",
    "car",
    "person",
    "bicycle",
    "void"};
constexpr int64_t kVoid = 11;  // unlabeled pixels

// %% [markdown]
// ## Photos and their masks

// %%
tern::DataBunch street_scenes(const fs::path& folder, int64_t height) {
  auto items = tern::items_from_folder(folder / "train");
  for (const auto& item : tern::items_from_folder(folder / "val")) {
    items.push_back(item);
  }
  const tern::DataBlock block{
      .items = items,
      .split = tern::split_by_folder("train", "val"),
      .label = tern::label_from_func([](const tern::ImageItem& item) {
        const fs::path image = item.path;  // val/1.png -> valannot/1.png
        return image.parent_path().string() + "annot/" +
               image.filename().string();
      }),
      .target = tern::TargetKind::mask,
      .classes = kClasses};
  return block.bunch(
      {.size = tern::ImageSize{height, height * 4 / 3},
       .transforms = tern::get_transforms({.max_rotate = 5}),
       .batch_size = 4,
       .workers = 2});
}

// %%
int main(int argc, char** argv) try {
  std::string folder, arch = "resnet18", pretrained, plot = "streets.png";
  int64_t epochs = 10, height = 120;
  double lr = 1e-3;
  bool bf16 = false;
  tern::examples::Options app("Trains a segmentation network on street scenes");
  app.add_option("folder", folder, "CamVid's folder")->required();
  app.add_option("--arch", arch);
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

  // %% [markdown]
  // ## Training a U-Net
  //
  // The network has an output for each class except void, which the loss
  // ignores.

  // %%
  const torch::nn::CrossEntropyLoss loss(
      torch::nn::CrossEntropyLossOptions().ignore_index(kVoid));
  auto learn = tern::unet_learner(
      street_scenes(folder, height),
      tern::VisionArch(arch),
      {.pretrained = pretrained,
       .outputs = kVoid,
       .learner = {.loss = loss, .metrics = {tern::dice()}, .seed = 42}});
  if (bf16) learn.to_bf16();
  if (pretrained.empty()) {
    learn.fit_one_cycle(epochs, lr);
  } else {
    learn.fine_tune(epochs);
  }

  // %% [markdown]
  // ## Evaluation

  // %%
  const auto report = tern::segmentation_report(learn);
  fmt::print("\n{}", report.to_string());
  tern::show_results(learn, plot, tern::Split::valid, {.count = 3});
  fmt::print("photos, targets and predictions are in {}\n", plot);
  // image_folder predict --model streets.safetensors uses this file.
  learn.export_model("streets.safetensors");
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
