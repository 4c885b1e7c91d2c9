#include "tern/learner/inference/fused_model.h"

#include <cmath>
#include <limits>
#include <thread>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/fma_loop.h"
#include "tern/tests/support/batch_nets.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/stir.h"

namespace tern::fused_model_test {
namespace {

using test::OpCalls;
using Numbers = std::vector<int64_t>;
using Activation = std::function<torch::Tensor(const torch::Tensor&)>;

constexpr const char* kFused = "mkldnn::_convolution_pointwise";
constexpr const char* kWinograd = "tern::winograd_conv2d";

/// A convolution with BatchNorm; the forward function is set per case.
struct Net : torch::nn::Module {
  using Forward = std::function<torch::Tensor(Net&, torch::Tensor)>;

  explicit Net(Forward forward, int64_t channels = 4)
      : conv(register_module(
            "conv",
            torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3)
                                  .padding(1)
                                  .bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(channels))),
        order(register_buffer("order", torch::tensor({2, 0, 3}))),
        forward_(std::move(forward)) {
    torch::manual_seed(7);
    testing_support::stir(Model(torch::nn::Sequential(conv, norm)));
    eval();
  }
  torch::Tensor forward(torch::Tensor x) { return forward_(*this, x); }
  torch::Tensor normed(const torch::Tensor& x) { return norm(conv(x)); }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::Tensor order;

 private:
  Forward forward_;
};

struct TwoInputs : torch::nn::Module {
  TwoInputs() { eval(); }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) {
    return conv(x) + y;
  }
  torch::nn::Conv2d conv = register_module(
      "conv",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1)));
};

/// How often a model calls an operation for one batch.
int calls_of(const char* name, Model& model, const Tensors& batch) {
  const OpCalls calls(name);
  model.forward(batch);
  return calls.count();
}

class FusedModel : public testing::Test {
 protected:
  /// Expects the network's outputs.
  void expect_same(const Net::Forward& forward) {
    Model model = std::make_shared<Net>(forward);
    Model fused = fused_model(model);
    for (const int64_t size : {1, 5, 2}) {
      const Tensors batch = {x_.narrow(0, 0, size)};
      EXPECT_TRUE(torch::allclose(
          fused.forward(batch)[0],
          model.forward(batch)[0],
          1e-4,
          1e-5))
          << size;
    }
  }

  torch::NoGradGuard no_grad_;
  torch::Tensor x_ = torch::randn({5, 4, 8, 6});
};

TEST_F(FusedModel, FusesActivationsIntoTheConvolution) {
  for (const Activation& activation : std::vector<Activation>{
           [](const auto& x) { return x.relu(); },
           [](const auto& x) { return torch::Tensor(x).relu_(); },
           [](const auto& x) { return x.sigmoid(); },
           [](const auto& x) { return x.tanh(); },
           [](const auto& x) { return torch::silu(x); },
           [](const auto& x) { return torch::gelu(x); },
           [](const auto& x) { return torch::gelu(x, "tanh"); },
           [](const auto& x) { return torch::hardswish(x); },
           [](const auto& x) { return torch::hardsigmoid(x); },
           [](const auto& x) { return torch::hardtanh(x, -0.2, 0.3); },
           [](const auto& x) { return torch::relu6(x); },
           [](const auto& x) {
             torch::Tensor y = x;
             return torch::relu6_(y);
           },
           [](const auto& x) { return torch::leaky_relu(x, 0.2); }}) {
    expect_same([&](Net& net, const torch::Tensor& x) {
      return activation(net.normed(x));
    });
    Model fused = fused_model(
        std::make_shared<Net>([&](Net& net, const torch::Tensor& x) {
          return activation(net.normed(x));
        }));
    fused.forward({x_});
    EXPECT_EQ(calls_of(kFused, fused, {x_}), 1);
    for (const char* name : {"aten::relu6", "aten::relu6_", "aten::hardtanh"}) {
      EXPECT_EQ(calls_of(name, fused, {x_}), 0);
    }
  }
}

TEST_F(FusedModel, NaNInTheInputGivesTheModelsOutputs) {
  for (const Activation& activation : std::vector<Activation>{
           [](const auto& x) { return x.relu(); },
           [](const auto& x) { return torch::relu6(x); },
           [](const auto& x) { return torch::hardtanh(x); },
           [](const auto& x) { return torch::hardsigmoid(x); },
           [](const auto& x) { return torch::silu(x); }}) {
    Model model = std::make_shared<Net>([&](Net& net, const torch::Tensor& x) {
      return activation(net.normed(x) + x);
    });
    Model fused = fused_model(model);
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(),
          std::numeric_limits<float>::infinity()}) {
      torch::Tensor damaged = x_.clone();
      damaged[1][2][3][4] = value;
      // Also in the first batch, after which other batches are fused.
      EXPECT_TRUE(torch::allclose(
          fused.forward({damaged})[0],
          model.forward({damaged})[0],
          1e-4,
          1e-5,
          /*equal_nan=*/true));
      fused.forward({x_});
      EXPECT_EQ(calls_of(kFused, fused, {x_}), 1);
      EXPECT_EQ(calls_of("aten::relu", fused, {x_}), 0);
    }
  }
}

