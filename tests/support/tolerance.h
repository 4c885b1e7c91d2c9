#pragma once

#include <cstring>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::test {

/// |actual - expected| <= atol + rtol * |expected|
struct Tolerance {
  double rtol, atol;
};

/// Error of a few roundings in this dtype; torch.testing's numbers.
inline Tolerance tolerance(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kDouble:
      return {1e-7, 1e-7};
    case torch::kHalf:
      return {1e-3, 1e-5};
    case torch::kBFloat16:
      return {1.6e-2, 1e-5};
    default:
      return {1.3e-6, 1e-5};
  }
}

/// EXPECT_TRUE(all_close(actual, expected)). Equal NaNs and infinities count as
/// close. The dtype of `actual` determines the tolerance.
inline testing::AssertionResult all_close(
    const torch::Tensor& actual,
    const torch::Tensor& expected,
    Tolerance allowed) {
  if (actual.sizes() != expected.sizes()) {
    return testing::AssertionFailure()
           << "sizes " << actual.sizes() << ", expected " << expected.sizes();
  }
  const torch::Tensor a = actual.detach().cpu().to(torch::kDouble);
  const torch::Tensor e = expected.detach().cpu().to(torch::kDouble);
  const torch::Tensor close =
      torch::isclose(a, e, allowed.rtol, allowed.atol, /*equal_nan=*/true);
  if (close.all().item<bool>()) {
    return testing::AssertionSuccess();
  }
  const torch::Tensor wrong = close.flatten().logical_not().nonzero();
  const auto first = wrong[0][0].item<int64_t>();
  return testing::AssertionFailure()
         << wrong.size(0) << " of " << a.numel()
         << " elements differ, the first"
         << " at " << first << ": " << a.flatten()[first].item<double>()
         << ", expected " << e.flatten()[first].item<double>();
}

inline testing::AssertionResult all_close(
    const torch::Tensor& actual,
    const torch::Tensor& expected) {
  return all_close(actual, expected, tolerance(actual.scalar_type()));
}

/// EXPECT_TRUE(bit_equal(actual, expected)): compares dtype, sizes and every
/// bit, so NaNs match and -0 differs from 0.
inline testing::AssertionResult bit_equal(
    const torch::Tensor& actual,
    const torch::Tensor& expected) {
  if (actual.scalar_type() != expected.scalar_type() ||
      actual.sizes() != expected.sizes()) {
    return testing::AssertionFailure()
           << actual.sizes() << " " << actual.scalar_type() << ", expected "
           << expected.sizes() << " " << expected.scalar_type();
  }
  const torch::Tensor a = actual.detach().cpu().contiguous();
  const torch::Tensor e = expected.detach().cpu().contiguous();
  if (a.nbytes() == 0 ||
      std::memcmp(a.const_data_ptr(), e.const_data_ptr(), a.nbytes()) == 0) {
    return testing::AssertionSuccess();
  }
  const auto size = static_cast<int64_t>(a.element_size());
  const auto* a_bytes = static_cast<const char*>(a.const_data_ptr());
  const auto* e_bytes = static_cast<const char*>(e.const_data_ptr());
  int64_t i = 0;
  while (std::memcmp(a_bytes + i * size, e_bytes + i * size, size) == 0) {
    ++i;
  }
  return testing::AssertionFailure()
         << "element " << i << " is " << a.flatten()[i].item<double>()
         << ", expected the bits of " << e.flatten()[i].item<double>();
}

}  // namespace tern::test
