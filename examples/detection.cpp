// %% [markdown]
// # Digits on a page
//
// Trains a RetinaNet with a ResNet-18 backbone to find digits on pages. The
// program draws the pages with MNIST's digits and writes their boxes in COCO's
// format. It prints the mean average precision, and draws predictions and
// targets over the pages.

// %%
#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"

namespace fs = std::filesystem;

/// True if two boxes overlap.
bool overlap(const tern::Box& a, const tern::Box& b) {
  return a.x1 < b.x2 && b.x1 < a.x2 && a.y1 < b.y2 && b.y1 < a.y2;
}

// %% [markdown]
// ## Pages and their boxes

// %%
/// Draws a page with up to five digits that do not overlap, and returns their
/// boxes.
tern::ImageBoxes
draw_page(const tern::Dataset& digits, const fs::path& file, int64_t size) {
  const auto between = [](int64_t low, int64_t high) {
    return torch::randint(low, high + 1, {1}).item<int64_t>();
  };
  torch::Tensor page = torch::zeros({size, size, 1}, torch::kByte);
  tern::ImageBoxes boxes({}, size);
  const int64_t count = between(1, 5);
  for (int64_t i = 0; i < count; ++i) {
    const tern::Batch digit =
        digits.get_batch({between(0, digits.size() - 1)}, {});
    const int64_t side = between(22, 44);  // height in pixels, with its margins
    const torch::Tensor drawn =
        torch::upsample_bilinear2d(
            digit.inputs[0].permute({0, 3, 1, 2}).to(torch::kFloat),
            {side, side},
            /*align_corners=*/false)[0][0]
            .to(torch::kByte);
    const int64_t top = between(0, size - side), left = between(0, size - side);
    // The box encloses the digit's pixels without its margins.
    const torch::Tensor rows = (drawn > 60).any(1).nonzero();
    const torch::Tensor columns = (drawn > 60).any(0).nonzero();
    const tern::Box box{
        static_cast<double>(left + columns.min().item<int64_t>()),
        static_cast<double>(top + rows.min().item<int64_t>()),
        static_cast<double>(left + columns.max().item<int64_t>() + 1),
        static_cast<double>(top + rows.max().item<int64_t>() + 1),
        std::to_string(digit.targets[0].item<int64_t>())};
    const bool is_free = std::ranges::none_of(
        boxes.boxes,
        [&](const tern::Box& other) { return overlap(box, other); });
    if (!is_free) continue;
    torch::Tensor place =
        page.slice(0, top, top + side).slice(1, left, left + side).squeeze(2);
    place.copy_(torch::maximum(place, drawn));
    boxes.boxes.push_back(box);
  }
  tern::save_image(file, page);
  return boxes;
}

/// Draws pages into folder/images and writes folder/instances.json.
void draw_pages(
    const tern::Dataset& digits,
    const fs::path& folder,
    int64_t count,
    int64_t size) {
  fs::create_directories(folder / "images");
  tern::BoxAnnotations pages;
  for (int i = 0; i < 10; ++i) pages.classes.push_back(std::to_string(i));
  for (int64_t i = 0; i < count; ++i) {
    const fs::path file = folder / "images" / fmt::format("{:05}.png", i);
    pages.images.push_back({file.string(), draw_page(digits, file, size), i});
  }
  tern::write_coco(folder / "instances.json", pages, folder / "images");
}

// %%
int main(int argc, char** argv) try {
  std::string mnist, folder = "pages", plot = "digits.png";
  int64_t pages = 2000, epochs = 8, size = 96, batch_size = 16;
  double lr = 1e-3;
  bool bf16 = false;
  tern::examples::Options app("Trains a detector of digits on a page");
  app.add_option(
      "--mnist",
      mnist,
      "folder of MNIST's files; empty: downloaded");
  app.add_option("--folder", folder, "folder for the drawn pages");
  app.add_number("--pages", pages, 20, 1'000'000, "pages to draw");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_number("--size", size, 48, 4096, "page size in pixels");
  app.add_number("--batch-size", batch_size, 1, 4096);
  app.add_number("--lr", lr, 1e-8, 10, "maximum learning rate");
  app.add_option("--plot", plot);
  app.add_flag("--bf16", bf16);
  app.read(argc, argv);
  torch::manual_seed(42);

  // %%
  const auto digits = tern::mnist_dataset(
      mnist.empty() ? tern::untar_data(tern::urls::mnist) : fs::path(mnist),
      /*train=*/true);
  draw_pages(*digits, folder, pages, size);

  // %% [markdown]
  // ## From a COCO file to batches

  // %%
  const tern::BoxAnnotations coco = tern::read_coco(
      fs::path(folder) / "instances.json",
      fs::path(folder) / "images");
  const tern::DataBlock block{
      .items = coco.items(),
      .split = tern::split_at_random(0.15),
      .classes = coco.classes,
      .boxes = coco.labeller()};
  const tern::DataBunch data = block.bunch(
      {.size = size,
       .transforms = {{tern::rand_zoom(), tern::rotate({-5, 5})}, {}},
       .resize = tern::ResizeMethod::pad,
       .batch_size = batch_size});
  tern::show_batch(data, "batch.png");

  // %% [markdown]
  // ## Training a detector
  //
  // The digits are small, so the anchors are small too. GroupNorm in the heads
  // (`v2`) compensates for the lack of pretrained weights.

  // %%
  auto learn = tern::detection_learner(
      data,
      "retinanet_resnet18_fpn_v2",
      {.smallest_anchor = 16, .learner = {.seed = 42}});
  if (bf16) learn.to_bf16();
  learn.fit_one_cycle(epochs, lr);

  // %% [markdown]
  // ## Evaluation

  // %%
  const tern::Predictions found = learn.get_preds(tern::Split::valid);
  tern::BoxEvaluation evaluation({.classes = data.classes});
  evaluation.add(found.outputs, found.all_targets);
  const tern::BoxEvaluationResult result = evaluation.result();
  fmt::print("\n{}", result.to_string());
  tern::show_results(learn, plot, tern::Split::valid, {.count = 6});
  fmt::print("targets and predictions are in {}\n", plot);
  learn.export_model("digits.safetensors");
  if (pages >= 2000 && epochs >= 8 && result.map_50 < 0.9) {
    fmt::print(stderr, "error: mAP at IoU 0.5 is below 0.9\n");
    return 1;
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
