// One job of ./dev gpu, as a user would write it: a Learner in some precision
// on a GPU, or only the fused optimizer. Prints "ready", then measures once for
// each line that it reads and prints the numbers as a line of JSON:
//
//   echo go | gpu_timed --job mlp
//
// With `--json FILE` it measures once and writes the numbers to the file.
// peers/gpu_torch.py does the same in Python, except for `converge`. `--device
// cpu` uses small sizes, to rehearse a job without a GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "tern/data/data_bunch.h"
#include "tern/data/support/error_text.h"
#include "tern/data/support/memory.h"
#include "tern/data/support/random.h"
#include "tern/kernels/images/augment_images.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/adam.h"
#include "tern/tests/bench/gpu_jobs.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/cnn/resnet.h"

namespace {

using namespace tern;         // NOLINT: a program
using namespace tern::bench;  // NOLINT: its parts

// Decoded uint8 images.
class DecodedImages final : public Dataset {
 public:
  DecodedImages(int64_t size, int64_t side)
      : images_(torch::randint(256, {64, side, side, 3}, torch::kByte)),
        size_(size) {}
  int64_t size() const override { return size_; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    std::vector<int64_t> places;
    for (const int64_t i : indices) places.push_back(i % 64);
    const auto index = torch::tensor(places);
    std::vector<int64_t> sizes = images_.sizes().vec();
    sizes[0] = index.size(0);
    torch::Tensor images = context.empty(sizes, torch::kByte);
    return {{torch::index_select_out(images, images_, 0, index)}, {index}};
  }

 private:
  torch::Tensor images_;
  int64_t size_;
};

// Unscale, check, Adam on fp32 master weights and the fp16 weights; for
// comparison, a copy from one block of memory to another.
Numbers adam(const Arguments& arguments, const Tensors& shapes) {
  Tensors masters, weights;
  int64_t numel = 0;
  for (const torch::Tensor& like : shapes) {
    masters.push_back(torch::randn(like.sizes(), arguments.device));
    weights.push_back(masters.back().to(torch::kHalf).requires_grad_());
    weights.back().mutable_grad() = torch::randn_like(weights.back());
    numel += like.numel();
  }
  optim::Adam optimizer(masters, torch::optim::AdamOptions(1e-3));
  optimizer.set_weights(masters, weights);
  GradScaler scaler({.device = arguments.device.type()});
  scaler.scale(torch::ones({}, arguments.device));
  const auto step = [&] {
    scaler.step(optimizer);
    scaler.update();
    wait_for(arguments.device);
  };
  const auto from = torch::ones({numel}, arguments.device);
  const auto to = torch::empty_like(from);
  const auto copy = [&] {
    to.copy_(from);
    wait_for(arguments.device);
  };
  const auto steps = static_cast<int>(arguments.steps);
  const double seconds = bench::median_seconds(steps, step);
  const double copied = bench::median_seconds(steps, copy);
  // amp.md, section 7: 30 bytes per parameter, compared with the copy's 8.
  return {
      {"step_seconds", seconds},
      {"share_of_copy", (30 / seconds) / (8 / copied)}};
}

Numbers adam_100m(const Arguments& arguments) {
  const int64_t numel = arguments.is_small() ? 10'000 : 1'000'000;
  return adam(arguments, Tensors(100, torch::empty({1}).expand({numel})));
}

// From decoded images of the loader's threads to normalized floats on the
// device.
Numbers feed(const Arguments& arguments) {
  const int64_t n = arguments.is_small() ? 16 : 256;
  const DataLoader loader(
      std::make_shared<DecodedImages>(
          n * (arguments.warm_up() + arguments.steps),
          224),
      {.batch_size = n, .workers = 4});
  const auto to_floats =
      normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  auto epoch = loader.epoch(0);
  double begin = 0;
  for (int64_t i = 0; auto batch = epoch.next(); ++i) {
    Batch on_device = batch->to(arguments.device);
    to_floats(on_device, {.dtype = torch::kHalf});
    if (i + 1 != arguments.warm_up()) continue;
    wait_for(arguments.device);
    begin = bench::now();
  }
  wait_for(arguments.device);
  return {
      {"image_seconds",
       (bench::now() - begin) / static_cast<double>(n * arguments.steps)}};
}

// From images on the device to normalized halfs, each image with its own
// rotation, zoom, shift and lighting.
Numbers augment(const Arguments& arguments) {
  const int64_t n = arguments.is_small() ? 8 : 256;
  const int64_t side = arguments.is_small() ? 32 : 224;
  const auto images = torch::randint(
      256,
      {n, side, side, 3},
      torch::dtype(torch::kByte).device(arguments.device));
  const double center = static_cast<double>(side) / 2;
  SampleRng rng(1, 0, 0);
  const auto step = [&] {
    std::vector<ImageChange> changes(static_cast<size_t>(n));
    for (ImageChange& change : changes) {
      const double zoom = rng.uniform(0.9f, 1.1f);
      change.warp.matrix =
          Matrix3::translation(
              center + rng.uniform(-10, 10),
              center + rng.uniform(-10, 10)) *
          Matrix3::rotation(rng.uniform(-0.2f, 0.2f)) *
          Matrix3::scaling(rng.uniform() < 0.5f ? -zoom : zoom, zoom) *
          Matrix3::translation(-center, -center);
      const float contrast = rng.uniform(0.8f, 1.25f);
      const float brightness = rng.uniform(-25, 25);
      for (size_t i = 0; i < change.table.size(); ++i) {
        const float value =
            (static_cast<float>(i) - 128) * contrast + 128 + brightness;
        change.table[i] = static_cast<uint8_t>(std::clamp(value, 0.f, 255.f));
      }
    }
    augment_images(
        images,
        changes,
        {0.485, 0.456, 0.406},
        {0.229, 0.224, 0.225},
        torch::kHalf);
    wait_for(arguments.device);
  };
  return {
      {"step_seconds",
       bench::median_seconds(static_cast<int>(arguments.steps), step)}};
}

using Job = std::function<Numbers(const Arguments&)>;
const std::map<std::string, Job> kJobs = {
    {"resnet18",
     [](const Arguments& a) {
       return resnet(a, {.blocks = {2, 2, 2, 2}});
     }},
    {"resnet50",
     [](const Arguments& a) {
       return resnet(a, {.blocks = {3, 4, 6, 3}, .has_bottleneck = true});
     }},
    {"mnist_cnn", mnist_cnn},
    {"mlp", mlp},
    {"checkerboard", checkerboard},
    {"matting_base", matting_base},
    {"matting_refine", matting_refine},
    {"adam", adam_100m},
    {"adam_resnet50",
     [](const Arguments& a) { return adam(a, resnet50()->parameters()); }},
    {"feed", feed},
    {"augment", augment},
    {"converge", converge}};

// Parsed by hand, because a machine for ./dev gpu may not have CLI11.
Arguments read(int argc, char** argv) {
  Arguments arguments;
  std::map<std::string_view, std::string*> texts = {
      {"--job", &arguments.job},
      {"--precision", &arguments.precision},
      {"--data", &arguments.data},
      {"--picture", &arguments.picture},
      {"--json", &arguments.json}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = argv[i + 1];
    } else if (name == "--steps") {
      arguments.steps = std::stoll(argv[i + 1]);
    } else if (name == "--seed") {
      arguments.seed = std::stoll(argv[i + 1]);
    } else if (name == "--graph") {
      arguments.graph = std::string_view(argv[i + 1]) == "1";
    } else if (name == "--with-fp32") {
      arguments.with_fp32 = std::string_view(argv[i + 1]) == "1";
    } else if (name == "--device") {
      arguments.device = torch::Device(argv[i + 1]);
    }
  }
  if (arguments.steps == 0) arguments.steps = arguments.is_small() ? 1 : 20;
  return arguments;
}