// ReLU is fused unless its input may be NaN, which oneDNN would replace by 0.
TEST_F(FusedModel, NaNOfAnOperatorReachesTheOutputs) {
  struct Case {
    Net::Forward forward;
    bool is_fused;
  };
  const auto relu = [](Net& net, const torch::Tensor& x) {
    return net.normed(x).relu();
  };
  const torch::Tensor infinite = torch::zeros({4, 1, 1});
  infinite[1] = std::numeric_limits<float>::infinity();
  const torch::Tensor two = torch::full({4, 1, 1}, 2.0);
  for (const Case& c : std::vector<Case>{
           {[&](Net& net, const torch::Tensor& x) {
              return relu(net, x / x.abs().sum({1, 2, 3}, true));
            },
            false},
           {[&](Net& net, const torch::Tensor& x) {
              return relu(net, x.log().view_as(x));
            },
            false},
           {[&](Net& net, const torch::Tensor& x) {
              return (net.normed(x) + x.sqrt()).relu();
            },
            false},
           {[&](Net& net, const torch::Tensor& x) {
              const torch::Tensor y = x * 2;
              y.narrow(1, 0, 2).div_(x.abs().sum({1, 2, 3}, true));
              return relu(net, y);
            },
            false},
           {[&](Net& net, const torch::Tensor& x) {
              const torch::Tensor y = x * 2;
              y.narrow(1, 0, 2).add_(x.log().narrow(1, 0, 2));
              return relu(net, y);
            },
            false},
           {[&](Net& net, const torch::Tensor& x) {
              return relu(net, x + infinite);
            },
            false},
           {[&](Net& net, const torch::Tensor& x) {
              return relu(net, x / 3 + x / two);
            },
            true},
           {[&](Net& net, const torch::Tensor& x) {
              return relu(net, relu(net, x).softmax(1)).log();
            },
            true}}) {
    Model model = std::make_shared<Net>(c.forward);
    Model fused = fused_model(model);
    const torch::Tensor usual = x_.abs() + 1;
    fused.forward({usual});
    torch::Tensor unusual = usual.clone();
    unusual[2].zero_();
    unusual[3][1][4][4] = -1;
    EXPECT_TRUE(torch::allclose(
        fused.forward({unusual})[0],
        model.forward({unusual})[0],
        1e-4,
        1e-5,
        /*equal_nan=*/true));
    EXPECT_GE(calls_of(kFused, fused, {usual}), 1);
    EXPECT_EQ(calls_of("aten::relu", fused, {usual}), c.is_fused ? 0 : 1);
  }
}

TEST_F(FusedModel, NaNOfAnOperatorDoesNotSpread) {
  Model model = std::make_shared<Net>(
      [](Net& net, const torch::Tensor& x) { return net.normed(x.log()); },
      16);
  Model fused = fused_model(model);
  torch::Tensor x = torch::rand({5, 16, 16, 15}) + 1;
  fused.forward({x});
  x[1][2][9][4] = -1;
  EXPECT_EQ(calls_of(kFused, fused, {x}), 1);
  EXPECT_TRUE(
      fused.forward({x})[0].isnan().equal(model.forward({x})[0].isnan()));
}

TEST_F(FusedModel, NaNThatIsWrittenThroughAViewDoesNotSpread) {
  Model model = std::make_shared<Net>(
      [](Net& net, const torch::Tensor& x) {
        const torch::Tensor y = x * 2;
        y.narrow(1, 0, 2).log_();
        return net.normed(y);
      },
      16);
  Model fused = fused_model(model);
  torch::Tensor x = torch::rand({5, 16, 16, 15}) + 1;
  fused.forward({x});
  x[1][1][9][4] = -1;
  EXPECT_TRUE(
      fused.forward({x})[0].isnan().equal(model.forward({x})[0].isnan()));
}

TEST_F(FusedModel, AnInfiniteFirstBatchDoesNotPreventFusion) {
  Model model = std::make_shared<Net>(
      [](Net& net, const torch::Tensor& x) { return net.normed(x).relu(); });
  Model fused = fused_model(model);
  torch::Tensor damaged = x_.clone();
  damaged[1][2][3][4] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(torch::allclose(
      fused.forward({damaged})[0],
      model.forward({damaged})[0],
      1e-4,
      1e-5,
      /*equal_nan=*/true));
  fused.forward({x_});
  EXPECT_EQ(calls_of(kFused, fused, {x_}), 1);
  EXPECT_EQ(calls_of("aten::relu", fused, {x_}), 0);
}

TEST_F(FusedModel, FusesLayersAfterAProductWithTheBatchSize) {
  Model model = std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
    return net.normed(x * static_cast<double>(x.size(0))).relu();
  });
  Model fused = fused_model(model);
  fused.forward({x_});
  EXPECT_EQ(calls_of(kFused, fused, {x_}), 1);
  EXPECT_EQ(calls_of("aten::relu", fused, {x_}), 0);
}

