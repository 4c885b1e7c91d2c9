#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/cuda_graph/step_graph.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/model.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/recorder.h"
#include "tern/learner/report/memory_meter.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/bench/checkerboard_net.h"
#include "tern/tests/bench/gpu_jobs.h"
#include "tern/tests/bench/matting_step.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"

namespace tern::bench {

namespace {

using MakeModel = std::function<Model()>;

// Reuses one batch on the model's device, so that only the step is timed.
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

void set_precision(Learner& learn, const std::string& precision) {
  if (precision == "fp16") learn.to_fp16();
  if (precision == "fp16_static") learn.to_fp16({.loss_scale = 512});
  if (precision == "bf16") learn.to_bf16();
  if (precision == "amp") learn.to_amp();
}

Numbers train_once(
    const Arguments& arguments,
    const MakeModel& make_model,
    const Batch& batch,
    LearnerOptions options) {
  const torch::Device device = arguments.device;
  const MemoryMeter memory(device);
  DataBunch data = DataBunch::create(
      std::make_shared<SameBatch>(
          batch.to(device),
          arguments.warm_up() + arguments.steps),
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
             if (l.state().iteration == arguments.warm_up()) {
               wait_for(device);
               begin = bench::now();
             }
             if (l.state().iteration < arguments.warm_up() + arguments.steps) {
               return;
             }
             wait_for(device);
             end = bench::now();
             loss = l.state().loss.item<double>();
             if (arguments.picture.empty()) return;
             save_safetensors(
                 arguments.picture,
                 StateDict({{"picture", l.state().outputs[0].cpu()}}));
           },
       .order = callback_order::kLast});
  learn.fit(1);
  return {
      {"step_seconds", (end - begin) / static_cast<double>(arguments.steps)},
      {"peak_megabytes", static_cast<double>(memory.peak_bytes()) / 1e6},
      {"loss", loss}};
}

// With `with_fp32`, also reports the memory and time saved relative to the same
// job in fp32.
Numbers train(
    const Arguments& arguments,
    const MakeModel& make_model,
    const Batch& batch,
    const LearnerOptions& options) {
  Numbers numbers = train_once(arguments, make_model, batch, options);
  if (!arguments.with_fp32) return numbers;
  Arguments fp32 = arguments;
  fp32.precision = "fp32";
  fp32.graph = false;
  fp32.picture.clear();
  Numbers whole = train_once(fp32, make_model, batch, options);
  numbers["memory_saved"] =
      1 - numbers["peak_megabytes"] / whole["peak_megabytes"];
  numbers["times_fp32"] = whole["step_seconds"] / numbers["step_seconds"];
  return numbers;
}

// Small nets, whose steps are dominated by kernel launches.
Numbers
digits(Arguments arguments, const MakeModel& make, at::IntArrayRef sample) {
  arguments.steps *= 10;
  std::vector<int64_t> sizes = {64};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  return train(
      arguments,
      make,
      {{torch::randn(sizes)}, {torch::randint(10, {64})}},
      {});
}

Model mlp_net() {
  using namespace torch::nn;  // NOLINT: five layers
  return Sequential(
      Linear(784, 256),
      ReLU(),
      Linear(256, 256),
      ReLU(),
      Linear(256, 10));
}

MattingBackbone matting_backbone(const Arguments& arguments) {
  return arguments.is_small() ? MattingBackbone::mobilenet_v2
                              : MattingBackbone::resnet50;
}

Numbers matting(
    const Arguments& arguments,
    const MakeModel& make,
    int64_t n,
    int64_t side) {
  if (arguments.is_small()) n = 2, side = 32;
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

}  // namespace

Numbers resnet(const Arguments& arguments, ResNetShape shape) {
  const int64_t n = arguments.is_small() ? 2 : 256;
  const int64_t side = arguments.is_small() ? 32 : 224;
  if (arguments.is_small()) shape.blocks = {1, 1, 1, 1};
  const auto make = [shape] { return ResNet(shape, ResNetOptions()); };
  const auto images = torch::randn({n, 3, side, side})
                          .contiguous(c10::MemoryFormat::ChannelsLast);
  return train(arguments, make, {{images}, {torch::randint(1000, {n})}}, {});
}