// A loss in 16 bits may be NaN or infinite, which JSON cannot represent; Python
// reads these words.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string json_text(const Numbers& numbers) {
  std::string text = "{";
  for (const auto& [name, value] : numbers) {
    if (text.size() > 1) text += ", ";
    text += fmt::format("\"{}\": {}", name, json_number(value));
  }
  return text + "}\n";
}

void print(const std::string& line) {
  fmt::print("{}", line);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments arguments = read(argc, argv);
  const auto job = kJobs.find(arguments.job);
  if (job == kJobs.end()) {
    std::vector<std::string> jobs;
    for (const auto& [name, run] : kJobs) jobs.push_back(name);
    fmt::print(
        stderr,
        "gpu_timed --job {} [--json FILE] [--precision "
        "fp32|tf32|fp16|fp16_static|bf16|amp] [--device cuda|cpu] [--steps N] "
        "[--graph 0|1] [--with-fp32 0|1] [--seed N] [--data FILE] "
        "[--picture FILE]\n",
        fmt::join(jobs, "|"));
    return 2;
  }
  if (arguments.device.is_cuda() && !load_cuda()) {
    fmt::print(stderr, "There is no CUDA device; --device cpu tries this.\n");
    return 1;
  }
  at::globalContext().setAllowTF32CuBLAS(arguments.precision == "tf32");
  at::globalContext().setAllowTF32CuDNN(arguments.precision == "tf32");
  const auto measure_once = [&] {
    torch::manual_seed(1);
    return json_text(job->second(arguments));
  };
  if (!arguments.json.empty()) {
    std::ofstream file(arguments.json);
    file << measure_once() << std::flush;
    return file.good() ? 0 : 1;
  }
  // The first tensor initializes CUDA, which takes seconds. The runner starts
  // both sides' programs at the same time.
  torch::zeros({1}, arguments.device);
  print("ready\n");
  for (std::string line; std::getline(std::cin, line);) {
    const std::string numbers = measure_once();
    // The other side's program is on the same device and measures next.
    give_back_unused_memory(arguments.device);
    print(numbers);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", message_of(error));
  return 1;
}
