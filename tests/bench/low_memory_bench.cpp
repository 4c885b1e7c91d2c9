// Tests whether 8-bit moments and bfloat16 without master weights train as well
// as fp32: accuracies for several seeds, and the optimizer's bytes per
// parameter.
//
//   low_memory_bench                       MNIST, from untar_data
//   low_memory_bench --folder clothing --size 64 --epochs 8 --lr 4e-3
//
// Exit code 1 if a mean accuracy is lower than fp32's by more than the range of
// fp32's seeds, or if 8-bit moments need more than 40% of the memory.
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tern/tern.h>

#include "tern/learner/optim/named_state.h"

namespace {

struct Settings {
  std::filesystem::path folder;
  int64_t seeds = 5, epochs = 2, size = 64, samples = 6000;
  double lr = 1e-2;
  bool sgd = false;
};

struct Variant {
  const char* name;
  int64_t optim_bits;
  bool is_bf16, has_masters;
};

const Variant kVariants[] = {
    {"fp32", 32, false, true},
    {"8-bit moments", 8, false, true},
    {"bf16, fp32 master weights", 32, true, true},
    {"bf16, stochastic rounding", 32, true, false},
    {"bf16, both", 8, true, false}};

struct Result {
  std::vector<double> accuracies;
  double bytes = 0;  // of the moments, per parameter

  double mean() const {
    return std::accumulate(accuracies.begin(), accuracies.end(), 0.0) /
           static_cast<double>(accuracies.size());
  }
  double spread() const {
    const auto [least, most] = std::ranges::minmax(accuracies);
    return most - least;
  }
};

tern::DataBunch read_data(const Settings& s, uint64_t seed) {
  if (!s.folder.empty()) {
    return tern::ImageDataBunch::from_folder(
        s.folder,
        {.valid = "validation",
         .seed = seed,
         .size = s.size,
         .transforms =
             {.train = {tern::random_resized_crop({0.35f, 1}), tern::flip_lr()},
              .valid = {tern::center_crop()}},
         .batch_size = 32});
  }
  const auto path = tern::untar_data(tern::urls::mnist);
  auto data = tern::mnist_data(path, {.batch_size = 64, .seed = seed});
  std::vector<int64_t> some(s.samples);
  std::iota(some.begin(), some.end(), 0);
  tern::DataLoader train(
      std::make_shared<tern::Subset>(tern::mnist_dataset(path, true), some),
      data.train->options());
  data.train = std::make_shared<tern::DataLoader>(std::move(train));
  return data;
}

void train(const Settings& s, const Variant& v, uint64_t seed, Result& result) {
  torch::manual_seed(seed);
  const tern::optim::FusedOptions fused = {.optim_bits = v.optim_bits};
  const tern::LearnerOptions options = {
      .optimizer = s.sgd ? tern::optimizer<tern::optim::SGD>(
                               torch::optim::SGDOptions(0.1).momentum(0.9),
                               fused)
                         : tern::optimizer<tern::optim::AdamW>(
                               torch::optim::AdamWOptions().betas({0.9, 0.99}),
                               fused),
      .metrics = {tern::accuracy()},
      .seed = seed,
      .sink = tern::silent()};
  const auto data = read_data(s, seed);
  auto learn =
      s.folder.empty()
          ? tern::Learner(
                data,
                tern::simple_cnn({1, 32, 64, 10}, {.batch_norm = true}),
                options)
          : tern::vision_learner(data, "resnet18", {.learner = options});
  if (v.is_bf16) learn.to_bf16({.master_weights = v.has_masters});
  learn.fit_one_cycle(s.epochs, s.lr);
  result.accuracies.push_back(learn.validate()["accuracy"]);
  const auto names = tern::optim::numbered_names(learn.optimizer());
  double bytes = 0, parameters = 0;
  for (const auto& entry : tern::optim::named_state(learn.optimizer(), names)) {
    if (entry.value().dim() > 0) {
      bytes += static_cast<double>(entry.value().nbytes());
    }
  }
  for (const auto& p : learn.model().parameters()) {
    parameters += static_cast<double>(p.tensor.numel());
  }
  result.bytes = bytes / parameters;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Trains with less memory, with several seeds"};
  app.add_option(
      "--folder",
      s.folder,
      "Folder of images with train/ and validation/");
  app.add_option("--seeds", s.seeds);
  app.add_option("--epochs", s.epochs);
  app.add_option("--size", s.size, "Size of the images of --folder");
  app.add_option("--samples", s.samples, "Number of MNIST's training images");
  app.add_option("--lr", s.lr);
  app.add_flag("--sgd", s.sgd, "Use SGD with momentum instead of AdamW");
  CLI11_PARSE(app, argc, argv);

  Result fp32;
  bool is_met = true;
  for (const Variant& v : kVariants) {
    Result result;
    for (int64_t seed = 0; seed < s.seeds; ++seed) {
      train(s, v, static_cast<uint64_t>(seed), result);
    }
    if (fp32.accuracies.empty()) fp32 = result;
    const bool is_worse = result.mean() < fp32.mean() - fp32.spread();
    const bool is_large = v.optim_bits == 8 && result.bytes > 0.4 * fp32.bytes;
    is_met = is_met && !is_worse && !is_large;
    fmt::print(
        "{:26} {:5.2f} bytes  mean {:.4f}  {:.4f}{}\n",
        v.name,
        result.bytes,
        result.mean(),
        fmt::join(result.accuracies, " "),
        is_worse || is_large ? "  MISSED" : "");
    std::fflush(stdout);
  }
  return is_met ? 0 : 1;
}
