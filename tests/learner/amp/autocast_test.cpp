#include "tern/learner/amp/autocast.h"

#include <stdexcept>
#include <thread>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "tern/data/data_loader.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"

namespace tern::autocast_test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

torch::ScalarType type_of_product() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

// ---- The guard ----

TEST(AutocastGuard, ComputesProductsInSixteenBitsAndSumsInFloat) {
  const auto a = torch::ones({2, 2}), b = torch::ones({2, 2});
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  {
    const AutocastGuard guard(torch::kCPU);
    EXPECT_EQ(torch::mm(a, b).scalar_type(), torch::kBFloat16);
    EXPECT_EQ((a + b).scalar_type(), torch::kFloat);
    EXPECT_EQ((a.to(torch::kHalf) + b).scalar_type(), torch::kFloat);
    EXPECT_EQ(torch::mm(a.to(torch::kHalf), b).scalar_type(), torch::kBFloat16);
    EXPECT_EQ(
        torch::mm(a.to(torch::kDouble), b.to(torch::kDouble)).scalar_type(),
        torch::kDouble);
    {
      const AutocastGuard off(torch::kCPU, {}, /*enabled=*/false);
      EXPECT_EQ(type_of_product(), torch::kFloat);
    }
    EXPECT_EQ(type_of_product(), torch::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), torch::kFloat);
}

TEST(AutocastGuard, UsesPythonsDefaultDtypes) {
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), torch::kBFloat16);
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), torch::kHalf);
  const AutocastGuard half(torch::kCPU, torch::kHalf);
  EXPECT_EQ(type_of_product(), torch::kHalf);
}

TEST(AutocastGuard, RejectsDtypesThatLibTorchWouldAcceptSilently) {
  for (const auto dtype :
       {torch::kDouble, torch::kInt, torch::kFloat, torch::kBool}) {
    expect_error<c10::ValueError>(
        [&] { AutocastGuard guard(torch::kCPU, dtype); },
        {"kHalf or kBFloat16", c10::toString(dtype)});
    EXPECT_EQ(type_of_product(), torch::kFloat);
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), torch::kBFloat16);
  }
  expect_error<c10::ValueError>(
      [] { AutocastGuard guard(torch::kMeta); },
      {"meta", "CPU or CUDA"});
}

TEST(AutocastGuard, StaysOffForCudaOnAMachineWithoutIt) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "this machine has CUDA";
  const AutocastGuard guard(torch::kCUDA);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
  EXPECT_EQ(type_of_product(), torch::kFloat);
}

TEST(AutocastGuard, RestoresTheStateAfterAnException) {
  try {
    const AutocastGuard outer(torch::kCPU);
    const AutocastGuard inner(torch::kCPU, torch::kHalf, true, false);
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), torch::kBFloat16);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  at::autocast::increment_nesting();
  EXPECT_EQ(at::autocast::decrement_nesting(), 0);
}

// ---- The weight cache ----

TEST(AutocastCache, CastsAWeightOnceForSeveralUses) {
  const auto weight = torch::ones({2, 2}).requires_grad_();
  const auto casts_of_two_uses = [&](bool cache) {
    const AutocastGuard guard(torch::kCPU, {}, true, cache);
    const auto x = torch::ones({2, 2}, torch::kBFloat16);
    test::OpCalls casts("aten::_to_copy");
    torch::mm(x, weight);
    torch::mm(x, weight);
    return casts.count();
  };
  EXPECT_EQ(casts_of_two_uses(true), 1);
  EXPECT_EQ(casts_of_two_uses(false), 2);
}

TEST(AutocastCache, EndsWithTheOutermostGuard) {
  const auto weight = torch::ones({1, 1}).requires_grad_();
  const auto x = torch::ones({1, 1});
  const auto product = [&] {
    const AutocastGuard guard(torch::kCPU);
    return torch::mm(x, weight).item<float>();
  };
  EXPECT_EQ(product(), 1);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(2);
  }
  EXPECT_EQ(product(), 2);
}

// In Python, even a disabled outermost guard keeps the cached copies alive, so
// that a training loop inside it keeps computing with its first weights.
TEST(AutocastCache, IsClearedInsideADisabledOuterGuard) {
  const AutocastGuard off(torch::kCPU, {}, /*enabled=*/false);
  const auto weight = torch::ones({1, 1}).requires_grad_();
  for (const float value : {1.f, 2.f, 3.f}) {
    {
      const torch::NoGradGuard no_grad;
      weight.fill_(value);
    }
    const AutocastGuard guard(torch::kCPU);
    EXPECT_EQ(torch::mm(torch::ones({1, 1}), weight).item<float>(), value);
  }
}

