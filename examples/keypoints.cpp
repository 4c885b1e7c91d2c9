// %% [markdown]
// # Corners of a sheet of paper
//
// Trains a network to predict the four corners of a sheet of paper, in images
// that this program draws. It prints the mean distance between predictions and
// targets in pixels, and draws both side by side.

// %%
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"

namespace fs = std::filesystem;

double random_number(double low, double high) {
  return low + (high - low) * torch::rand({1}).item<double>();
}

// %% [markdown]
// ## Images and their points

// %%
/// Draws a tilted sheet on a noisy desk, and returns its corners, clockwise
/// from the upper left corner.
std::vector<tern::Point> draw_sheet(const fs::path& file, int64_t size) {
  const auto side = static_cast<double>(size);
  const double angle = random_number(-0.5, 0.5);
  const double width = side * random_number(0.3, 0.6);
  const double height = side * random_number(0.3, 0.6);
  const double x = side * random_number(0.4, 0.6);
  const double y = side * random_number(0.4, 0.6);
  std::vector<tern::Point> corners;
  for (const auto& [right, down] : std::array<std::array<double, 2>, 4>{
           {{-0.5, -0.5}, {0.5, -0.5}, {0.5, 0.5}, {-0.5, 0.5}}}) {
    // Moves each corner, as if the sheet were seen at an angle.
    const double u = right * width + side * random_number(-0.04, 0.04);
    const double v = down * height + side * random_number(-0.04, 0.04);
    corners.push_back(
        {x + u * std::cos(angle) - v * std::sin(angle),
         y + u * std::sin(angle) + v * std::cos(angle)});
  }

  // A pixel belongs to the sheet if it is to the right of all four edges.
  const torch::Tensor centers = torch::arange(size) + 0.5;
  torch::Tensor is_sheet = torch::ones({size, size}, torch::kBool);
  for (size_t i = 0; i < 4; ++i) {
    const tern::Point &a = corners[i], &b = corners[(i + 1) % 4];
    const torch::Tensor to_the_right =
        (b.x - a.x) * (centers.unsqueeze(1) - a.y) -
        (b.y - a.y) * (centers.unsqueeze(0) - a.x);
    is_sheet.logical_and_(to_the_right >= 0);
  }
  const torch::Tensor desk = 120 * torch::rand({3, 1, 1}) + 10;
  const torch::Tensor paper = 60 * torch::rand({3, 1, 1}) + 180;
  const torch::Tensor pixels =
      torch::where(is_sheet, paper, desk) + 25 * torch::randn({3, size, size});
  tern::save_image(
      file,
      pixels.clamp(0, 255).to(torch::kByte).permute({1, 2, 0}).contiguous());
  return corners;
}

// %%
int main(int argc, char** argv) try {
  std::string folder = "sheets", plot = "corners.png";
  int64_t images = 1200, epochs = 12, size = 64, batch_size = 32;
  double lr = 3e-3;
  bool bf16 = false;
  tern::examples::Options app(
      "Trains a network that finds the corners of a sheet of paper");
  app.add_option("--folder", folder, "folder for the drawn images");
  app.add_number("--images", images, 20, 1'000'000, "images to draw");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_number("--size", size, 32, 4096, "image size in pixels");
  app.add_number("--batch-size", batch_size, 1, 4096);
  app.add_number("--lr", lr, 1e-8, 10, "maximum learning rate");
  app.add_option("--plot", plot);
  app.add_flag("--bf16", bf16);
  app.read(argc, argv);
  torch::manual_seed(42);

  // %%
  fs::create_directories(folder);
  std::map<std::string, std::vector<tern::Point>> corners;
  for (int64_t i = 0; i < images; ++i) {
    const fs::path file = fs::path(folder) / fmt::format("{:05}.png", i);
    corners[file.filename().string()] = draw_sheet(file, size);
  }

  // %% [markdown]
  // ## Batches
  //
  // Each image has four points, in pixels. Flipping an image swaps its left and
  // right corners.

  // %%
  const tern::DataBlock block{
      .items = tern::items_from_folder(folder),
      .split = tern::split_at_random(0.2),
      .classes = {"upper left", "upper right", "lower right", "lower left"},
      .points =
          [&](const tern::ImageItem& item) {
            return corners.at(fs::path(item.path).filename().string());
          },
      .annotations = {.flip_pairs = {{0, 1}, {2, 3}}}};
  const tern::DataBunch data = block.bunch(
      {.size = size,
       .transforms = {{tern::flip_lr(), tern::brightness()}, {}},
       .batch_size = batch_size});
  tern::show_batch(data, "batch.png");

  // %% [markdown]
  // ## Training a network

  // %%
  auto learn = tern::vision_learner(
      data,
      tern::resnet18,
      {.head = {.dropout = 0},  // dropout rescales features, which moves points
       .learner = {
           .metrics =
               {tern::mean_point_distance(),
                tern::percentage_of_correct_keypoints({.threshold = 0.05})},
           .seed = 42}});
  if (bf16) learn.to_bf16();
  learn.fit_one_cycle(epochs, lr);

  // %% [markdown]
  // ## Evaluation

  // %%
  const tern::Predictions found = learn.get_preds(tern::Split::valid);
  const torch::Tensor targets = found.targets;
  const auto distance_to_targets = [&](const torch::Tensor& points) {
    return (points - targets).square().sum(2).sqrt().mean().item<double>();
  };
  const double distance = distance_to_targets(found.preds);
  const double of_means = distance_to_targets(targets.mean(0, true));
  fmt::print(
      "mean distance of the corners: {:.2f} pixels; {:.2f} for a constant "
      "prediction\n",
      distance,
      of_means);
  tern::show_results(learn, plot, tern::Split::valid, {.count = 6});
  learn.export_model("corners.safetensors");
  if (images >= 1200 && epochs >= 12 && distance > of_means / 3) {
    fmt::print(stderr, "error: the network has not learned the corners\n");
    return 1;
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
