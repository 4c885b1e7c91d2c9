// %% [markdown]
// # Training that resumes after being killed
//
// Start the program, stop it with Ctrl-C or `kill -9`, and start it again: it
// resumes from its last checkpoint, and ends with the weights of an
// uninterrupted run.

// %%
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"
#include "support/synthetic_digits.h"

// %%
int main(int argc, char** argv) try {
  std::string folder = "checkpoints_run";
  int64_t epochs = 3, every = 50, stop_after = 0;
  bool fresh = false;
  tern::examples::Options app(
      "Trains on threes and sevens, and resumes after being killed");
  app.add_option("--run", folder, "folder for checkpoints");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_number(
      "--every",
      every,
      1,
      1'000'000,
      "batches between two checkpoints");
  app.add_number(
      "--stop-after",
      stop_after,
      0,
      1'000'000,
      "batches before a stop, as a test; 0: none");
  app.add_flag("--fresh", fresh, "delete the checkpoints of earlier runs");
  app.read(argc, argv);
  if (fresh) std::filesystem::remove_all(folder);

  // %% [markdown]
  // ## Data and a Learner

  // %%
  tern::seed_everything(42);  // also for the initial weights
  auto path = tern::examples::mnist_or_digits(tern::urls::mnist_sample);
  auto data = tern::ImageDataBunch::from_folder(path);
  auto learn = tern::Learner(
      data,
      tern::simple_cnn({3, 16, 16, 2}),
      {.metrics = {tern::accuracy()}});
  learn.to_bf16();

  // %% [markdown]
  // ## Resume, and save checkpoints

  // %%
  learn.resume(folder, {.if_exists = true});
  learn.add<tern::SaveCheckpoint>(
      {.folder = folder, .every_steps = every, .on_signals = true});
  if (stop_after > 0) {
    learn.add<tern::LambdaCallback>({.on_batch_end = [=](tern::Learner& l) {
      if (l.state().iteration == stop_after) l.request_stop();
    }});
  }
  learn.fit_one_cycle(epochs);

  // %% [markdown]
  // ## Result
  //
  // The sum of all weights is the same no matter how often the run was
  // interrupted.

  // %%
  if (learn.state().result == tern::FitResult::interrupted) {
    fmt::print(
        "stopped after {}; start again to resume\n",
        tern::counted(learn.state().iteration, "batch"));
    return 75;  // EX_TEMPFAIL of sysexits.h: the caller should try again
  }
  double sum = 0;
  for (const auto& entry : learn.state_dict()) {
    sum += entry.value().to(torch::kDouble).abs().sum().item<double>();
  }
  fmt::print(
      "{}, the weights sum up to {:.15f}\n",
      tern::counted(learn.state().iteration, "batch"),
      sum);
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
