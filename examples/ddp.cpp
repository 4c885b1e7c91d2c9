// %% [markdown]
// # Several processes
//
// Trains on MNIST with several processes. Compared with `mnist.cpp`, this takes
// one more line:
//
// ```sh
// torchrun --no-python --nproc-per-node 2 build/examples/ddp
// ```
//
// Each process computes its part of every batch, and gradients are averaged
// while the backward pass is still running. The program resumes from its last
// checkpoint if it is started again after Ctrl-C, or if torchrun restarts it
// after one process was killed (`--max-restarts 1`). It also runs as a single
// process.

// %%
#include <cmath>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <tern/callbacks/distributed.h>
#include <tern/tern.h>

#include "options.h"
#include "support/synthetic_digits.h"

// %%
int main(int argc, char** argv) try {
  std::string data_path, run = "ddp_run";
  int64_t epochs = 2;
  tern::DistributedOptions options;
  tern::examples::Options app("Trains on MNIST in several processes");
  app.add_option("--data", data_path, "folder with train/ and valid/");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_option("--folder", run, "folder for checkpoints");
  app.add_flag(
      "--sync-batch-norm",
      options.sync_batch_norm,
      "BatchNorm over the global batch");
  app.add_flag(
      "--shard-optimizer",
      options.shard_optimizer,
      "each process keeps a shard of the optimizer state");
  app.read(argc, argv);

  // %% [markdown]
  // ## Data and a Learner, as in a single process

  // %%
  tern::seed_everything(42);  // for the initial weights
  const std::filesystem::path path =
      data_path.empty()
          ? tern::examples::mnist_or_digits(tern::urls::mnist_sample)
          : std::filesystem::path(data_path);
  auto data = tern::ImageDataBunch::from_folder(
      path,
      {.seed = 42, .batch_size = 32, .workers = 1});
  auto learn = tern::Learner(
      data,
      tern::simple_cnn({3, 16, 16, 2}, {.batch_norm = true}),
      {.metrics = {tern::accuracy()}});

  // %% [markdown]
  // ## The additional line

  // %%
  learn.to_bf16().to_distributed(options);

  // %% [markdown]
  // ## Training that resumes after a crash

  // %%
  learn.add<tern::SaveCheckpoint>({.folder = run, .on_signals = true});
  learn.resume(run, {.if_exists = true});
  learn.fit_one_cycle(epochs, 1e-2);

  // Returns the same results on every rank, for the whole validation set.
  const tern::Validation valid = learn.validate();
  if (!communicator(learn).is_main_process()) return 0;
  fmt::print(
      "{} processes: validation loss {:.4f}, accuracy {:.4f}\n",
      communicator(learn).world_size(),
      valid.loss,
      valid.metrics[0].value);
  return valid.metrics[0].value > 0.9 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
