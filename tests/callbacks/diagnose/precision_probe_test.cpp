#include <cmath>
#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/types.h>

#include "tern/callbacks/diagnose/precision_audit.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/recorder.h"
#include "tern/tests/callbacks/diagnose/audited.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/precision_net.h"

namespace tern::precision_probe_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;
namespace nn = torch::nn;
using Names = std::vector<std::string>;

PrecisionAudit audit_of(const NetImpl::Fault& fault) {
  Learner learn(some_data(), net(fault)(), options_with());
  return audit_soundness(learn);
}

void expect_blamed(const char* fault, const NetImpl::Fault& between) {
  SCOPED_TRACE(fault);
  const PrecisionAudit audit = audit_of(between);
  SCOPED_TRACE(audit.to_string());
  EXPECT_EQ(audit.fp16.keep_fp32, Names{"first"});
  EXPECT_EQ(audit.modules[0].fp16.fault, fault);
  EXPECT_TRUE(audit.fp16.is_sound);
}

void expect_sound(const NetImpl::Fault& between) {
  const PrecisionAudit audit = audit_of(between);
  SCOPED_TRACE(audit.to_string());
  EXPECT_TRUE(audit.problems.empty());
  EXPECT_TRUE(audit.fp16.is_sound && audit.fp16.keep_fp32.empty());
}

Tensor overflowing(const Tensor& x) {
  return (x + 12).exp() * 1e-5;
}

DataBunch data_of(Tensor x, Tensor y) {
  const int64_t size = x.size(0);
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(Tensors{x}, Tensors{y}),
      nullptr,
      {.batch_size = size, .workers = 0});
  data.device = torch::kCPU;
  return data;
}

TEST(PrecisionProbe, AnEmbeddingReturns16BitValues) {
  struct Impl final : nn::Module {
    Impl() { torch::manual_seed(3); }
    Tensor forward(const Tensor& x) {
      return last->forward(overflowing(table->forward(x).mean(1)));
    }
    nn::Embedding table = register_module("table", nn::Embedding(9, kWidth));
    nn::Linear last = register_module("last", nn::Linear(kWidth, 2));
  };
  const Tensor x = torch::arange(64).reshape({16, 4}).remainder(9);
  Learner learn(
      data_of(x, torch::arange(16).remainder(2)),
      std::make_shared<Impl>(),
      options_with());
  EXPECT_EQ(audit_soundness(learn).fp16.keep_fp32, Names{"table"});
}

TEST(PrecisionProbe, AConversionAffectsOnlyItsResult) {
  expect_blamed("exp overflows", [](const Tensor& x) {
    const Tensor wide = x.to(torch::kFloat).tanh();
    return wide + overflowing(x);
  });
  expect_blamed("exp overflows", [](const Tensor& x) {
    return overflowing(x.to(x.device()));
  });
  expect_blamed("exp overflows", [](const Tensor& x) {
    return overflowing(x.to(torch::kFloat).to(x.options()));
  });
  expect_sound([](const Tensor& x) {
    const Tensor wide = x.to(torch::kFloat);
    return overflowing(wide) + wide.to(x);
  });
  // Also a conversion of a weight to the device it is already on.
  struct Impl final : nn::Module {
    Impl() { torch::manual_seed(3); }
    Tensor forward(const Tensor& x) {
      const Tensor weight = first->weight.to(x.device());
      return last->forward(overflowing(torch::linear(x, weight)));
    }
    nn::Linear first = register_module("first", nn::Linear(8, kWidth));
    nn::Linear last = register_module("last", nn::Linear(kWidth, 2));
  };
  Learner learn(some_data(), std::make_shared<Impl>(), options_with());
  EXPECT_EQ(audit_soundness(learn).fp16.keep_fp32, Names{"first"});
}

TEST(PrecisionProbe, UsesTheDtypesThatTheModelRequests) {
  const auto many = [](const Tensor& x) {
    return (x.abs() * 1000).repeat({1, 64});
  };
  expect_sound([=](const Tensor& x) {
    return x + many(x).sum(1, true, torch::kFloat) * 1e-6;
  });
  expect_blamed("sum overflows", [=](const Tensor& x) {
    return x + many(x).sum(1, true) * 1e-6;
  });
  expect_sound([=](const Tensor& x) {
    return torch::softmax(x, 1, torch::kFloat) * 1e5 * 1e-5 * x;
  });
  expect_sound([](const Tensor& x) {
    return x * torch::full({1, kWidth}, 1e5, torch::kFloat) * 1e-5;
  });
  expect_sound([](const Tensor& x) {
    return x * torch::arange(kWidth, torch::kFloat) * 1e5 * 1e-6;
  });
}