TEST(AutocastCache, KeepsCopiesOfDifferentDtypesApartWhenGuardsNest) {
  const auto weight = torch::ones({2, 2}).requires_grad_();
  const auto x = torch::ones({2, 2});
  const AutocastGuard outer(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(torch::mm(x, weight).scalar_type(), torch::kBFloat16);
  {
    const AutocastGuard inner(torch::kCPU, torch::kHalf);
    EXPECT_EQ(torch::mm(x, weight).scalar_type(), torch::kHalf);
  }
  EXPECT_EQ(torch::mm(x, weight).scalar_type(), torch::kBFloat16);
}

TEST(AutocastCache, KeepsGradientsAfterANoGradForward) {
  if (TORCH_VERSION_MINOR < 11) {
    GTEST_SKIP() << "LibTorch 2.9 and 2.10 cache the copy without a gradient";
  }
  const auto weight = torch::ones({2, 2}).requires_grad_();
  torch::Tensor product;
  {
    const AutocastGuard guard(torch::kCPU);
    {
      const torch::NoGradGuard no_grad;
      torch::mm(torch::ones({2, 2}), weight);
    }
    product = torch::mm(torch::ones({2, 2}), weight);
  }
  product.sum().backward();
  ASSERT_TRUE(weight.grad().defined());
  EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
}

TEST(AutocastCache, IsNotClearedByWrappedWorkInAnotherThread) {
  const auto weight = torch::ones({2, 2}).requires_grad_();
  const auto x = torch::ones({2, 2}, torch::kBFloat16);
  const AutocastGuard guard(torch::kCPU);
  torch::mm(x, weight);
  std::thread(amp::wrap([&] { torch::mm(x, weight); })).join();
  test::OpCalls casts("aten::_to_copy");
  torch::mm(x, weight);
  EXPECT_EQ(casts.count(), 0);
}

// ---- Gradients and threads ----

TEST(AutocastGuard, GivesLeavesGradientsOfTheirOwnDtype) {
  for (const bool backward_inside : {false, true}) {
    const auto weight = torch::ones({2, 2}).requires_grad_();
    torch::Tensor loss;
    {
      const AutocastGuard guard(torch::kCPU);
      loss = torch::mm(torch::ones({2, 2}), weight).sum();
      if (backward_inside) loss.backward();
    }
    if (!backward_inside) loss.backward();
    EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
  }
}

TEST(AutocastGuard, ReachesAThreadOnlyThroughWrap) {
  torch::ScalarType plain{}, wrapped{}, after{};
  const AutocastGuard guard(torch::kCPU, torch::kHalf);
  std::thread([&] { plain = type_of_product(); }).join();
  std::thread([&, work = amp::wrap(type_of_product)]() mutable {
    wrapped = work();
    after = type_of_product();
  }).join();
  EXPECT_EQ(plain, torch::kFloat);
  EXPECT_EQ(wrapped, torch::kHalf);
  EXPECT_EQ(after, torch::kFloat);
}

// Records in its batches whether autocast was on when they were loaded.
class AutocastProbe final : public Dataset {
 public:
  int64_t size() const override { return 8; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
      const override {
    const auto x = torch::ones({static_cast<int64_t>(indices.size()), 2});
    return {
        {torch::mm(x, torch::ones({2, 2}))},
        {torch::full(
            {static_cast<int64_t>(indices.size())},
            at::autocast::is_autocast_enabled(at::kCPU))}};
  }
};

TEST(AutocastGuard, IsOffWhileBatchesAreLoaded) {
  for (const int64_t workers : {0, 2}) {
    const AutocastGuard guard(torch::kCPU);
    const DataLoader loader(
        std::make_shared<AutocastProbe>(),
        {.batch_size = 4, .workers = workers});
    auto epoch = loader.epoch(0);
    while (auto batch = epoch.next()) {
      EXPECT_EQ(batch->inputs[0].scalar_type(), torch::kFloat);
      EXPECT_FALSE(batch->targets[0].any().item<bool>());
    }
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
  }
}

// ---- Custom autograd functions ----

enum class Care { none, save, cast };

// a @ b; saves both for backward in the dtypes in which forward uses them.
template <Care care>
struct Product : torch::autograd::Function<Product<care>> {
  static torch::Tensor
  forward(AutogradContext* ctx, torch::Tensor a, torch::Tensor b) {
    std::optional<amp::CastInputs> cast;
    if constexpr (care == Care::cast) {
      cast.emplace(a.device(), torch::kFloat);
      a = (*cast)(a);
      b = (*cast)(b);
    }
    if constexpr (care != Care::none) amp::save_autocast(ctx, a.device());
    ctx->save_for_backward({a, b});
    ctx->saved_data["on"] = at::autocast::is_autocast_enabled(at::kCPU);
    return torch::mm(a, b);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    std::optional<amp::BackwardGuard> guard;
    if constexpr (care != Care::none) {
      guard.emplace(ctx, grads[0].device());
      EXPECT_EQ(
          at::autocast::is_autocast_enabled(at::kCPU),
          ctx->saved_data["on"].toBool());
    }
    return {
        torch::mm(grads[0], saved[1].t()),
        torch::mm(saved[0].t(), grads[0])};
  }
};

template <Care care>
torch::Tensor forward_in_guard(const torch::Tensor& a, const torch::Tensor& b) {
  const AutocastGuard guard(torch::kCPU);
  return Product<care>::apply(a, b);
}

struct Leaves {
  torch::Tensor a = torch::full({2, 2}, 2.f).requires_grad_();
  torch::Tensor b = torch::full({2, 2}, 3.f).requires_grad_();
};

TEST(CustomFunction, RunsBackwardInTheAutocastStateOfForward) {
  const Leaves leaves;
  const auto product = forward_in_guard<Care::save>(leaves.a, leaves.b);
  EXPECT_EQ(product.scalar_type(), torch::kBFloat16);
  product.sum().backward();
  EXPECT_EQ(leaves.a.grad().scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(leaves.a.grad(), torch::full({2, 2}, 6.f)));
  EXPECT_TRUE(torch::equal(leaves.b.grad(), torch::full({2, 2}, 4.f)));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(CustomFunction, RunsBackwardWithoutAutocastIfForwardDid) {
  const Leaves leaves;
  const auto product = Product<Care::save>::apply(leaves.a, leaves.b);
  const AutocastGuard guard(torch::kCPU);
  product.sum().backward();
  EXPECT_TRUE(torch::equal(leaves.a.grad(), torch::full({2, 2}, 6.f)));
}

TEST(CustomFunction, CastsInputsToFloatOnRequest) {
  const Leaves leaves;
  const auto a = leaves.a.detach().to(torch::kBFloat16).requires_grad_();
  const auto product = forward_in_guard<Care::cast>(a, leaves.b);
  EXPECT_EQ(product.scalar_type(), torch::kFloat);
  product.sum().backward();
  EXPECT_EQ(a.grad().scalar_type(), torch::kBFloat16);
  EXPECT_EQ(leaves.b.grad().scalar_type(), torch::kFloat);
}

TEST(CustomFunction, CastsNothingIfAutocastIsOff) {
  const amp::CastInputs cast(torch::kCPU, torch::kFloat);
  EXPECT_EQ(
      cast(torch::ones({1}, torch::kBFloat16)).scalar_type(),
      torch::kBFloat16);
}

TEST(CustomFunction, CastsOnlyFloatingPointTensorsOtherThanDouble) {
  const AutocastGuard guard(torch::kCPU);
  const amp::CastInputs cast(torch::kCPU, torch::kFloat);
  for (const auto dtype : {torch::kDouble, torch::kLong, torch::kFloat}) {
    EXPECT_EQ(cast(torch::ones({1}, dtype)).scalar_type(), dtype);
  }
  EXPECT_EQ(cast(torch::ones({1}, torch::kHalf)).scalar_type(), torch::kFloat);
  EXPECT_FALSE(cast(torch::Tensor()).defined());
  EXPECT_EQ(type_of_product(), torch::kFloat);
}

TEST(CustomFunction, NamesTheMissingHelperIfSaveAutocastWasNotCalled) {
  const Leaves leaves;
  const auto product = forward_in_guard<Care::none>(leaves.a, leaves.b);
  EXPECT_THROW(product.sum().backward(), c10::Error);

  AutogradContext ctx;
  expect_error<c10::Error>(
      [&] { amp::BackwardGuard guard(&ctx, torch::kCPU); },
      {"save_autocast(ctx, device) in forward"});
}

}  // namespace
}  // namespace tern::autocast_test
