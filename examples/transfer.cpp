// %% [markdown]
// # Fine-tuning
//
// Pretrains a network on some classes of clothing with all their photos. Then
// trains it on the other classes with a few photos each: from scratch, with
// only a new head, and with current fine-tuning recipes, each of which is one
// call. All of them are evaluated on unseen photos of these classes.
//
// The folder contains `train/CLASS/*.jpg` and `validation/CLASS/*.jpg`.

// %%
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tern/tern.h>

#include "options.h"

namespace fs = std::filesystem;

// %% [markdown]
// ## Two tasks from one folder

// %%
/// A ConvNeXt with a tenth of convnext_tiny's weights.
tern::ConvNeXt small_convnext(const tern::ConvNeXtOptions& options) {
  return tern::ConvNeXt(
      tern::ConvNeXtShape{
          .channels = {40, 80, 160, 320},
          .blocks = {2, 2, 4, 2}},
      options);
}

std::string kind_of(const tern::ImageItem& item) {
  return fs::path(item.path).parent_path().filename().string();
}

bool is_for_validation(const tern::ImageItem& item) {
  return fs::path(item.path).parent_path().parent_path().filename() ==
         "validation";
}

tern::DataBunch bunch_of(
    const tern::ImageItems& items,
    const tern::Splitter& split,
    int64_t size,
    int64_t batch_size) {
  const tern::DataBlock block{.items = items, .split = split};
  return block.bunch(
      {.size = size,
       .transforms =
           {.train = {tern::random_resized_crop({0.35f, 1}), tern::flip_lr()},
            .valid = {tern::center_crop()}},
       .batch_size = batch_size,
       .workers = 2});
}