TEST(PrecisionProbe, PropagatesExceptionsOfTheModel) {
  int64_t calls = 0;
  const auto make = net([&](const Tensor& x) {
    if (++calls == 2) throw std::runtime_error("of the model");
    return x;
  });
  Learner learn(some_data(), make(), options_with());
  const Tensors before = parameters_of(learn);
  expect_error<std::runtime_error>(
      [&] { learn.audit_precision(); },
      {"of the model"});
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  EXPECT_TRUE(audit_soundness(learn).fp16.is_sound);
}

TEST(PrecisionProbe, NamesOperationsThatAreNotFiniteInFp32) {
  const auto problem_of = [](const NetImpl::Fault& fault) {
    const PrecisionAudit audit = audit_of(fault);
    EXPECT_EQ(audit.precision, Precision::fp32);
    return audit.problems.empty() ? "" : audit.problems[0];
  };
  const auto expected = "log in first is not finite, even in fp32";
  EXPECT_EQ(problem_of([](const Tensor& x) { return x.log(); }), expected);
  EXPECT_EQ(
      problem_of([](const Tensor& x) { return x.relu().log() * 2; }),
      expected);
  EXPECT_EQ(
      problem_of([](const Tensor& x) { return x.relu().sqrt(); }),
      "a gradient in first is not finite, even in fp32");
  expect_sound([](const Tensor& x) {
    const Tensor mask = torch::arange(kWidth) > 8;
    return x.masked_fill(mask, -INFINITY).softmax(1) + x;
  });
}

TEST(PrecisionProbe, CancellationIsAFaultOnlyIfItMatters) {
  expect_sound([](const Tensor& x) {
    const Tensor y = torch::layer_norm(x, {kWidth});
    return y - y.mean(1, true);
  });
  expect_sound([](const Tensor& x) {
    const Tensor y = torch::layer_norm(x, {kWidth});
    return y * (y.square().mean(1, true) - y.mean(1, true).square()).sqrt();
  });
  expect_blamed("sub is 100% wrong", [](const Tensor& x) {
    return ((x + 30000) - 30000).relu() * 2 - 1e-6;
  });
}

TEST(PrecisionProbe, SeesTheOperationsInsideACompositeOperation) {
  const PrecisionAudit audit = audit_of([](const Tensor& x) {
    const Tensor y = x * 1000, ones = torch::ones({x.size(0)}, torch::kLong);
    const Tensor far = torch::cosine_embedding_loss(
        y,
        y.roll(1, 0),
        ones,
        0,
        at::Reduction::None);
    return x * far.unsqueeze(1);
  });
  EXPECT_EQ(audit.fp16.keep_fp32, Names{"first"}) << audit.to_string();
}

// The scale of the block overflows, and `inner` is kept in fp32 with it.
struct BlockImpl final : nn::Module {
  BlockImpl() {
    register_parameter("scale", scale);
    register_buffer("shift", shift);
    register_module("inner", inner);
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = inner->forward(x * scale + shift);
    return (y + 12).exp() * 1e-5;
  }
  Tensor scale = torch::full({8}, 6e4), shift = torch::full({8}, 1e5);
  nn::Linear inner{8, kWidth};
};
TORCH_MODULE(Block);