/// Attention over four channels with an additive mask.
struct MaskedNet : torch::nn::Module {
  MaskedNet() {
    torch::manual_seed(7);
    eval();
  }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const torch::Tensor y = conv(x).relu().flatten(2);
    return (y.matmul(y.transpose(1, 2)) + mask).softmax(2).matmul(y);
  }
  torch::nn::Conv2d conv = register_module(
      "conv",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1)));
};

TEST_F(FusedModel, AMaskMayBeInfinite) {
  Model model = std::make_shared<MaskedNet>();
  Model fused = fused_model(model);
  torch::Tensor mask = torch::zeros({5, 4, 4});
  mask.select(2, 3).fill_(-std::numeric_limits<float>::infinity());
  fused.forward({x_, mask});
  EXPECT_EQ(calls_of(kFused, fused, {x_, mask}), 1);
  EXPECT_EQ(calls_of("aten::relu", fused, {x_, mask}), 0);
  EXPECT_TRUE(torch::allclose(
      fused.forward({x_, mask})[0],
      model.forward({x_, mask})[0],
      1e-4,
      1e-5));
  // The image was finite.
  torch::Tensor damaged = x_.clone();
  damaged[0][0][0][0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(calls_of(kFused, fused, {damaged, mask}), 0);
  EXPECT_EQ(calls_of(kFused, fused, {x_, torch::zeros({5, 4, 4})}), 1);
}

TEST_F(FusedModel, NaNBeforeALinearLayerReachesTheOutputs) {
  const torch::nn::Functional log(
      [](const torch::Tensor& x) { return x.log(); });
  const torch::nn::Functional relu(
      [](const torch::Tensor& x) { return x.relu(); });
  Model model = torch::nn::Sequential(log, torch::nn::Linear(6, 9), relu);
  Model fused = fused_model(model);
  const torch::Tensor usual = x_.abs() + 1;
  fused.forward({usual});
  EXPECT_EQ(calls_of("mkldnn::_linear_pointwise", fused, {usual}), 1);
  EXPECT_EQ(calls_of("aten::relu", fused, {usual}), 1);
  EXPECT_EQ(fused.forward({-usual})[0].isnan().all().item<bool>(), true);
}

// If the view kept its old values, the graph would be rejected for its outputs.
TEST_F(FusedModel, AnActivationInPlaceChangesViewsOfItsInput) {
  Model fused =
      fused_model(std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
        torch::Tensor y = net.normed(x) * 9;
        const torch::Tensor view = y.narrow(1, 0, 2);
        torch::relu6_(y);
        return view.sum({1, 2, 3}) + y.mean({1, 2, 3});
      }));
  fused.forward({x_});
  EXPECT_EQ(calls_of(kFused, fused, {x_}), 1);
}

// Folding would use the running statistics, which differ from the batch's.
TEST_F(FusedModel, ABatchNormWithBatchStatisticsIsNotFolded) {
  expect_same([](Net& net, const torch::Tensor& x) {
    const torch::Tensor y = net.conv(x);
    return torch::batch_norm(
        y,
        net.norm->weight,
        net.norm->bias,
        net.norm->running_mean.clone(),
        net.norm->running_var.clone(),
        /*training=*/true,
        /*momentum=*/0,
        /*eps=*/1e-5,
        /*cudnn_enabled=*/false);
  });
}

TEST_F(FusedModel, FusesAnAdditionIfTheOtherOperandIsNotReadLater) {
  expect_same([](Net& net, const torch::Tensor& x) {
    const torch::Tensor y = net.normed(x).relu();
    return (net.normed(y) + y).relu();
  });
  expect_same([](Net& net, const torch::Tensor& x) {
    const torch::Tensor y = net.normed(x);
    return (net.normed(y).add_(y)).relu_() + y;  // y is read again
  });
  expect_same([](Net& net, const torch::Tensor& x) {
    return (x + net.normed(x)).sigmoid();  // x belongs to the caller
  });
  expect_same([](Net& net, const torch::Tensor& x) {
    const torch::Tensor part = net.normed(x);
    const torch::Tensor view = part.slice(1, 0, 2);
    return (net.normed(part) + part).relu() + view.sum();
  });
  expect_same([](Net& net, const torch::Tensor& x) {
    return torch::add(net.normed(x), x, 0.5);  // not a plain sum
  });
  expect_same([](Net& net, const torch::Tensor& x) {
    return net.normed(x) + x.mean({2, 3}, true);  // of a different size
  });
}

TEST_F(FusedModel, FusesActivationsIntoALinearLayer) {
  const torch::Tensor pixels = torch::randn({5, 3, 12});
  const torch::Tensor rows = torch::randn({5, 12});
  for (const Activation& activation : std::vector<Activation>{
           [](const auto& x) { return x; },
           [](const auto& x) { return x.relu(); },
           [](const auto& x) { return torch::gelu(x); },
           [](const auto& x) { return torch::gelu(x, "tanh"); },
           [](const auto& x) { return torch::hardtanh(x, -0.2, 0.3); }}) {
    Model model = torch::nn::Sequential(
        torch::nn::Linear(12, 7),
        torch::nn::Functional(activation));
    model.eval();
    for (const torch::Tensor& x : {pixels, rows}) {
      Model fused = fused_model(model);
      for (const int64_t size : {1, 5, 2}) {
        const Tensors batch = {x.narrow(0, 0, size)};
        EXPECT_TRUE(torch::allclose(
            fused.forward(batch)[0],
            model.forward(batch)[0],
            1e-5,
            1e-6));
        EXPECT_EQ(calls_of("mkldnn::_linear_pointwise", fused, batch), 1);
        for (const char* name :
             {"aten::relu", "aten::gelu", "aten::hardtanh", "aten::add_"}) {
          EXPECT_EQ(calls_of(name, fused, batch), 0) << name;
        }
      }
    }
  }
}

