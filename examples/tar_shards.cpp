// %% [markdown]
// # Images in tar shards
//
// Writes a folder of images as tar shards once, and then trains on the shards
// without unpacking them.
//
// ```sh
// tar_shards --data clothing --out shards
// ```
//
// Shards are a few large files, which are read from a network or a disk many
// times faster than a million small files. Python's webdataset reads them too.
// The tool `tern-shard` writes them from the command line.

// %%
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"
#include "support/synthetic_digits.h"

namespace fs = std::filesystem;

// %%
int main(int argc, char** argv) try {
  std::string data, out = "shards";
  int64_t epochs = 1, max_samples = 1000;
  tern::examples::Options app(
      "Writes shards of a folder of images and trains on them");
  app.add_option("--data", data, "folder with train/ and valid/");
  app.add_option("--out", out, "folder for the shards");
  app.add_number(
      "--max-samples",
      max_samples,
      1,
      1'000'000,
      "images in a shard");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.read(argc, argv);
  if (data.empty())
    data = tern::examples::mnist_or_digits(tern::urls::mnist_sample);

  // %% [markdown]
  // ## Writing shards
  //
  // Each image is stored unchanged, next to a file with the index of its class:
  // `3/00000012.png` and `3/00000012.cls`. Shards of an earlier run are reused.

  // %%
  if (!fs::exists(fs::path(out) / "SHA256SUMS")) {
    for (const char* name : {"train", "valid"}) {
      const tern::ShardedImages written = tern::shard_images(
          fs::path(data) / name,
          out,
          {.name = name, .max_samples = max_samples});
      fmt::print(
          "{}: {} in {}, {:.1f} MB\n",
          name,
          tern::counted(written.images, "image"),
          tern::counted(std::ssize(written.shards), "shard"),
          static_cast<double>(written.bytes) / 1e6);
    }
  }
  fmt::print("verified the checksums of {} shards\n", tern::verify_shards(out));

  // %% [markdown]
  // ## Training on shards
  //
  // Everything else works as it does for a folder: transforms, workers, several
  // processes, and checkpoints in the middle of an epoch.

  // %%
  std::vector<std::string> train, valid;
  for (const fs::directory_entry& entry : fs::directory_iterator(out)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with("train-")) train.push_back(entry.path().string());
    if (file.starts_with("valid-")) valid.push_back(entry.path().string());
  }
  std::ranges::sort(train);
  std::ranges::sort(valid);

  tern::seed_everything(0);
  auto images =
      tern::ImageDataBunch::from_tar(train, valid, {.shuffle_buffer = 5000});
  auto learn = tern::Learner(
      images,
      tern::simple_cnn(
          {3, 16, 16, static_cast<int64_t>(images.classes.size())}),
      {.metrics = {tern::accuracy()}});
  learn.fit(epochs);

  // %% [markdown]
  // ## Result

  // %%
  const double accuracy = learn.recorder().epochs().back().metrics[0].value;
  fmt::print(
      "{} of {} read in place: accuracy {:.3f}\n",
      tern::counted(images.train->dataset().size(), "image"),
      tern::counted(std::ssize(train), "shard"),
      accuracy);
  return accuracy > 0.9 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
