// Compares the loops of PyTorch's AMP examples, with an overflow in the middle,
// bit for bit with Python's. The scale of 128 grows three times and is halved
// once, to 512.

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/tests/parity/fixture.h"
#include "tern/tests/parity/nets.h"
#include "tern/tests/parity/scaler_events.h"

namespace tern::scenarios_test {
namespace {

constexpr int64_t kSteps = 4;
constexpr int64_t kOverflowAt = 1;

const nlohmann::json& fixture() {
  static const nlohmann::json loaded = test::load_fixture("scenarios");
  return loaded;
}

// Nets, their optimizers and a scaler that grows after each step without
// overflow.
struct Loop {
  Loop(const std::string& optimizer, std::string precision)
      : precision(std::move(precision)) {
    // The optimizers as in the fixture: Python's SGD equals LibTorch's; AdamW
    // is Python code with Tern's formula.
    const auto library =
        optimizer == "sgd" ? test::Library::libtorch : test::Library::tern;
    for (const auto& net : nets) {
      opts.push_back(
          test::new_optimizer(optimizer, library, net->parameters()));
    }
  }

  torch::Tensor forward(int64_t batch) {
    const test::Precision guard(precision);
    const auto loss =
        test::loss_of(nets[0], world.images[batch], world.labels[batch]);
    losses.push_back(loss.detach());
    return loss;
  }

  static void overflow(const torch::nn::Sequential& net) {
    net->parameters()[3].mutable_grad().index_put_({2}, INFINITY);
  }

  void finish(size_t count = 1) {
    for (size_t i = 0; i < count; ++i) scaler.step(*opts[i]);
    scaler.update();
    for (size_t i = 0; i < count; ++i) opts[i]->zero_grad();
    trace.emplace_back(scaler.get_scale(), scaler.growth_tracker());
  }

  std::string precision;
  test::World world{fixture()};
  std::vector<torch::nn::Sequential> nets = world.new_nets();
  std::vector<std::unique_ptr<torch::optim::Optimizer>> opts;
  GradScaler scaler{
      {.device = torch::kCPU, .init_scale = 128, .growth_interval = 1}};
  Tensors losses, norms;
  test::Trace trace;
};

void typical(Loop& loop, int64_t step) {
  loop.scaler.scale(loop.forward(step)).backward();
  if (step == kOverflowAt) Loop::overflow(loop.nets[0]);
  loop.finish();
}

void clip(Loop& loop, int64_t step) {
  loop.scaler.scale(loop.forward(step)).backward();
  if (step == kOverflowAt) Loop::overflow(loop.nets[0]);
  loop.scaler.unscale_(*loop.opts[0]);
  loop.norms.push_back(clip_grad_norm_(loop.nets[0]->parameters(), 0.2));
  loop.finish();
}

void accumulation(Loop& loop, int64_t step) {
  for (int64_t part = 0; part < 2; ++part) {
    loop.scaler.scale(loop.forward(2 * step + part) / 2).backward();
    if (step == kOverflowAt && part == 0) Loop::overflow(loop.nets[0]);
  }
  loop.finish();
}

void penalty(Loop& loop, int64_t step) {
  auto loss = loop.forward(step);
  const auto scaled = torch::autograd::grad(
      {loop.scaler.scale(loss)},
      loop.nets[0]->parameters(),
      /*grad_outputs=*/{},
      /*retain_graph=*/true,
      /*create_graph=*/true);
  const double inverse = 1 / loop.scaler.get_scale();
  {
    const test::Precision guard(loop.precision);
    torch::Tensor squares = torch::zeros({});
    for (const auto& grad : scaled) {
      squares = squares + (grad * inverse).pow(2).sum();
    }
    const auto norm = squares.sqrt();
    loop.norms.push_back(norm.detach());
    loss = loss + norm;
  }
  loop.scaler.scale(loss).backward();
  if (step == kOverflowAt) Loop::overflow(loop.nets[0]);
  loop.finish();
}

void several_models(Loop& loop, int64_t step) {
  namespace F = torch::nn::functional;
  const auto label = loop.world.labels[step];
  Tensors losses;
  {
    const test::Precision guard(loop.precision);
    const auto a = loop.nets[0]->forward(loop.world.images[step]);
    const auto b = loop.nets[1]->forward(loop.world.images[step]);
    losses = {
        F::cross_entropy(2 * a + 3 * b, label),
        F::cross_entropy(3 * a - 5 * b, label)};
  }
  const Tensors scaled = loop.scaler.scale(losses);
  scaled[0].backward({}, /*retain_graph=*/true);
  scaled[1].backward();
  for (const auto& loss : losses) loop.losses.push_back(loss.detach());
  if (step == kOverflowAt) Loop::overflow(loop.nets[1]);
  loop.scaler.unscale_(*loop.opts[0]);
  loop.finish(2);
}

const std::map<std::string, std::function<void(Loop&, int64_t)>> kScenarios = {
    {"typical", typical},
    {"clip", clip},
    {"accumulation", accumulation},
    {"penalty", penalty},
    {"several_models", several_models}};

// Scenario, optimizer and precision.
class Scenario : public testing::TestWithParam<
                     std::tuple<std::string, std::string, std::string>> {};

TEST_P(Scenario, EqualsPythonsBitsAndScales) {
  const auto& [scenario, optimizer, precision] = GetParam();
  if (!test::rounds_alike() && precision != "float32") {
    GTEST_SKIP()
        << "16-bit results round too coarsely to compare with a different CPU";
  }
  Loop loop(optimizer, precision);
  for (int64_t step = 0; step < kSteps; ++step) {
    kScenarios.at(scenario)(loop, step);
  }
  if (scenario != "several_models") loop.nets.resize(1, loop.nets[0]);

  const nlohmann::json* of_python = nullptr;
  for (const auto& each : fixture()["runs"]) {
    if (each["scenario"] == scenario && each["optimizer"] == optimizer &&
        each["precision"] == precision) {
      of_python = &each;
    }
  }
  ASSERT_NE(of_python, nullptr);
  test::expect_the_run_of_python(
      loop.nets,
      loop.losses,
      loop.trace,
      *of_python);
  EXPECT_EQ(loop.trace.back().first, 512);
  ASSERT_EQ(loop.norms.empty(), (*of_python)["norms"].is_null());
  if (loop.norms.empty()) return;
  EXPECT_TRUE(test::same(
      torch::stack(loop.norms),
      test::decode((*of_python)["norms"])));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Scenario,
    testing::Combine(
        testing::Values(
            "typical",
            "clip",
            "accumulation",
            "penalty",
            "several_models"),
        testing::Values("sgd", "adamw"),
        testing::Values("float32", "bfloat16", "float16")),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" +
             std::get<2>(info.param);
    });

}  // namespace
}  // namespace tern::scenarios_test