// Wrong fusion would change the output, and then nothing would be fused.
TEST_F(FusedModel, AProductThatIsNotALinearLayerIsNotFused) {
  const auto product = [](Net& net, const torch::Tensor& x, int64_t size) {
    return torch::addmm(
        torch::ones({size}),
        net.normed(x).flatten(2).mean(2),
        net.conv->weight.flatten(1).narrow(1, 0, 6),
        size == 6 ? 0.5 : 1);
  };
  for (const int64_t size : {1, 6}) {  // of the added tensor
    Model model = std::make_shared<Net>([&](Net& net, const torch::Tensor& x) {
      return product(net, x, size);
    });
    Model fused = fused_model(model);
    EXPECT_TRUE(torch::allclose(
        fused.forward({x_})[0],
        model.forward({x_})[0],
        1e-4,
        1e-5));
    EXPECT_EQ(calls_of("aten::addmm", fused, {x_}), 1) << size;
    EXPECT_EQ(calls_of(kFused, fused, {x_}), 1) << size;
  }
}

TEST_F(FusedModel, UsesWinogradsConvolutionIfItIsFaster) {
  if (cpu_isa() != CpuIsa::avx2 && cpu_isa() != CpuIsa::avx512) {
    GTEST_SKIP() << "winograd_conv2d is only used on x86 with AVX2";
  }
  const torch::Tensor x = torch::randn({5, 16, 16, 15});
  for (const Net::Forward& forward : std::vector<Net::Forward>{
           [](Net& net, const torch::Tensor& x) { return net.normed(x); },
           [](Net& net, const torch::Tensor& x) {
             return (net.normed(x) + x).relu();
           },
           [](Net& net, const torch::Tensor& x) {
             return net.normed(x).add_(x.relu());
           },
           [](Net& net, const torch::Tensor& x) {
             const torch::Tensor y = net.normed(x).relu();
             return torch::silu(net.normed(y) + y);
           }}) {
    Model model = std::make_shared<Net>(forward, 16);
    Model fused = fused_model(model);
    for (const int64_t size : {1, 5, 2}) {
      const Tensors batch = {x.narrow(0, 0, size)};
      const torch::Tensor output = fused.forward(batch)[0];
      EXPECT_GE(calls_of(kWinograd, fused, batch), 1);
      EXPECT_EQ(
          calls_of("aten::add", fused, batch) +
              calls_of("aten::add_", fused, batch),
          0);
      const torch::Tensor expected = model.forward(batch)[0];
      EXPECT_LE(
          (output - expected).abs().max().item<float>(),
          2e-5 * expected.abs().max().item<float>());
    }
  }
}

/// A block of MobileNetV3, followed by a function of its last layer, that
/// layer's input and the block's input.
struct MobileBlock : torch::nn::Module {
  using Last = std::function<torch::Tensor(
      MobileBlock&,
      const torch::Tensor& hidden,
      const torch::Tensor& gate,
      const torch::Tensor& x)>;

  explicit MobileBlock(Last last) : last_(std::move(last)) {
    torch::manual_seed(7);
    testing_support::stir(Model(
        torch::nn::Sequential(expand, depthwise, reduce, excite, project)));
    eval();
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor hidden = torch::hardswish(expand(x));
    hidden = torch::hardswish(depthwise(hidden));
    const torch::Tensor mean = hidden.mean({2, 3}, /*keepdim=*/true);
    const torch::Tensor gate = torch::hardsigmoid(excite(reduce(mean).relu()));
    return last_(*this, hidden, gate, x);
  }

  static torch::nn::Conv2d
  conv(int64_t channels, int64_t outputs, int64_t kernel, int64_t groups) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, outputs, kernel)
                                 .padding(kernel / 2)
                                 .groups(groups));
  }

  torch::nn::Conv2d expand = register_module("expand", conv(24, 72, 1, 1));
  torch::nn::Conv2d depthwise =
      register_module("depthwise", conv(72, 72, 5, 72));
  torch::nn::Conv2d reduce = register_module("reduce", conv(72, 20, 1, 1));
  torch::nn::Conv2d excite = register_module("excite", conv(20, 72, 1, 1));
  torch::nn::Conv2d project = register_module("project", conv(72, 24, 1, 1));

 private:
  Last last_;
};

