// What a body that has seen other things is worth. A network first learns some
// kinds of clothing from all their photographs; then it has to tell apart other
// kinds, of which it gets only a few photographs each. Once its body is taken
// over from the first task, once it starts from random weights.
//
// The folder has train/CLASS/*.jpg and validation/CLASS/*.jpg.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tern/tern.h>

#include "notebook.h"
#include "options.h"

namespace fs = std::filesystem;

std::string kind_of(const tern::ImageItem& item) {
  return fs::path(item.path).parent_path().filename().string();
}

/// Photographs of some kinds, of each at most `few` to learn from.
tern::DataBunch photographs(
    const fs::path& folder,
    const std::set<std::string>& kinds,
    int64_t few,
    int64_t size,
    int64_t batch_size) {
  tern::ImageItems items;
  std::map<std::string, int64_t> taken;
  for (const auto& item : tern::items_from_folder(folder)) {
    if (!kinds.contains(kind_of(item))) continue;
    const bool is_valid = item.path.find("/validation/") != std::string::npos;
    if (is_valid || taken[kind_of(item)]++ < few) items.push_back(item);
  }
  const tern::DataBlock block{
      .items = items,
      .split = tern::split_by_folder("train", "validation")};
  return block.bunch(
      {.size = size,
       .transforms =
           {.train = {tern::random_resized_crop({0.35f, 1}), tern::flip_lr()},
            .valid = {tern::centre_crop()}},
       .batch_size = batch_size,
       .workers = 2});
}

int main(int argc, char** argv) try {
  std::string folder, arch = "resnet18";
  int64_t size = 96, epochs = 15, few_epochs = 20, few = 10;
  tern::examples::Options app(
      "With few photographs: a trained body against random weights");
  app.add_option("folder", folder)->required();
  app.add_option("--arch", arch);
  app.add_number("--size", size, 8, 4096, "of the photographs, in pixels");
  app.add_number("--epochs", epochs, 1, 10'000, "of learning the first kinds");
  app.add_number(
      "--few",
      few,
      1,
      100'000,
      "photographs of each of the other kinds");
  app.add_number(
      "--few-epochs",
      few_epochs,
      1,
      10'000,
      "of learning the other kinds");
  app.read(argc, argv);

  tern::examples::Notebook note("What a trained body is worth");
  note.text("# Two tasks out of one folder");
  note.definition("photographs");
  std::set<std::string> kinds;
  for (const auto& item : tern::items_from_folder(folder)) {
    kinds.insert(kind_of(item));
  }
  // Every other kind, so that both tasks are of one sort.
  std::set<std::string> first, other;
  for (const auto& kind : kinds) {
    (first.size() > other.size() ? other : first).insert(kind);
  }
  const auto options = [&](const fs::path& pretrained) {
    return tern::VisionOptions{
        .pretrained = pretrained,
        .learner = {.metrics = {tern::accuracy()}, .seed = 42}};
  };

  note.text("# The first task");
  fmt::print("first, all photographs of: {}\n", fmt::join(first, ", "));
  auto teacher = tern::vision_learner(
      photographs(folder, first, /*few=*/100'000, size, 64),
      tern::VisionArch(arch),
      options({}));
  teacher.fit_one_cycle(epochs).save("first");

  note.text("# The second, from random weights");
  fmt::print(
      "\nthen {} photographs each of: {}\n",
      few,
      fmt::join(other, ", "));
  const auto data = photographs(folder, other, few, size, 10);
  fmt::print("from random weights\n");
  auto alone = tern::vision_learner(data, tern::VisionArch(arch), options({}));
  const double without =
      alone.fit_one_cycle(few_epochs).validate().metrics[0].value;

  note.text("# The second, with the body of the first");
  fmt::print("with the body of the first task\n");
  auto taught = tern::vision_learner(
      data,
      tern::VisionArch(arch),
      options("models/first.safetensors"));
  const double with = taught.fine_tune(few_epochs).validate().metrics[0].value;
  fmt::print("accuracy without {:.4f}, with transfer {:.4f}\n", without, with);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