TEST(PrecisionProbe, KeepsAllOfANamedModuleAsTrainingDoes) {
  struct Impl final : nn::Module {
    Impl() {
      torch::manual_seed(3);
      block = register_module("block", Block());
      last = register_module("last", nn::Linear(kWidth, 2));
      const torch::NoGradGuard no_grad;
      block->inner->weight.mul_(1e-5);
    }
    Tensor forward(const Tensor& x) { return last(block(x)); }
    Block block{nullptr};
    nn::Linear last{nullptr};
  };
  Learner learn(some_data(), std::make_shared<Impl>(), options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  SCOPED_TRACE(audit.to_string());
  EXPECT_TRUE(audit.fp16.is_sound);
  EXPECT_EQ(audit.fp16.keep_fp32[0], "block");
}

TEST(PrecisionProbe, AModuleCalledInputIsKeptWithTheInputs) {
  struct Impl final : nn::Module {
    Impl() { torch::manual_seed(3); }
    Tensor forward(const Tensor& x) {
      return last->forward(overflowing(input->forward(x)));
    }
    nn::Linear input = register_module("input", nn::Linear(8, kWidth));
    nn::Linear last = register_module("last", nn::Linear(kWidth, 2));
  };
  Learner learn(some_data(), std::make_shared<Impl>(), options_with());
  const PrecisionAudit audit = audit_soundness(learn);
  EXPECT_TRUE(audit.fp16.is_sound) << audit.to_string();
  EXPECT_EQ(audit.fp16.keep_fp32, Names{"input"});
  EXPECT_EQ(audit.modules.size(), 2);
  learn.to_fp16({.force_fp16 = true, .keep_fp32 = audit.fp16.keep_fp32});
  learn.fit(1);
  EXPECT_TRUE(std::isfinite(learn.recorder().losses().back()));
}

TEST(PrecisionProbe, RunsAtMostTenPasses) {
  // All of its layers lose all precision in 16 bits, one after the other.
  struct Impl final : nn::Module {
    Impl() { torch::manual_seed(3); }
    Tensor forward(Tensor x) {
      ++calls;
      for (nn::Linear& layer : layers) x = (layer->forward(x) + 4e5) - 4e5;
      return x;
    }
    int64_t calls = 0;
    std::vector<nn::Linear> layers = {
        register_module("a", nn::Linear(8, kWidth)),
        register_module("b", nn::Linear(kWidth, 2))};
  };
  const auto model = std::make_shared<Impl>();
  Learner learn(some_data(), model, options_with());
  EXPECT_EQ(audit_soundness(learn).precision, Precision::fp32);
  EXPECT_LE(model->calls, 10);
  EXPECT_GE(model->calls, 8);
}

TEST(PrecisionProbe, NeverRecommendsFp16OnACpu) {
  const PrecisionAudit audit =
      audit_of([](const Tensor& x) { return (x + 300) - 300; });
  SCOPED_TRACE(audit.to_string());
  EXPECT_TRUE(audit.fp16.keep_fp32.empty());
  EXPECT_EQ(audit.bf16.keep_fp32, Names{"first"});
  EXPECT_EQ(audit.precision, Precision::bf16);
}

TEST(PrecisionProbe, ReportsThatAStopWasRequested) {
  Learner learn(some_data(), net(overflowing)(), options_with());
  learn.request_stop();
  expect_error<c10::Error>(
      [&] { learn.audit_precision(); },
      {"a stop was requested"});
}

// Multiplies the inputs by the weights, which all have one value.
struct ProductImpl final : nn::Module {
  explicit ProductImpl(double size) {
    w = register_parameter("w", torch::full({2}, size));
  }
  Tensor forward(const Tensor& x) { return x * w; }
  Tensor w;
};

PrecisionAudit audit_of_product(double size, double lr) {
  const Tensor x = torch::tensor({1 + 0x1p-12, 0x1p-16, 0., 2.})
                       .to(torch::kFloat)
                       .reshape({2, 2});
  const Loss loss([](Tensor pred, Tensor) { return pred.sum() * -0x1p-10; });
  Learner learn(
      data_of(x, torch::zeros({2})),
      std::make_shared<ProductImpl>(size),
      options_with(loss, lr));
  return audit_soundness(learn);
}

TEST(PrecisionProbe, EqualsNumbersComputedByHand) {
  const PrecisionAudit audit = audit_of_product(1, 1e-2);
  SCOPED_TRACE(audit.to_string());
  ASSERT_EQ(audit.modules.size(), 1);
  const ModuleAudit& w = audit.modules[0];
  EXPECT_EQ(w.largest_output, 2);
  EXPECT_DOUBLE_EQ(w.largest_gradient, (2 + 0x1p-16) * 0x1p-10);
  EXPECT_EQ(audit.fp16.safe_scale_from, 0x1p-9);
  EXPECT_EQ(audit.fp16.safe_scale_to, 0x1p24);
  EXPECT_EQ(audit.fp16.loss_scale, 65536);
  const double a = 1 + 0x1p-12, b = 2 + 0x1p-16;
  for (const auto* in : {&w.fp16, &w.bf16}) {
    EXPECT_EQ(in->output.overflow, 0);
    EXPECT_NEAR(in->output.error, 0x1p-12 / std::hypot(a, 2), 1e-9);
    EXPECT_EQ(in->gradient.overflow, 0);
    EXPECT_EQ(in->gradient.tiny, 0);
    EXPECT_NEAR(
        in->gradient.error,
        std::hypot(0x1p-12, 0x1p-16) / std::hypot(a, b),
        1e-9);
    // Updates of 1e-5 and 2e-5 to a weight of 1.
    EXPECT_EQ(in->update_lost, 1);
    EXPECT_EQ(in->update.error, 1);
    EXPECT_EQ(in->update.overflow, 0);
  }
  EXPECT_NEAR(w.fp16.output.tiny, 1. / 3, 1e-9);
  EXPECT_EQ(w.bf16.output.tiny, 0);
  EXPECT_EQ(w.fp16.update.tiny, 1);
  EXPECT_EQ(w.bf16.update.tiny, 0);
}

TEST(PrecisionProbe, CountsUpdatesThatOverflow) {
  const PrecisionAudit audit = audit_of_product(32000, 4e7);
  SCOPED_TRACE(audit.to_string());
  EXPECT_EQ(audit.modules[0].fp16.update.overflow, 1);
  EXPECT_EQ(audit.modules[0].bf16.update.overflow, 0);
}

}  // namespace
}  // namespace tern::precision_probe_test
