#include <new>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/support/memory.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::out_of_memory_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

// Allocates more than any machine has if `is_hungry`.
struct HungryImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (is_hungry) torch::empty({int64_t{1} << 50});
    return x;
  }
  bool is_hungry = true;
};
TORCH_MODULE(Hungry);

TEST(OutOfMemory, IsRecognizedByItsTypeAndByTheMessageOfTheCpuAllocator) {
  try {
    torch::empty({int64_t{1} << 50});
    FAIL() << "allocating a petabyte succeeded";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
  }
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(
      std::runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when ...")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("no such file")));
}

TEST(OutOfMemory, NamesSizesAndAdviceAndLeavesTheLearnerUsable) {
  Hungry hungry;
  auto net = point_net();
  net->push_back(hungry);
  Learner learn(point_data(), net, quiet());
  expect_error<c10::OutOfMemoryError>(
      [&] { learn.fit(1); },
      {"out of memory on cpu, in the forward pass of a batch of 32 samples",
       "samples ([32, 2] Float), fp32",
       "are free",
       "max_batch_size(learn)",
       "to_bf16()",
       "DefaultCPUAllocator"});
  expect_error<c10::OutOfMemoryError>(
      [&] { learn.validate(); },
      {"out of memory on cpu, in the forward pass of a batch of 32"});
  hungry->is_hungry = false;
  learn.fit(1);
  EXPECT_LT(learn.validate().loss, 0.7);
}

TEST(OutOfMemory, NamesThePartOfTheStepAndOmitsUselessAdvice) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_bf16();
  const auto fails = [] {
    throw c10::OutOfMemoryError(
        {"fails", __FILE__, __LINE__},
        "CUDA out of memory. Tried to allocate 2.00 GiB.");
  };
  const auto in_backward = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_backward_begin = [&](Learner&) { fails(); }});
  learn.add(in_backward);
  const auto text = error_of<c10::OutOfMemoryError>([&] { learn.fit(1); });
  EXPECT_NE(text.find("in the backward pass"), std::string::npos) << text;
  EXPECT_NE(text.find("Tried to allocate 2.00 GiB"), std::string::npos) << text;
  EXPECT_EQ(text.find("to_bf16()"), std::string::npos) << text;
  learn.remove(*in_backward);
  const auto in_loss = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_begin = [&](Learner& l) {
        l.state().batch_loss =
            Loss([&](const Tensors&, const Tensors&) -> torch::Tensor {
              fails();
              return {};
            });
      }});
  learn.add(in_loss);
  expect_error<c10::OutOfMemoryError>([&] { learn.fit(1); }, {"in the loss"});
  expect_error<c10::OutOfMemoryError>(
      [&] { learn.validate(); },
      {"in the loss"});
  learn.remove(*in_loss);
  learn.add<LambdaCallback>({.on_step = [&](Learner&) { fails(); }});
  expect_error<c10::OutOfMemoryError>(
      [&] { learn.fit(1); },
      {"in the optimizer's step"});
}

TEST(AvailableMemory, IsPlausible) {
  const int64_t before = available_memory(torch::kCPU);
  EXPECT_GT(before, int64_t{64} << 20);
  EXPECT_LT(before, int64_t{1} << 46);
  give_back_unused_memory(torch::kCPU);
}

}  // namespace
}  // namespace tern::out_of_memory_test
