// %% [markdown]
// # Handwritten digits, with options
//
// `mnist.cpp` with command-line options; `./dev mnist` runs this program if any
// option is given. Expect an accuracy of about 0.96 after one epoch on the 3s
// and 7s, and about 0.99 after three epochs on all ten digits (`--full`).

// %%
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"
#include "support/synthetic_digits.h"

// %%
int main(int argc, char** argv) try {
  std::string data_path, precision = "fp16", plot = "losses.svg";
  bool full = false;
  int64_t epochs = 1, workers = -1;
  uint64_t seed = 42;
  tern::examples::Options app("Trains on MNIST in mixed precision");
  app.add_option(
      "--data",
      data_path,
      "folder of train/ and valid/, or IDX files");
  app.add_flag("--full", full, "all ten digits, from IDX files");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_choice("--precision", precision, {"fp32", "fp16", "bf16"});
  app.add_number(
      "--workers",
      workers,
      -1,
      1024,
      "loader threads; -1: cores minus one");
  app.add_number("--seed", seed, 0, UINT32_MAX);
  app.add_option("--plot", plot, "file for the loss plot")->take_last();
  app.read(argc, argv);

  // %% [markdown]
  // ## Data

  // %%
  torch::manual_seed(seed);
  std::filesystem::path path = data_path;
  if (path.empty()) {
    path = tern::examples::mnist_or_digits(
        full ? tern::urls::mnist : tern::urls::mnist_sample);
  }
  auto data = full ? tern::mnist_data(path, {.seed = seed, .workers = workers})
                   : tern::ImageDataBunch::from_folder(
                         path,
                         {.seed = seed, .workers = workers});

  // %% [markdown]
  // ## Network and Learner

  // %%
  auto model = full ? tern::simple_cnn({1, 32, 64, 128, 10})
                    : tern::simple_cnn({3, 16, 16, 2});
  auto learn = tern::Learner(data, model, {.metrics = {tern::accuracy()}});

  // %% [markdown]
  // ## Training

  // %%
  if (precision == "fp16") learn.to_fp16();
  if (precision == "bf16") learn.to_bf16();
  learn.fit(epochs);
  learn.recorder().plot_losses(plot);

  const auto& last = learn.recorder().epochs().back();
  fmt::print(
      "{:.2f} s an epoch; losses drawn in {}\n",
      last.seconds,
      std::filesystem::proximate(plot).string());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
