#pragma once

#include <cmath>
#include <string>

#include <torch/types.h>

namespace tern::testing_support {

/// Pseudo-random numbers in -1..1, the same as in random_numbers.py.
inline torch::Tensor numbers(int64_t count) {
  const auto mixed = [](const torch::Tensor& x, int64_t shift, int64_t factor) {
    return ((x ^ x.bitwise_right_shift(shift)) * factor)
        .bitwise_and(0xFFFFFFFF);
  };
  torch::Tensor h = (torch::arange(1, count + 1, torch::kLong) * 2654435761)
                        .bitwise_and(0xFFFFFFFF);
  h = mixed(mixed(h, 15, 1103515245), 13, 1540483477);
  h = h ^ h.bitwise_right_shift(16);
  return h.to(torch::kDouble) / 2147483648.0 - 1;
}

/// Tensor number `index` of these numbers.
inline torch::Tensor some(c10::IntArrayRef shape, int64_t index) {
  static const torch::Tensor pool = numbers(1000003);
  const int64_t count = c10::multiply_integers(shape);
  const int64_t begin = index * 7919 % pool.numel();
  const int64_t repeats = (begin + count) / pool.numel() + 1;
  return (repeats == 1 ? pool : pool.repeat({repeats}))
      .narrow(0, begin, count)
      .clone()
      .reshape(shape);
}

/// Entry `index` of a state dict, as `fill` of random_numbers.py sets it.
inline torch::Tensor
weight(const std::string& name, c10::IntArrayRef shape, int64_t index) {
  const torch::Tensor values = some(shape, index);
  if (shape.size() > 1) {
    return values * std::sqrt(
                        6 * static_cast<double>(shape[0]) /
                        static_cast<double>(values.numel()));
  }
  const bool is_factor =
      name.ends_with("weight") || name.ends_with("running_var");
  return 0.3 * values + (is_factor ? 1 : 0);
}

}  // namespace tern::testing_support
