#include "tern/kernels/conv_activation.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/fma_loop.h"
#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::conv_activation_test {
namespace {

/// As convolutions call it, on the instruction set in use.
std::vector<float> activated(
    const ConvActivation& activation,
    std::vector<float> values) {
  values.resize((values.size() + kLanes - 1) / kLanes * kLanes);
  on_fma_isa<activate>(activation, values.data(), std::ssize(values));
  return values;
}

class OnEachIsa : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override { set_cpu_isa(GetParam()); }
  void TearDown() override { set_cpu_isa(best_cpu_isa()); }
};

using ConvActivations = OnEachIsa;
INSTANTIATE_TEST_SUITE_P(
    All,
    ConvActivations,
    testing::ValuesIn(test::kCpuIsas));

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double hardsigmoid(double x) {
  return std::min(std::max(x + 3, 0.0), 6.0) / 6;
}

TEST_P(ConvActivations, EqualTheFunctionInDouble) {
  std::vector<float> inputs;
  for (int i = -15000; i <= 15000; ++i) {
    inputs.push_back(static_cast<float>(i) / 150);
  }
  struct Case {
    const char* name;
    double (*function)(double x);
  };
  for (const Case& c : std::vector<Case>{
           {"none", [](double x) { return x; }},
           {"relu", [](double x) { return std::max(x, 0.0); }},
           {"hardtanh", [](double x) { return std::clamp(x, -0.5, 2.0); }},
           {"sigmoid", sigmoid},
           {"swish", [](double x) { return x * sigmoid(x); }},
           {"hardsigmoid", hardsigmoid},
           {"hardswish", [](double x) { return x * hardsigmoid(x); }}}) {
    const std::optional<ConvActivation> activation =
        ConvActivation::from(c.name, -0.5, 2);
    ASSERT_TRUE(activation) << c.name;
    const std::vector<float> outputs = activated(*activation, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double expected = c.function(inputs[i]);
      ASSERT_NEAR(outputs[i], expected, 1e-6 * std::abs(expected) + 1e-30)
          << c.name << " of " << inputs[i];
    }
  }
}

TEST_P(ConvActivations, KeepNaNAndLimitLargeNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name :
       {"relu", "hardtanh", "sigmoid", "swish", "hardsigmoid", "hardswish"}) {
    const ConvActivation activation = *ConvActivation::from(name, -1, 1);
    EXPECT_TRUE(std::isnan(activated(activation, {nan})[0])) << name;
    EXPECT_GT(activated(activation, {kInfinity})[0], 0.999F) << name;
    EXPECT_GT(activated(activation, {3e38F})[0], 0.999F) << name;
  }
  const auto value = [](const char* name, float x) {
    return activated(*ConvActivation::from(name, -1, 1), {x})[0];
  };
  for (const float x : {-kInfinity, -1e37F, -100.0F}) {
    EXPECT_EQ(value("sigmoid", x), 0.0F) << x;
    EXPECT_EQ(value("sigmoid", -x), 1.0F) << -x;
  }
  EXPECT_EQ(value("swish", -1e37F), 0.0F);
  EXPECT_EQ(value("swish", 1e37F), 1e37F);
  EXPECT_EQ(value("hardswish", -1e37F), 0.0F);
  EXPECT_EQ(value("relu", -kInfinity), 0.0F);
  EXPECT_EQ(value("hardtanh", -kInfinity), -1.0F);
  // As in ATen, infinity times zero.
  EXPECT_TRUE(std::isnan(value("swish", -kInfinity)));
  EXPECT_TRUE(std::isnan(value("hardswish", -kInfinity)));
}

TEST(ConvActivation, IsUnsetForOtherActivations) {
  EXPECT_FALSE(ConvActivation::from("gelu", 0, 0));
  EXPECT_FALSE(ConvActivation::from("tanh", 0, 0));
}

}  // namespace
}  // namespace tern::conv_activation_test
