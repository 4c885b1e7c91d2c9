// %% [markdown]
// # Multi-label classification of street scenes
//
// Trains a multi-label classifier of CamVid's photos (`train/`, `trainannot/`,
// `val/`, `valannot/`), whose labels are taken from the masks. The program
// tunes the threshold above which a label is predicted, prints the scores of
// each label, plots label co-occurrence, and exports the model with its
// threshold.

// %%
#include <filesystem>
#include <string>
#include <vector>

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
    "bicycle"};

// %% [markdown]
// ## Photos and their labels

// %%
// Returns the classes that cover at least 1% of the mask.
std::vector<std::string> tags_of(const tern::ImageItem& item) {
  const fs::path image = item.path;  // val/1.png -> valannot/1.png
  const fs::path mask = image.parent_path().string() + "annot";
  const torch::Tensor pixels = tern::read_image(
      (mask / image.filename()).string(),
      {.channels = 1, .indices = true});
  const torch::Tensor counts =
      torch::bincount(pixels.flatten(), {}, std::ssize(kClasses) + 1);
  std::vector<std::string> tags;
  for (size_t i = 0; i < kClasses.size(); ++i) {
    const auto count = counts[static_cast<int64_t>(i)].item<int64_t>();
    if (count * 100 >= pixels.numel()) tags.push_back(kClasses[i]);
  }
  return tags;
}

tern::DataBunch street_scenes(const fs::path& folder, int64_t height) {
  auto items = tern::items_from_folder(folder / "train");
  for (const auto& item : tern::items_from_folder(folder / "val")) {
    items.push_back(item);
  }
  const tern::DataBlock block{
      .items = items,
      .split = tern::split_by_folder("train", "val"),
      .label = tags_of,
      .target = tern::TargetKind::multi_category,
      .classes = kClasses};
  return block.bunch(
      {.size = tern::ImageSize{height, height * 4 / 3},
       .transforms = tern::get_transforms({.max_rotate = 5}),
       .batch_size = 16,
       .workers = 2});
}

// %%
int main(int argc, char** argv) try {
  std::string folder, arch = "resnet18", pretrained, out = ".";
  int64_t epochs = 20, height = 120;
  double lr = 3e-3;
  tern::examples::Options app(
      "Trains a multi-label classifier of street scenes");
  app.add_option("folder", folder, "CamVid's folder")->required();
  app.add_option("--arch", arch);
  app.add_option("--pretrained", pretrained, "weights, .pth or .safetensors");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_number("--height", height, 24, 4096, "image height in pixels");
  app.add_number("--lr", lr, 1e-8, 10, "maximum learning rate");
  app.add_option("--out", out, "folder for plots and the model");
  app.read(argc, argv);
  const fs::path to = out;
  fs::create_directories(to);

  // %% [markdown]
  // ## Training a network with an output for each label

  // %%
  auto learn = tern::vision_learner(
      street_scenes(folder, height),
      tern::VisionArch(arch),
      {.pretrained = pretrained,
       .learner = {
           .metrics = {tern::accuracy_multi(), tern::f1_multi()},
           .seed = 42}});
  learn.add<tern::TrainMetrics>();
  if (pretrained.empty()) {
    learn.fit_one_cycle(epochs, lr);
  } else {
    learn.fine_tune(epochs);
  }

  // %% [markdown]
  // ## Choosing the threshold
  //
  // The default threshold is 0.5. `tune_threshold` sets the value with the best
  // F1 over all labels.

  // %%
  const auto before = tern::MultiLabelInterpretation::from(learn).report();
  const double threshold = tern::tune_threshold(learn);
  const auto interp = tern::MultiLabelInterpretation::from(learn);
  const auto report = interp.report();
  fmt::print(
      "F1 {:.4f} above 0.5, {:.4f} above {:.3f}\n\n{}\n",
      before.micro.f1,
      report.micro.f1,
      threshold,
      report.to_string());

  // %% [markdown]
  // ## Label co-occurrence and top losses

  // %%
  interp.plot_co_occurrence(to / "together.png");
  interp.plot_co_occurrence(to / "predicted.png", tern::LabelSource::preds);
  interp.plot_top_losses(to / "top_losses.png", 6);

  // %% [markdown]
  // ## Prediction in another program
  //
  // One file holds the network, the names of the labels and the threshold.

  // %%
  learn.export_model(to / "tags.safetensors");
  const auto predictor = tern::Predictor::load(to / "tags.safetensors");
  const std::string file =
      interp.dataset().describe(interp.top_losses(1, false).front().index);
  fmt::print(
      "{}",
      tern::format_predictions(
          {{.path = file, .prediction = predictor.predict(fs::path(file))}},
          predictor.card().outputs,
          tern::PredictionFormat::text));
  return report.micro.f1 >= before.micro.f1 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
