// %% [markdown]
// # Indexing and operators
//
// Slices and operators of tensors in C++, and why a loop over slices is slow.
// Based on "Take advantage of the overloaded operators" in the tutorial
// Effective PyTorch.

// %%
#include <chrono>

#include <fmt/format.h>
#include <tern/tern.h>

#include "../options.h"

using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;

// Returns the mean time of 20 calls.
template <class F>
double microseconds(const F& function) {
  function();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) function();
  const std::chrono::duration<double, std::micro> time =
      std::chrono::steady_clock::now() - start;
  return time.count() / 20;
}

bool compare(const char* written, const Tensor& a, const Tensor& b) {
  const bool same = torch::equal(a, b);
  fmt::print("  {:58} {}\n", written, same ? "the same" : "DIFFERENT");
  return same;
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Slices, masks and operators of tensors")
      .read(argc, argv);

  // %% [markdown]
  // ## Indexing and the equivalent functions

  // %%
  torch::manual_seed(1);
  const Tensor x = torch::rand({500, 10}), y = torch::rand({500, 10}) + 0.1;
  bool holds = true;

  holds &= compare(
      "x.index({Slice(2, 5)}), narrow(0, 2, 3)",
      x.index({Slice(2, 5)}),
      x.narrow(0, 2, 3));
  holds &= compare(
      "x.index({Slice(), -1}), select(1, 9)",
      x.index({Slice(), -1}),
      x.select(1, 9));
  holds &= compare(
      "x.index({\"...\", Slice(None, None, 2)}), slice(1, 0, 10, 2)",
      x.index({"...", Slice(None, None, 2)}),
      x.slice(1, 0, 10, 2));
  holds &= compare("x[3][4], x.index({3, 4})", x[3][4], x.index({3, 4}));
  holds &= compare(
      "x.index({x > 0.5}), masked_select(x > 0.5)",
      x.index({x > 0.5}),
      x.masked_select(x > 0.5));
  Tensor clipped = x.clone();
  clipped.index_put_({clipped > 0.5}, 0.5);
  holds &= compare(
      "clipped.index_put_({clipped > 0.5}, 0.5), clamp_max(0.5)",
      clipped,
      x.clamp_max(0.5));

  // %% [markdown]
  // ## Operators and the equivalent functions
  //
  // C++ has no operators for Python's `x ** y` and `x @ y`: use `pow` and
  // `matmul`.

  // %%
  holds &= compare("-x, neg", -x, x.neg());
  holds &= compare("x + y, add", x + y, x.add(y));
  holds &= compare("x / y, div", x / y, x.div(y));
  holds &= compare("x % y, remainder", x % y, x.remainder(y));
  holds &= compare("x >= y, ge", x >= y, x.ge(y));
  holds &= compare(
      "(x > y) & ~(y > 0.5), logical_and, logical_not",
      (x > y) & ~(y > 0.5),
      (x > y).logical_and((y > 0.5).logical_not()));

  // %% [markdown]
  // ## Slices in a loop
  //
  // A slice is cheap in C++, and most of the time goes into the 500 small
  // additions. So `unbind()` gains less than the tutorial says for Python.

  // %%
  fmt::print("The sum of 500 rows:\n");
  Tensor by_index, by_unbind, by_sum;
  const double index_time = microseconds([&] {
    by_index = torch::zeros(10);
    for (int64_t i = 0; i < x.size(0); ++i) by_index += x[i];
  });
  const double unbind_time = microseconds([&] {
    by_unbind = torch::zeros(10);
    for (const Tensor& row : x.unbind()) by_unbind += row;
  });
  const double sum_time = microseconds([&] { by_sum = x.sum(0); });
  fmt::print(
      "  a loop over x[i]      {:>8.1f} us\n"
      "  a loop over unbind()  {:>8.1f} us, {:.1f} times as fast\n"
      "  x.sum(0)              {:>8.1f} us, {:.0f} times as fast\n",
      index_time,
      unbind_time,
      index_time / unbind_time,
      sum_time,
      index_time / sum_time);
  holds = holds && torch::allclose(by_index, by_sum, 1e-4) &&
          torch::equal(by_index, by_unbind) && sum_time < index_time;
  fmt::print(
      "{}\n",
      holds ? "All results agree, and one call beats 500." : "Results differ.");
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
