// Compares ten steps of a small net in fp32, bfloat16 and float16 with
// Python's.
//
// With one thread on the same machine, losses, traces, parameters and running
// statistics equal Python's bit for bit, except where the optimizers round
// differently. torch::optim::SGD equals Python's SGD. Python's Adam updates the
// first moment with lerp, where torch::optim::Adam multiplies and adds. Tern's
// fused kernels use no fused multiply-add, so that every instruction set gives
// the same bits; Python's loops and kernels do use it. The optimizers are
// therefore compared twice: bit for bit with their own formula written in
// Python (oracle/written.py), which shows that nothing else differs, and with
// Python's optimizers up to a few last bits.

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/version.h>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/tests/parity/fixture.h"
#include "tern/tests/parity/nets.h"
#include "tern/tests/parity/scaler_events.h"
#include "tern/tests/support/tolerance.h"

namespace tern::training_test {
namespace {

using test::Library;

// All bitwise comparisons of this folder rely on this.
TEST(Arithmetic, RoundsAsPythonOnTheSameMachine) {
  if (!test::is_live() && !test::rounds_alike()) {
    GTEST_SKIP()
        << "the stored fixtures come from a CPU that rounds differently";
  }
  EXPECT_TRUE(test::rounds_alike());
  const auto torch = test::load_fixture("arithmetic")["torch"];
  EXPECT_EQ(torch.get<std::string>().rfind(TORCH_VERSION, 0), 0) << torch;
}

const nlohmann::json& fixture() {
  static const nlohmann::json loaded = test::load_fixture("training");
  return loaded;
}

// Optimizer and precision.
class Training
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    std::tie(optimizer, precision) = GetParam();
    if (!test::rounds_alike() && precision != "float32") {
      GTEST_SKIP() << "16-bit results round too coarsely to compare with a "
                      "different CPU";
    }
  }

  const nlohmann::json* of_python(const std::string& writing) {
    for (const auto& run : fixture()["runs"]) {
      if (run["optimizer"] == optimizer && run["precision"] == precision &&
          run["writing"] == writing) {
        return &run;
      }
    }
    return nullptr;
  }

  void train(Library library) {
    const test::World world(fixture());
    net = test::new_net(world.weights[0]);
    const auto opt = test::new_optimizer(optimizer, library, net->parameters());
    GradScaler scaler(
        {.device = torch::kCPU,
         .init_scale = 1 << 20,
         .growth_interval = 3,
         .enabled = precision == "float16"});
    for (int64_t i = 0; i < world.batches(); ++i) {
      torch::Tensor loss;
      {
        const test::Precision guard(precision);
        loss = test::loss_of(net, world.images[i], world.labels[i]);
      }
      scaler.scale(loss).backward();
      scaler.step(*opt);
      scaler.update();
      opt->zero_grad();
      losses.push_back(loss.detach());
      trace.emplace_back(scaler.get_scale(), scaler.growth_tracker());
    }
  }

  void expect_the_bits(const std::string& writing) {
    const auto* run = of_python(writing);
    ASSERT_NE(run, nullptr) << writing;
    test::expect_the_run_of_python({net}, losses, trace, *run);
  }

  void expect_close(const std::string& writing) {
    SCOPED_TRACE(writing);
    const auto* run = of_python(writing);
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(trace, (*run)["trace"].get<test::Trace>());
    // A few last bits of 1. In 16 bits, such a bit sometimes makes an
    // activation round the other way.
    const double atol = precision == "float32" ? 5e-7 : 1e-4;
    EXPECT_TRUE(test::all_close(
        test::parameters_of(net),
        test::decode((*run)["parameters"][0]),
        {0, test::rounds_alike() ? atol : 1e-4}));
  }

  std::string optimizer, precision;
  torch::nn::Sequential net{nullptr};
  Tensors losses;
  test::Trace trace;
};

TEST_P(Training, LibTorchsOptimizersEqualPythonBitForBit) {
  train(Library::libtorch);
  expect_the_bits(optimizer.starts_with("sgd") ? "python" : "libtorch");
}

TEST_P(Training, FusedOptimizersEqualTheSameFormulaInPythonBitForBit) {
  train(Library::tern);
  expect_the_bits("tern");
}

TEST_P(Training, StaysWithinTheLastBitsOfPythonsOptimizers) {
  for (const auto library : {Library::libtorch, Library::tern}) {
    losses.clear();
    trace.clear();
    train(library);
    expect_close("python");
    // Python's fused SGD turns to NaN after a first step that overflows (here
    // in float16), so there is nothing to compare with.
    if (optimizer.starts_with("sgd") && precision == "float16") continue;
    expect_close("python_fused");
  }
}

TEST(ScaledTraining, OverflowsInFloat16) {
  for (const auto& run : fixture()["runs"]) {
    if (run["precision"] != "float16") continue;
    EXPECT_LT(run["trace"][0][0], 1 << 20);
    EXPECT_GT(run["trace"][8][0], run["trace"][4][0]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Training,
    testing::Combine(
        testing::Values("sgd", "sgd_l2", "adam", "adamw"),
        testing::Values("float32", "bfloat16", "float16")),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" + std::get<1>(info.param);
    });

}  // namespace
}  // namespace tern::training_test