/// Returns `few` training photos of each class, and up to 100 other photos of
/// each class as the test set.
/// \param draw  Which photos to use: skips the first `draw * few` of each
///              class.
tern::DataBunch handful(
    const tern::ImageItems& items,
    int64_t few,
    int64_t draw,
    int64_t size) {
  constexpr int64_t kUnseen = 100;
  tern::ImageItems used;
  std::set<std::string> unseen;
  std::map<std::string, int64_t> place;
  for (const auto& item : items) {
    const int64_t number = place[kind_of(item)]++ - draw * few;
    if (number < 0 || number >= few + kUnseen) continue;
    if (number >= few) unseen.insert(item.path);
    used.push_back(item);
  }
  const auto split = tern::split_by_func(
      [=](const tern::ImageItem& item) { return unseen.contains(item.path); });
  tern::DataBunch data = bunch_of(used, split, size, /*batch_size=*/20);
  data.test = std::exchange(data.valid, nullptr);
  return data;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// %%
int main(int argc, char** argv) try {
  std::string folder;
  int64_t size = 64, epochs = 20, few = 20, few_epochs = 20, draws = 3;
  tern::examples::Options app("Fine-tunes a network on few photos");
  app.add_option("folder", folder)->required();
  app.add_number("--size", size, 44, 4096, "image size in pixels");
  app.add_number("--epochs", epochs, 3, 10'000, "epochs of the first task");
  app.add_number("--few", few, 1, 1000, "photos of each new class");
  app.add_number(
      "--few-epochs",
      few_epochs,
      1,
      10'000,
      "epochs of fine-tuning");
  app.add_number("--draws", draws, 1, 100, "draws to average over");
  app.read(argc, argv);

  // %%
  const tern::ImageItems items = tern::items_from_folder(folder);
  std::set<std::string> kinds;
  for (const auto& item : items) kinds.insert(kind_of(item));
  // Alternates the classes between the two tasks, so that they are similar.
  std::set<std::string> first, other;
  for (const auto& kind : kinds) {
    (first.size() > other.size() ? other : first).insert(kind);
  }
  const auto photos_of = [&](const std::set<std::string>& some) {
    tern::ImageItems chosen;
    std::ranges::copy_if(items, std::back_inserter(chosen), [&](auto& item) {
      return some.contains(kind_of(item));
    });
    return chosen;
  };
  const tern::VisionArch arch = small_convnext;
  // The tasks have few classes, so the head has no hidden layers.
  const tern::HeadOptions head{.hidden = {}};

  // %% [markdown]
  // ## The first task

  // %%
  fmt::print("first task, all photos: {}\n", fmt::join(first, ", "));
  const auto learner_of_first = [&] {
    return tern::vision_learner(
        bunch_of(
            photos_of(first),
            tern::split_by_func(is_for_validation),
            size,
            /*batch_size=*/64),
        arch,
        {.head = head, .learner = {.metrics = {tern::accuracy()}, .seed = 42}});
  };
  auto teacher = learner_of_first();
  const double whole = seconds_of([&] { teacher.fit_one_cycle(epochs, 4e-3); });
  teacher.save("first");

  // %% [markdown]
  // ## Progressive resizing
  //
  // Progressive resizing saves time on the longer task: two thirds of the
  // epochs use smaller images, and the last third uses the full size.

  // %%
  auto progressive = learner_of_first();
  const double resized = seconds_of([&] {
    tern::set_image_size(progressive.data(), size * 3 / 4);
    progressive.fit_one_cycle(epochs - epochs / 3, 4e-3);
    tern::set_image_size(progressive.data(), size);
    progressive.fit_one_cycle(epochs / 3, 2e-3);
  });
  fmt::print(
      "accuracy {:.3f} in {:.0f} s; by progressive resizing {:.3f} in {:.0f} "
      "s\n",
      teacher.validate()["accuracy"],
      whole,
      progressive.validate()["accuracy"],
      resized);

  // %% [markdown]
  // ## The second task
  //
  // `measure` trains a new Learner on each draw of photos and evaluates it on
  // unseen photos.

  // %%
  fmt::print(
      "second task, {} photos of each class: {}\n",
      few,
      fmt::join(other, ", "));
  const tern::ImageItems others = photos_of(other);
  std::vector<std::vector<std::string>> table;
  const auto measure = [&](const std::string& name,
                           const fs::path& pretrained,
                           const std::function<void(tern::Learner&)>& recipe) {
    double accuracy = 0, seconds = 0;
    int64_t weights = 0;
    for (int64_t draw = 0; draw < draws; ++draw) {
      auto learn = tern::vision_learner(
          handful(others, few, draw, size),
          arch,
          {.pretrained = pretrained,
           .head = head,
           .learner = {
               .metrics = {tern::accuracy()},
               .seed = static_cast<uint64_t>(draw) + 1,
               .sink = tern::silent()}});
      seconds += seconds_of([&] { recipe(learn); });
      accuracy += learn.validate(tern::Split::test)["accuracy"];
      weights = 0;
      for (const auto& item : learn.model().parameters()) {
        if (item.tensor.requires_grad()) weights += item.tensor.numel();
      }
    }
    const auto count = static_cast<double>(draws);
    table.push_back(
        {name,
         fmt::format("{:.3f}", accuracy / count),
         tern::with_commas(weights),
         fmt::format("{:.0f}", seconds / count)});
    fmt::print(
        "{:<28} accuracy {}, {:>9} trained weights, {} s\n",
        table.back()[0],
        table.back()[1],
        table.back()[2],
        table.back()[3]);
  };
  const fs::path trained = "models/first.safetensors";

  // %% [markdown]
  // ## From scratch

  // %%
  measure("random weights", {}, [&](tern::Learner& learn) {
    learn.fit_one_cycle(few_epochs, 4e-3);
  });

  // %% [markdown]
  // ## Only the head
  //
  // A Learner with pretrained weights starts frozen, so it trains only the
  // head.

  // %%
  measure("the head alone", trained, [&](tern::Learner& learn) {
    learn.fit_one_cycle(few_epochs, 4e-3);
  });

  // %% [markdown]
  // ## fastai's fine_tune
  //
  // `fine_tune` trains the head for one epoch, then all layers.

  // %%
  measure("fine_tune", trained, [&](tern::Learner& learn) {
    learn.fine_tune(few_epochs, {.base_lr = 4e-3});
  });

  // %% [markdown]
  // ## A learning rate for each block
  //
  // Each block trains with 0.75 times the learning rate of the next block,
  // since features closer to the image are more general.

  // %%
  measure("layer_decay", trained, [&](tern::Learner& learn) {
    const auto rates = tern::layer_decay(learn, 2e-3, 0.75);
    learn.fit_one_cycle(1, 4e-3).unfreeze().fit_one_cycle(few_epochs, rates);
  });

  // %% [markdown]
  // ## Drop path
  //
  // During training, each block is skipped for a random fraction of the images.
  // The fraction rises from 0 for the first block to a tenth for the last
  // block.

  // %%
  measure("layer_decay, drop path", trained, [&](tern::Learner& learn) {
    const auto rates = tern::layer_decay(learn, 2e-3, 0.75);
    tern::set_stochastic_depth(learn, 0.1);
    learn.fit_one_cycle(1, 4e-3).unfreeze().fit_one_cycle(few_epochs, rates);
  });

  // %% [markdown]
  // ## LoRA
  //
  // The network stays frozen. Only the head and a low-rank adapter of each
  // layer are trained.

  // %%
  measure("add_lora", trained, [&](tern::Learner& learn) {
    tern::add_lora(learn, {.rank = 8}).fit_one_cycle(few_epochs, 4e-3);
  });

  // %% [markdown]
  // ## All recipes

  // %%
  fmt::print(
      "{:<28}{:>10}{:>16}{:>10}\n",
      "recipe",
      "accuracy",
      "trained weights",
      "seconds");
  for (const auto& row : table) {
    fmt::print("{:<28}{:>10}{:>16}{:>10}\n", row[0], row[1], row[2], row[3]);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
