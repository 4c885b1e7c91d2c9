// One job of ./dev gpu, as one calls it: a Learner in some precision on a GPU,
// or the fused optimizer by itself. Writes its numbers as JSON for the runner;
// peers/gpu_torch.py does the same in Python PyTorch. With `--device cpu` the
// sizes are small: to try the program where there is no GPU.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/nn/modules/loss.h>
#include <torch/utils.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/error_text.h"
#include "tern/data/random.h"
#include "tern/kernels/images/augment_images.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/graph/step_graph.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/precision/grad_scaler.h"
#include "tern/learner/report/memory_meter.h"
#include "tern/tests/bench/checkerboard_net.h"
#include "tern/tests/bench/matting_step.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/matting/matting_base.h"
#include "tern/vision/matting/matting_refine.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/models/cnn/simple_cnn.h"

namespace {

using namespace tern;  // NOLINT: a program

using Numbers = std::map<std::string, double>;

struct Arguments {
  std::string job, precision = "fp32", json;
  torch::Device device = torch::kCUDA;
  int64_t steps = 20;
  bool graph = false;
  bool is_small() const { return device.is_cpu(); }
};

constexpr int64_t kWarmUp = 5;

void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

// The same batch again and again, where the model is: what is timed is the
// step.
class SameBatch final : public Dataset {
 public:
  SameBatch(Batch batch, int64_t batches)
      : batch_(std::move(batch)), batches_(batches) {}
  int64_t size() const override { return batch_.size() * batches_; }
  Batch get_batch(c10::ArrayRef<int64_t>, const BatchContext&) const override {
    return batch_;
  }

 private:
  Batch batch_;
  int64_t batches_;
};

// Uint8 images that are decoded already.
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

void set_precision(Learner& learn, const std::string& precision) {
  if (precision == "fp16") learn.to_fp16();
  if (precision == "bf16") learn.to_bf16();
  if (precision == "amp") learn.to_amp();
}

using MakeModel = std::function<Model()>;

Numbers train_once(
    const Arguments& arguments,
    const MakeModel& make_model,
    const Batch& batch,
    LearnerOptions options) {
  const torch::Device device = arguments.device;
  const MemoryMeter memory(device);
  DataBunch data = DataBunch::create(
      std::make_shared<SameBatch>(batch.to(device), kWarmUp + arguments.steps),
      nullptr,
      {.batch_size = batch.size(), .workers = 0});
  data.device = device;
  options.sink = silent();
  Learner learn(data, make_model(), std::move(options));
  set_precision(learn, arguments.precision);
  if (arguments.graph && device.is_cuda()) learn.to_cuda_graph();
  double begin = 0, end = 0, loss = 0;
  learn.add<LambdaCallback>(
      {.on_batch_end =
           [&](Learner& l) {
             if (l.state().iteration == kWarmUp) {
               wait_for(device);
               begin = bench::now();
             }
             if (l.state().iteration < kWarmUp + arguments.steps) return;
             wait_for(device);
             end = bench::now();
             loss = l.state().loss.item<double>();
           },
       .order = callback_order::kLast});
  learn.fit(1);
  return {
      {"step_seconds", (end - begin) / static_cast<double>(arguments.steps)},
      {"peak_megabytes", static_cast<double>(memory.peak_bytes()) / 1e6},
      {"loss", loss}};
}

// And how much less memory it takes than the same in fp32.
Numbers train(
    const Arguments& arguments,
    const MakeModel& make_model,
    const Batch& batch,
    const LearnerOptions& options) {
  Numbers numbers = train_once(arguments, make_model, batch, options);
  if (arguments.precision == "fp32" || arguments.precision == "tf32") {
    return numbers;
  }
  Arguments fp32 = arguments;
  fp32.precision = "fp32";
  fp32.graph = false;
  fp32.steps = 1;
  numbers["memory_saved"] =
      1 - numbers["peak_megabytes"] /
              train_once(fp32, make_model, batch, options)["peak_megabytes"];
  return numbers;
}

Numbers resnet50_job(const Arguments& arguments) {
  const int64_t n = arguments.is_small() ? 2 : 256;
  const int64_t side = arguments.is_small() ? 64 : 224;
  const auto images = torch::randn({n, 3, side, side})
                          .contiguous(c10::MemoryFormat::ChannelsLast);
  return train(
      arguments,
      [] { return resnet50(); },
      {{images}, {torch::randint(1000, {n})}},
      {.optimizer =
           optimizer<optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)),
       .weight_decay = 0});
}