TEST_F(FusedModel, UsesTernsConvolutionsForSmallLayers) {
  if (!has_fma()) GTEST_SKIP() << "they are only used on x86 with FMA";
  struct Case {
    MobileBlock::Last last;
    int products;  // not fused
  };
  const std::vector<Case> cases = {
      {[](auto& net, const auto& hidden, const auto& gate, const auto& x) {
         return net.project(hidden * gate) + x;
       },
       0},
      {[](auto& net, const auto& hidden, const auto& gate, const auto& x) {
         return torch::hardswish(net.project(gate * hidden) + x);
       },
       0},
      // The product is read twice.
      {[](auto& net, const auto& hidden, const auto& gate, const auto& x) {
         const torch::Tensor product = hidden * gate;
         return net.project(product) + x + product.mean();
       },
       1},
      // The product must not see later changes.
      {[](auto& net, const auto& hidden, const auto& gate, const auto& x) {
         const torch::Tensor product = hidden * gate;
         hidden.relu_();
         return net.project(product) + x + hidden.mean();
       },
       1},
      // Not a factor of each channel.
      {[](auto& net, const auto& hidden, const auto& gate, const auto& x) {
         return net.project(hidden * gate.mean()) + x;
       },
       1}};
  const torch::Tensor x = torch::randn({3, 24, 9, 14});
  for (const Case& c : cases) {
    Model model = std::make_shared<MobileBlock>(c.last);
    Model fused = fused_model(model);
    for (const int64_t size : {1, 3, 2}) {
      const Tensors batch = {x.narrow(0, 0, size)};
      const torch::Tensor expected = model.forward(batch)[0];
      for (int call = 0; call < 2; ++call) {
        EXPECT_TRUE(
            torch::allclose(fused.forward(batch)[0], expected, 1e-4, 1e-5));
      }
      EXPECT_EQ(calls_of("tern::pointwise_conv2d", fused, batch), 4);
      EXPECT_EQ(
          calls_of("tern::depthwise_conv2d", fused, batch),
          size == 1 ? 1 : 0);
      EXPECT_EQ(calls_of("aten::mul", fused, batch), c.products) << size;
      EXPECT_EQ(calls_of("tern::global_average_pool", fused, batch), 1);
    }
  }
}

// If it had taken a layer that it does not compute, the graph would be rejected
// for its outputs, and nothing would be fused.
TEST_F(FusedModel, UsesTheConvolutionThatComputesALayer) {
  if (!has_fma()) GTEST_SKIP() << "Tern's are only used on x86 with FMA";
  constexpr const char* kPointwise = "tern::pointwise_conv2d";
  constexpr const char* kDepthwise = "tern::depthwise_conv2d";
  using Options = torch::nn::Conv2dOptions;
  struct Case {
    Options options;
    const char* expected;
    Activation activation = [](const auto& x) { return x; };
  };
  const auto relu6 = [](const auto& x) { return torch::relu6(x); };
  const auto gelu = [](const auto& x) { return torch::gelu(x); };
  const auto depthwise = [](int64_t kernel) {
    return Options(32, 32, kernel).groups(32);
  };
  for (const Case& c : std::vector<Case>{
           {Options(32, 24, 1), kPointwise},
           {Options(32, 24, 1).bias(false), kPointwise, relu6},
           {Options(32, 24, 1).stride(2), kPointwise},
           {Options(32, 24, 1).stride({1, 3}), kPointwise, relu6},
           {Options(32, 24, 1).padding(1), kFused},
           {Options(32, 24, 1).groups(2), kFused},
           {Options(32, 24, 1), kFused, gelu},
           {Options(32, 24, 2).stride(2), kFused},
           {depthwise(3).padding({1, 0}), kDepthwise, relu6},
           {depthwise(5).stride({2, 1}).bias(false), kDepthwise},
           {depthwise(3).dilation(2), kFused},
           {depthwise(3), kFused, gelu},
           {depthwise(7), kFused},
           {Options(32, 64, 3).groups(32), kFused}}) {
    const torch::nn::Conv2d conv(c.options);
    Model model(
        torch::nn::Sequential(conv, torch::nn::Functional(c.activation)));
    Model fused = fused_model(model);
    const Tensors batch = {torch::randn({1, 32, 9, 11})};
    EXPECT_TRUE(torch::allclose(
        fused.forward(batch)[0],
        model.forward(batch)[0],
        1e-4,
        1e-5));
    for (const char* name : {kFused, kPointwise, kDepthwise}) {
      EXPECT_EQ(
          calls_of(name, fused, batch),
          std::string_view(name) == c.expected ? 1 : 0)
          << name << " of " << conv;
    }
    EXPECT_EQ(calls_of("aten::hardtanh", fused, batch), 0) << conv;
  }
}