Numbers mnist_cnn(const Arguments& arguments) {
  const auto make = [] { return simple_cnn({1, 16, 32, 10}); };
  return digits(arguments, make, {1, 28, 28});
}

Numbers mlp(const Arguments& arguments) {
  return digits(arguments, mlp_net, {784});
}

// Squares of one sixteenth of the side, computed from pixel coordinates.
Numbers checkerboard(const Arguments& arguments) {
  const int64_t side = arguments.is_small() ? 16 : 512;
  const torch::Tensor at = torch::arange(side);
  const torch::Tensor squares = (at * 16).floor_divide(side);
  const torch::Tensor board =
      (squares.view({-1, 1}) + squares).remainder(2).to(torch::kFloat);
  const torch::Tensor ruler = at.to(torch::kFloat) / (side - 1) * 2 - 1;
  const auto coordinates = torch::stack(
      {ruler.view({-1, 1}).expand({side, side}), ruler.expand({side, side})});
  return train(
      arguments,
      [] { return bench::checkerboard_net(); },
      {{coordinates.unsqueeze(0).contiguous(c10::MemoryFormat::ChannelsLast)},
       {board.view({1, 1, side, side})}},
      {.loss = torch::nn::MSELoss(),
       .optimizer = optimizer<optim::Adam>(),
       .weight_decay = 0});
}

Numbers matting_base(const Arguments& arguments) {
  const MattingBaseOptions options{.backbone = matting_backbone(arguments)};
  return matting(
      arguments,
      [options] { return MattingBase(options); },
      8,
      512);
}

Numbers matting_refine(const Arguments& arguments) {
  const MattingRefineOptions options{
      .backbone = matting_backbone(arguments),
      .sample_pixels = arguments.is_small() ? 512 : 80'000};
  return matting(
      arguments,
      [options] { return MattingRefine(options); },
      1,
      2048);
}

Numbers converge(const Arguments& arguments) {
  const StateDict file = load_weights(arguments.data);
  const auto read = [&](const std::string& name) {
    const torch::Tensor all = file[name];
    return arguments.is_small() ? all.slice(0, 0, 640) : all;
  };
  const auto part = [&](const std::string& prefix) {
    return std::make_shared<TensorDataset>(
        Tensors{read(prefix + "images")},
        Tensors{read(prefix + "labels")});
  };
  const torch::Tensor& images = file["images"];
  const int64_t classes = file["labels"].max().item<int64_t>() + 1;
  const int64_t channels = images.size(3);
  DataBunch data = DataBunch::create(
      part(""),
      part("valid_"),
      {.batch_size = 64, .workers = 2});
  data.device = arguments.device;
  data.batch_transforms = {normalize(
      std::vector<double>(channels, 0.5),
      std::vector<double>(channels, 0.25))};
  torch::manual_seed(arguments.seed);
  Model model = channels == 1 ? Model(simple_cnn({1, 16, 32, classes}))
                              : Model(resnet18({.num_classes = classes}));
  Learner learn(
      data,
      model,
      {.metrics = {accuracy()},
       .seed = static_cast<uint64_t>(arguments.seed),
       .sink = silent()});
  set_precision(learn, arguments.precision);
  const double begin = bench::now();
  learn.fit_one_cycle(arguments.steps, 4e-3);
  Numbers numbers = {
      {"seconds", bench::now() - begin},
      {"accuracy", learn.validate()["accuracy"]}};
  const std::vector<double>& scales = learn.recorder().loss_scales();
  for (size_t tenth = 0; tenth <= 10 && !scales.empty(); ++tenth) {
    const double scale = scales[tenth * (scales.size() - 1) / 10];
    if (scale > 0) numbers[fmt::format("scale_{:02}", tenth)] = scale;
  }
  return numbers;
}

}  // namespace tern::bench