Numbers mnist_cnn(const Arguments& arguments) {
  Arguments more = arguments;
  more.steps *= 10;
  return train(
      more,
      [] {
        return simple_cnn({1, 16, 32, 10});
      },
      {{torch::randn({64, 1, 28, 28})}, {torch::randint(10, {64})}},
      {});
}

Numbers checkerboard(const Arguments& arguments) {
  const int64_t side = arguments.is_small() ? 32 : 512;
  return train(
      arguments,
      [] { return bench::checkerboard_net(); },
      {{torch::rand({1, 2, side, side})
            .contiguous(c10::MemoryFormat::ChannelsLast)},
       {torch::rand({1, 1, side, side}).round()}},
      {.loss = torch::nn::MSELoss(),
       .optimizer = optimizer<optim::Adam>(),
       .weight_decay = 0});
}

Numbers matting(
    const Arguments& arguments,
    const MakeModel& make,
    int64_t n,
    int64_t side) {
  if (arguments.is_small()) n = 2, side = 128;
  const auto src = torch::rand({n, 3, side, side});
  return train(
      arguments,
      make,
      {{src, torch::rand_like(src)}, {src}},
      {.loss =
           [](const Tensors& outputs, const Tensors& targets) {
             return bench::matting_step_loss(outputs, targets[0]);
           },
       .optimizer = optimizer<optim::Adam>(),
       .weight_decay = 0});
}

Numbers matting_base(const Arguments& arguments) {
  return matting(
      arguments,
      [] {
        return MattingBase(
            MattingBaseOptions{.backbone = MattingBackbone::resnet50});
      },
      8,
      512);
}