TEST_F(FusedModel, OneNumberIsStrideOrPaddingOfBothSides) {
  struct Case {
    Numbers weight;
    int64_t stride, padding, groups;
    const char* expected;
  };
  for (const Case& c : std::vector<Case>{
           {{24, 32, 1, 1}, 2, 0, 1, "tern::pointwise_conv2d"},
           {{32, 1, 3, 3}, 1, 1, 32, "tern::depthwise_conv2d"},
           {{32, 32, 3, 3}, 1, 1, 1, kWinograd}}) {
    const torch::Tensor weight = torch::randn(c.weight);
    Model model = std::make_shared<Net>([&](Net&, const torch::Tensor& x) {
      return torch::conv2d(x, weight, {}, c.stride, c.padding, 1, c.groups);
    });
    Model fused = fused_model(model);
    const Tensors batch = {torch::randn({1, 32, 20, 20})};
    const torch::Tensor expected = model.forward(batch)[0];
    const torch::Tensor apart = fused.forward(batch)[0] - expected;
    EXPECT_LE(
        apart.abs().max().item<float>(),
        1e-4 * expected.abs().max().item<float>());
    if (has_fma()) {
      EXPECT_EQ(calls_of(c.expected, fused, batch), 1) << c.expected;
    }
  }
}

// A part of the batch that has one sample when the network is traced, and more
// later.
TEST_F(FusedModel, AGateMayBelongToPartOfTheBatch) {
  Model model = std::make_shared<MobileBlock>(
      [](auto& net, const auto& hidden, const auto& gate, const auto&) {
        const torch::Tensor half = hidden.chunk(2)[0];
        return net.project(half * gate.chunk(2)[0]).mean() +
               net.project(half * gate.narrow(0, 0, 1)).mean() + hidden;
      });
  Model fused = fused_model(model);
  for (const int64_t size : {2, 5, 3, 2}) {
    const Tensors batch = {torch::randn({size, 24, 9, 14})};
    const torch::Tensor expected = model.forward(batch)[0];
    for (int call = 0; call < 2; ++call) {  // the first may run the model
      EXPECT_TRUE(
          torch::allclose(fused.forward(batch)[0], expected, 1e-4, 1e-5))
          << size;
    }
    if (has_fma()) {
      EXPECT_EQ(calls_of("tern::pointwise_conv2d", fused, batch), 5) << size;
      EXPECT_EQ(calls_of("aten::mul", fused, batch), 0) << size;
    }
  }
}

TEST_F(FusedModel, ComputesMeansOfChannels) {
  struct Case {
    Activation mean;
    bool is_fused;
  };
  for (const Case& c : std::vector<Case>{
           {[](const auto& x) {
              return torch::adaptive_avg_pool2d(x, {1, 1});
            },
            true},
           {[](const auto& x) {
              return x.mean({2, 3}, true);
            },
            true},
           {[](const auto& x) {
              return x.mean({-1, -2}, true);
            },
            true},
           {[](const auto& x) {
              return x.mean({2, 3});
            },
            false},
           {[](const auto& x) { return x.mean({3}, true); }, false},
           {[](const auto& x) {
              return torch::adaptive_avg_pool2d(x, {2, 1});
            },
            false}}) {
    const auto forward = [&](Net& net, const torch::Tensor& x) {
      return c.mean(net.normed(x));
    };
    expect_same(forward);
    Model fused = fused_model(std::make_shared<Net>(forward));
    fused.forward({x_});
    EXPECT_EQ(
        calls_of("tern::global_average_pool", fused, {x_}),
        c.is_fused ? 1 : 0);
  }
}

// The small difference of large numbers is lost in Winograd's rounding error.
TEST_F(FusedModel, UsesOneDnnsConvolutionIfWinogradsRoundingErrorIsTooLarge) {
  Model model = std::make_shared<Net>(
      [](Net& net, const torch::Tensor& x) {
        return net.conv(x + 60) - net.conv(torch::full_like(x, 60));
      },
      16);
  Model fused = fused_model(model);
  const torch::Tensor x = torch::randn({1, 16, 16, 16});
  fused.forward({x});
  const OpCalls calls(kFused);
  fused.forward({x});
  EXPECT_GE(calls.count(), 1);
}

TEST_F(FusedModel, DoesNotChangeTheCallersTensors) {
  Model fused =
      fused_model(std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
        return (net.normed(x) + x).relu();
      }));
  const torch::Tensor before = x_.clone();
  fused.forward({x_});
  fused.forward({x_});
  EXPECT_TRUE(torch::equal(x_, before));
}

TEST_F(FusedModel, ADifferentSizeOrDtypeRunsTheModelItself) {
  Model model = std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
    return net.normed(x).relu().flatten(1);
  });
  Model fused = fused_model(model);
  fused.forward({x_});
  const OpCalls calls(kFused);
  const Tensors larger = {torch::randn({5, 4, 10, 6})};
  EXPECT_TRUE(torch::equal(fused.forward(larger)[0], model.forward(larger)[0]));
  EXPECT_EQ(calls.count(), 0);
  fused.forward({x_});
  EXPECT_EQ(calls.count(), 1);
}

TEST_F(FusedModel, ANetworkThatIsNotAFixedGraphRunsItself) {
  // Random values, and a dependence on the number of samples.
  for (const Net::Forward& forward : std::vector<Net::Forward>{
           [](Net& net, const torch::Tensor& x) {
             return net.normed(x) * torch::rand({1});
           },
           [](Net& net, const torch::Tensor& x) {
             return net.normed(x) / static_cast<double>(x.size(0) + 1);
           }}) {
    Model fused = fused_model(std::make_shared<Net>(forward));
    const torch::Tensor several = x_.narrow(0, 0, 4);
    fused.forward({several});
    const OpCalls calls(kFused);
    EXPECT_EQ(fused.forward({several})[0].sizes(), several.sizes());
    EXPECT_EQ(calls.count(), 0);
  }
}

