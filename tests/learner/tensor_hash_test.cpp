#include "tern/learner/tensor_hash.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::tensor_hash_test {
namespace {

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return tensor_hash(a).equal(tensor_hash(b));
}

TEST(TensorHash, IsEqualForEqualBitsWhateverTheStrides) {
  for (const auto type :
       {torch::kFloat,
        torch::kDouble,
        torch::kHalf,
        torch::kBFloat16,
        torch::kLong,
        torch::kByte,
        torch::kBool,
        torch::kComplexFloat}) {
    const torch::Tensor t =
        torch::arange(24).remainder(7).to(type).view({4, 6});
    EXPECT_TRUE(same(t, t.clone())) << type;
    EXPECT_TRUE(same(t, t.t().contiguous().t())) << type;
    EXPECT_EQ(tensor_hash(t).sizes(), torch::IntArrayRef({3})) << type;
  }
}

// The XOR of an even number of equal elements is 0, whatever their value.
TEST(TensorHash, DetectsDifferentConstantsSignsAndASingleBit) {
  const torch::Tensor t = torch::randn({64}, at::detail::createCPUGenerator(1));
  EXPECT_FALSE(same(torch::ones({64}), torch::full({64}, 0.5)));
  EXPECT_FALSE(same(torch::ones({64}), torch::zeros({64})));
  EXPECT_FALSE(same(t, -t));
  EXPECT_FALSE(same(t, t.roll(32)));
  torch::Tensor other = t.clone();
  torch::Tensor bits = other.view(torch::kInt)[40];
  bits.bitwise_xor_(1);
  EXPECT_FALSE(same(t, other));
}

TEST(TensorHash, SupportsEmptyTensorsAndScalars) {
  EXPECT_TRUE(same(torch::zeros({0, 3}), torch::zeros({0})));
  EXPECT_FALSE(same(torch::tensor(1.f), torch::tensor(2.f)));
}

}  // namespace
}  // namespace tern::tensor_hash_test
