// examples/mnist.cpp for ./dev bench peers: the same training run; writes its
// times as JSON for the runner.
#include <fstream>
#include <sstream>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/utils.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/models/cnn/simple_cnn.h"

namespace {

// Seconds since the start of this process, to 10 ms.
double process_seconds() {
  std::ifstream file("/proc/self/stat");
  std::stringstream text;
  text << file.rdbuf();
  std::istringstream fields(text.str().substr(text.str().rfind(')') + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;  // 22: start, in ticks
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9 -
         std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

int main(int argc, char** argv) {
  std::string data_path, json, precision = "fp32";
  int64_t epochs = 1, workers = -1;
  uint64_t seed = 42;
  CLI::App app{"Trains on MNIST and writes its times"};
  app.add_option("--data", data_path)->required();
  app.add_option("--json", json)->required();
  app.add_option("--precision", precision);
  app.add_option("--epochs", epochs);
  app.add_option("--workers", workers);
  app.add_option("--seed", seed);
  CLI11_PARSE(app, argc, argv);

  torch::manual_seed(seed);
  auto data = tern::ImageDataBunch::from_folder(
      data_path,
      {.seed = seed, .workers = workers});
  auto learn = tern::Learner(
      data,
      tern::simple_cnn({3, 16, 16, 2}),
      {.metrics = {tern::accuracy()}});
  double first_batch = 0;
  learn.add<tern::LambdaCallback>({.on_batch_begin = [&](tern::Learner&) {
    if (first_batch == 0) first_batch = process_seconds();
  }});
  if (precision == "bf16") learn.to_bf16();
  learn.fit(epochs);
  const tern::EpochRecord& last = learn.recorder().epochs().back();
  std::ofstream(json) << fmt::format(
      "{{\"epoch_seconds\": {}, \"first_batch_seconds\": {}, \"accuracy\": "
      "{}}}\n",
      last.seconds,
      first_batch,
      last.metrics.at(0).value);
  return 0;
}