TEST_F(FusedModel, ANetworkThatReadsValuesRunsItself) {
  Model model = std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
    const torch::Tensor y = net.normed(x);
    return x.min().item<double>() < 0 ? y - 1 : y;
  });
  Model fused = fused_model(model);
  for (const Tensors& batch : {Tensors{x_.abs()}, Tensors{x_}}) {
    EXPECT_TRUE(torch::equal(fused.forward(batch)[0], model.forward(batch)[0]));
  }
}

// The check of one sample uses the traced sample itself.
TEST_F(FusedModel, ANetworkWithValueDependentSizesRunsItself) {
  using Decides = std::function<bool(const torch::Tensor& is_below)>;
  for (const Decides& decides : std::vector<Decides>{
           [](const auto& x) { return x.nonzero().size(0) > 0; },
           [](const auto& x) { return x.masked_select(x).size(0) > 0; },
           [](const auto& x) { return x.index({x}).size(0) > 0; },
           [](const auto& x) { return !x.equal(torch::zeros_like(x)); },
           [](const auto& x) {
             return std::get<0>(torch::_unique(x)).size(0) > 1;
           },
           [](const auto& x) {
             return std::get<0>(torch::unique_consecutive(x)).size(0) > 1;
           },
           [](const auto& x) {
             return x.flatten().to(torch::kLong).bincount().size(0) > 1;
           },
           [](const auto& x) {
             const auto number = x.any().view({1}).to(torch::kLong);
             return x.flatten().tensor_split(number)[0].size(0) > 0;
           },
           [](const auto& x) {
             const auto lengths = x.any().view({1}).to(torch::kLong) + 1;
             const auto row = x.view({1, -1}).to(torch::kFloat);
             return std::get<0>(_pack_padded_sequence(row, lengths, true))
                        .size(0) > 1;
           }}) {
    Model model = std::make_shared<Net>([&](Net& net, const torch::Tensor& x) {
      return decides(x < 0) ? net.normed(x) - 1 : net.normed(x);
    });
    Model fused = fused_model(model);
    const torch::Tensor x = x_.narrow(0, 0, 1);
    for (const Tensors& batch : {Tensors{x.abs()}, Tensors{x}}) {
      EXPECT_TRUE(
          torch::equal(fused.forward(batch)[0], model.forward(batch)[0]));
    }
  }
}

TEST_F(FusedModel, AnIndexOfIntegersIsFused) {
  Model fused =
      fused_model(std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
        return net.normed(x).index({torch::indexing::Slice(), net.order});
      }));
  fused.forward({x_});
  const OpCalls calls(kFused);
  fused.forward({x_});
  EXPECT_EQ(calls.count(), 1);
}

TEST_F(FusedModel, InputsWithDifferentNumbersOfSamplesRunTheModelItself) {
  Model model = std::make_shared<Net>(
      [](Net& net, const torch::Tensor& x) { return net.normed(x); });
  Model fused = fused_model(model);
  EXPECT_EQ(fused.forward({x_.narrow(0, 0, 0)})[0].sizes()[0], 0);
  Model two = fused_model(std::make_shared<TwoInputs>());
  EXPECT_EQ(two.forward({x_, x_.narrow(0, 0, 1)})[0].sizes(), x_.sizes());
  for (const Model& each : {fused, two}) {  // and later batches are still fused
    const Tensors batch(each.module() == two.module() ? 2 : 1, x_);
    Model(each).forward(batch);
    const OpCalls calls(kFused);
    Model(each).forward(batch);
    EXPECT_EQ(calls.count(), 1);
  }
}

// For the first batch, the change in place has no effect.
TEST_F(FusedModel, AConvolutionReadsItsOriginalInput) {
  const std::vector<Net::Forward> forwards = {
      [](Net& net, const torch::Tensor& x) {
        torch::Tensor y = x * 2;
        const torch::Tensor z = net.normed(y);
        y.relu_();
        return z + y;
      },
      [](Net& net, const torch::Tensor& x) {
        torch::Tensor y = x * 2;
        const torch::Tensor z = net.normed(y);
        y.relu_();
        return z.relu();
      }};
  for (const Net::Forward& forward : forwards) {
    Model model = std::make_shared<Net>(forward);
    Model fused = fused_model(model);
    fused.forward({x_.abs()});
    const OpCalls calls(kFused);
    EXPECT_TRUE(torch::allclose(
        fused.forward({x_})[0],
        model.forward({x_})[0],
        1e-4,
        1e-5));
    EXPECT_EQ(calls.count(), 1);
  }
}

TEST_F(FusedModel, AnErrorComesFromTheModel) {
  Model fused = fused_model(std::make_shared<Net>(
      [](Net& net, const torch::Tensor& x) { return net.normed(x); }));
  EXPECT_THROW(fused.forward({torch::randn({2, 3, 8, 8})}), c10::Error);
  EXPECT_THROW(fused.forward({}), c10::Error);
  fused.forward({x_});  // the next batch is still fused
  const OpCalls calls(kFused);
  fused.forward({x_});
  EXPECT_EQ(calls.count(), 1);
}