Numbers matting_refine(const Arguments& arguments) {
  const MattingRefineOptions options{
      .backbone = MattingBackbone::resnet50,
      .sample_pixels = arguments.is_small() ? 4096 : 80'000};
  return matting(
      arguments,
      [options] { return MattingRefine(options); },
      4,
      1024);
}

// Unscale, check, Adam on fp32 masters and the fp16 weights, on 100 million
// parameters; beside it a copy of one block of memory to another.
Numbers adam(const Arguments& arguments) {
  const int64_t tensors = 100;
  const int64_t numel = arguments.is_small() ? 10'000 : 1'000'000;
  Tensors masters, weights;
  for (int64_t i = 0; i < tensors; ++i) {
    masters.push_back(torch::randn({numel}, arguments.device));
    weights.push_back(masters.back().to(torch::kHalf).requires_grad_());
    weights.back().mutable_grad() = torch::randn_like(weights.back());
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
  const auto from = torch::ones({tensors * numel}, arguments.device);
  const auto to = torch::empty_like(from);
  const auto copy = [&] {
    to.copy_(from);
    wait_for(arguments.device);
  };
  const auto steps = static_cast<int>(arguments.steps);
  const double seconds = bench::median_seconds(steps, step);
  const double copied = bench::median_seconds(steps, copy);
  // amp.md, section 7: 30 bytes a parameter against the copy's 8.
  return {
      {"step_seconds", seconds},
      {"share_of_copy", (30 / seconds) / (8 / copied)}};
}

// Decoded images from the loader's threads to normalised floats on the device.
Numbers feed(const Arguments& arguments) {
  const int64_t n = arguments.is_small() ? 16 : 256;
  const DataLoader loader(
      std::make_shared<DecodedImages>(n * (kWarmUp + arguments.steps), 224),
      {.batch_size = n, .workers = 4});
  const auto to_floats =
      normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  auto epoch = loader.epoch(0);
  double begin = 0;
  for (int64_t i = 0; auto batch = epoch.next(); ++i) {
    Batch on_device = batch->to(arguments.device);
    to_floats(on_device, {.dtype = torch::kHalf});
    if (i + 1 != kWarmUp) continue;
    wait_for(arguments.device);
    begin = bench::now();
  }
  wait_for(arguments.device);
  return {
      {"image_seconds",
       (bench::now() - begin) / static_cast<double>(n * arguments.steps)}};
}

// Images on the device to normalised halfs, each turned, zoomed, moved and
// lit in its own way.
Numbers augment(const Arguments& arguments) {
  const int64_t n = arguments.is_small() ? 8 : 256;
  const int64_t side = arguments.is_small() ? 32 : 224;
  const auto images = torch::randint(
      256,
      {n, side, side, 3},
      torch::dtype(torch::kByte).device(arguments.device));
  const double centre = static_cast<double>(side) / 2;
  SampleRng rng(1, 0, 0);
  const auto step = [&] {
    std::vector<ImageChange> changes(static_cast<size_t>(n));
    for (ImageChange& change : changes) {
      const double zoom = rng.uniform(0.9f, 1.1f);
      change.warp.matrix =
          Matrix3::translation(
              centre + rng.uniform(-10, 10),
              centre + rng.uniform(-10, 10)) *
          Matrix3::rotation(rng.uniform(-0.2f, 0.2f)) *
          Matrix3::scaling(rng.uniform() < 0.5f ? -zoom : zoom, zoom) *
          Matrix3::translation(-centre, -centre);
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

using Job = Numbers (*)(const Arguments&);
const std::map<std::string, Job> kJobs = {
    {"resnet50", resnet50_job},
    {"mnist_cnn", mnist_cnn},
    {"checkerboard", checkerboard},
    {"matting_base", matting_base},
    {"matting_refine", matting_refine},
    {"adam", adam},
    {"feed", feed},
    {"augment", augment}};

// By hand: a machine for ./dev gpu may have no CLI11.
Arguments read(int argc, char** argv) {
  Arguments arguments;
  std::map<std::string_view, std::string*> texts = {
      {"--job", &arguments.job},
      {"--precision", &arguments.precision},
      {"--json", &arguments.json}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = argv[i + 1];
    } else if (name == "--steps") {
      arguments.steps = std::stoll(argv[i + 1]);
    } else if (name == "--graph") {
      arguments.graph = std::string_view(argv[i + 1]) == "1";
    } else if (name == "--device") {
      arguments.device = torch::Device(argv[i + 1]);
    }
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments arguments = read(argc, argv);
  const auto job = kJobs.find(arguments.job);
  if (job == kJobs.end() || arguments.json.empty()) {
    fmt::print(
        stderr,
        "gpu_timed --job resnet50|mnist_cnn|checkerboard|matting_base|"
        "matting_refine|adam|feed|augment --json FILE [--precision "
        "fp32|tf32|fp16|bf16|amp] "
        "[--device cuda|cpu] [--steps N] [--graph 0|1]\n");
    return 2;
  }
  if (arguments.device.is_cuda() && !load_cuda()) {
    fmt::print(stderr, "There is no CUDA device; --device cpu tries this.\n");
    return 1;
  }
  at::globalContext().setAllowTF32CuBLAS(arguments.precision == "tf32");
  at::globalContext().setAllowTF32CuDNN(arguments.precision == "tf32");
  torch::manual_seed(1);
  std::ofstream file(arguments.json);
  const char* before = "{";
  for (const auto& [name, value] : job->second(arguments)) {
    file << fmt::format(
        "{}\"{}\": {}",
        std::exchange(before, ", "),
        name,
        value);
  }
  file << "}\n";
  return file.good() ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", message_of(error));
  return 1;
}
