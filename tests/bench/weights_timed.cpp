// ./dev bench peers weights: writes and reads a safetensors file of 100 MB.
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/weights/weights.h"
#include "tern/tests/bench/measure.h"

namespace {

constexpr const char* kFile = "weights.safetensors";

// 100 tensors of 1 MB, as in weights_safetensors.py.
tern::StateDict make_state() {
  tern::StateDict state;
  for (int i = 0; i < 100; ++i) {
    state.insert(fmt::format("layer{}.weight", i), torch::rand({250, 1000}));
  }
  return state;
}

// Reads every value once, as a model does when it loads the weights.
double total(const tern::StateDict& state) {
  double total = 0;
  for (const auto& item : state) total += item.value().sum().item<double>();
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  std::string json;
  int times = 21;
  CLI::App app{"Times weight files"};
  app.add_option("--times", times);
  app.add_option("--json", json)->required();
  CLI11_PARSE(app, argc, argv);
  const torch::NoGradGuard no_grad;
  const tern::StateDict state = make_state();
  const double write = tern::bench::median_seconds(times, [&] {
    tern::save_safetensors(kFile, state, {}, {.durable = false});
  });
  const double read = tern::bench::median_seconds(times, [&] {
    total(tern::load_weights(kFile));
  });
  const double mapped = tern::bench::median_seconds(times, [&] {
    total(tern::load_weights(kFile, {.memory_map = true}));
  });
  const double open = tern::bench::median_seconds(times, [&] {
    tern::load_weights(kFile, {.memory_map = true});
  });
  std::ofstream(json) << fmt::format(
      "{{\"write_seconds\": {}, \"read_seconds\": {}, \"mapped_seconds\": {}, "
      "\"open_seconds\": {}}}\n",
      write,
      read,
      mapped,
      open);
  return 0;
}