// Otherwise random numbers that a training run draws meanwhile would repeat.
TEST_F(FusedModel, RandomNumbersOfOtherThreadsAreNotDrawnTwice) {
  int64_t drawn = 0;
  Model fused =
      fused_model(std::make_shared<Net>([&](Net& net, const torch::Tensor& x) {
        std::thread([] { torch::rand({1}); }).join();
        ++drawn;
        return net.normed(x);
      }));
  torch::manual_seed(3);
  fused.forward({x_});
  const torch::Tensor next = torch::rand({1});
  torch::manual_seed(3);
  for (int64_t i = 0; i < drawn; ++i) torch::rand({1});
  EXPECT_TRUE(torch::equal(next, torch::rand({1})));
  EXPECT_GT(drawn, 1);
}

// Otherwise an LSTM would write past the state of the batch with which it was
// traced.
TEST_F(FusedModel, ANumberThatDependsOnTheBatchSizeFollowsEachBatch) {
  std::vector<testing_support::BatchNet> nets =
      testing_support::nets_of_one_batch_size();
  for (const auto& more :
       {testing_support::nets_of_any_batch_size(),
        testing_support::nets_that_read_the_batch_size(),
        {testing_support::net_of_chunks()}}) {
    nets.insert(nets.end(), more.begin(), more.end());
  }
  const torch::Tensor x = torch::randn({64, 6, 8});
  for (const testing_support::BatchNet& net : nets) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
             {1, 2, 5, 64, 3, 64, 2},
             {64, 5, 2, 1, 64},
             {7, 2, 33, 7}}) {
      Model model = net.make();
      Model fused = fused_model(model);
      for (const int64_t size : sizes) {
        const Tensors batch = {x.narrow(0, 0, size)};
        const torch::Tensor output = fused.forward(batch)[0];
        const torch::Tensor expected = model.forward(batch)[0];
        ASSERT_EQ(output.sizes(), expected.sizes()) << net.name << " " << size;
        EXPECT_TRUE(torch::allclose(output, expected, 1e-4, 1e-5))
            << net.name << " " << size;
      }
    }
  }
}

TEST_F(FusedModel, ABatchOfADifferentSizeIsFusedIfItsGraphIsTheSame) {
  std::vector<testing_support::BatchNet> nets =
      testing_support::nets_of_any_batch_size();
  for (const auto& net : testing_support::nets_that_read_the_batch_size()) {
    const bool is_recurrent = net.place.find(" module ") != std::string::npos;
    if (!is_recurrent) nets.push_back(net);
  }
  for (const auto& net : nets) {
    Model fused = fused_model(net.make());
    const torch::Tensor x = torch::randn({64, 6, 8});
    for (const int64_t size : {64, 7}) {
      const Tensors batch = {x.narrow(0, 0, size)};
      fused.forward(batch);
      EXPECT_EQ(calls_of("mkldnn::_linear_pointwise", fused, batch), 1)
          << net.name << " " << size;
    }
  }
}

TEST_F(FusedModel, SamplesOfADifferentSizeRunTheModelItself) {
  const testing_support::BatchNet net{
      "length",
      [](auto& net, const torch::Tensor& x) {
        return net.fc(x - x.sum(1, true) / static_cast<double>(x.size(1)));
      }};
  Model model = net.make();
  Model fused = fused_model(model);
  for (const int64_t length : {6, 9, 4, 6}) {
    const Tensors batch = {torch::randn({3, length, 8})};
    EXPECT_TRUE(torch::allclose(
        fused.forward(batch)[0],
        model.forward(batch)[0],
        1e-4,
        1e-5));
  }
}

TEST_F(FusedModel, DrawsTheSameRandomNumbersAsTheModel) {
  Model model = std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
    return net.normed(x) * torch::rand({1});
  });
  Model fused = fused_model(model);
  const auto outputs_of = [&](Model& one) {
    torch::manual_seed(3);
    Tensors all;
    for (const int64_t size : {5, 1, 3, 5}) {
      all.push_back(one.forward({x_.narrow(0, 0, size)})[0]);
    }
    return all;
  };
  const Tensors expected = outputs_of(model), own = outputs_of(fused);
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(torch::equal(own[i], expected[i])) << i;
  }
}

TEST_F(FusedModel, CanBeCalledFromManyThreads) {
  Model model = std::make_shared<Net>([](Net& net, const torch::Tensor& x) {
    return (net.normed(net.normed(x).relu()) + x).relu();
  });
  const torch::Tensor expected = model.forward({x_})[0];
  Model fused = fused_model(model);
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::atomic<int> same = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const torch::NoGradGuard no_grad;
      for (int i = 0; i < 20; ++i) {
        const torch::Tensor output = Model(fused).forward({x_})[0];
        same += torch::allclose(output, expected, 1e-4, 1e-5) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 160);
}

}  // namespace
}  // namespace tern::fused_model_test
