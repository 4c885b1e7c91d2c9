// %% [markdown]
// # Numerical stability
//
// Formulas that are correct on paper but fail in fp32 or fp16, and stable
// formulas that do not. Values and gradients are compared with the stable
// formula in fp64. Based on "Numerical stability in PyTorch" in the tutorial
// Effective PyTorch.

// %%
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tern/tern.h>
#include <torch/csrc/autograd/autograd.h>

#include "../options.h"

using torch::Tensor;

// %% [markdown]
// ## Softmax and cross-entropy, naive and stable

// %%
Tensor naive_softmax(const Tensor& logits) {
  const Tensor exp = logits.exp();  // infinite above 88.7 in fp32, 11 in half
  return exp / exp.sum();
}

// Subtracting the largest logit does not change the result mathematically, and
// keeps every exp at most 1.
Tensor stable_softmax(const Tensor& logits) {
  const Tensor exp = (logits - logits.max()).exp();
  return exp / exp.sum();
}

// Both labels are 0.5. The log of a probability that rounds to 0 is -infinity,
// even if the softmax is stable.
Tensor naive_cross_entropy(const Tensor& logits) {
  return -0.5 * stable_softmax(logits).log().sum();
}

// Computes the log of the softmax directly, so that no probability can round to
// 0.
Tensor stable_cross_entropy(const Tensor& logits) {
  const Tensor shifted = logits - logits.max();
  return -0.5 * (shifted - shifted.logsumexp(0)).sum();
}

Tensor library_cross_entropy(const Tensor& logits) {
  return torch::cross_entropy_loss(logits, torch::full_like(logits, 0.5));
}

std::string text(const Tensor& tensor) {
  std::vector<std::string> words;
  for (const Tensor& element : tensor.detach().flatten().unbind()) {
    const auto value = element.item<double>();
    // The sign of a NaN has no meaning.
    words.push_back(std::isnan(value) ? "nan" : fmt::format("{:.4g}", value));
  }
  return fmt::format("[{}]", fmt::join(words, ", "));
}

using Function = Tensor (*)(const Tensor&);

// Prints the value of `f` in `dtype` and the gradient of its first element.
// Returns true if both agree with the results of `exact` in fp64, up to
// rounding.
bool show(
    const char* name,
    Function f,
    Function exact,
    const std::vector<double>& logits,
    torch::Dtype dtype) {
  const auto run = [&](Function function, torch::Dtype type) {
    const Tensor x = torch::tensor(logits).to(type).requires_grad_();
    const Tensor y = function(x);
    return std::pair(y, torch::autograd::grad({y.flatten()[0]}, {x})[0]);
  };
  const auto [value, gradient] = run(f, dtype);
  const auto [true_value, true_gradient] = run(exact, torch::kDouble);
  const auto close = [](const Tensor& a, const Tensor& b) {
    return torch::allclose(a.to(torch::kDouble), b, 1e-2, 1e-3);
  };
  const bool right = close(value, true_value) && close(gradient, true_gradient);
  fmt::print("  {:21} {:17} ", name, text(value));
  fmt::print("gradient {:16} {}\n", text(gradient), right ? "right" : "WRONG");
  return right;
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Softmax and cross-entropy, naive and stable")
      .read(argc, argv);

  // %% [markdown]
  // ## Underflow and overflow
  //
  // x * y / y equals x, unless y underflows to 0 or overflows to infinity in
  // fp32.

  // %%
  bool holds = true;
  for (const double y : {1e-50, 1e39}) {
    const Tensor stored = torch::tensor(y, torch::kDouble).to(torch::kFloat);
    const Tensor z = 1 * stored / stored;
    fmt::print("y = {:.0e} is {} in fp32, ", y, text(stored));
    fmt::print("and 1 * y / y is {}\n", text(z));
    holds = holds && z.isnan().item<bool>();
  }

  // %% [markdown]
  // ## Values and gradients in fp32 and half

  // %%
  struct Case {
    torch::Dtype dtype;
    std::vector<double> for_softmax, for_cross_entropy;
  };
  for (const Case& c :
       {Case{torch::kFloat, {100, 98}, {200, 0}},
        Case{torch::kHalf, {12, 10}, {20, 0}}}) {
    const char* type = c10::toString(c.dtype);
    fmt::print("\n{}, logits [{}]:\n", type, fmt::join(c.for_softmax, ", "));
    const auto softmax = [&](const char* name, Function f) {
      return show(name, f, stable_softmax, c.for_softmax, c.dtype);
    };
    holds &= !softmax("naive softmax", naive_softmax);
    holds &= softmax("stable softmax", stable_softmax);

    const std::vector<double>& logits = c.for_cross_entropy;
    fmt::print("{}, logits [{}], ", type, fmt::join(logits, ", "));
    fmt::print("labels [0.5, 0.5]:\n");
    const auto cross_entropy = [&](const char* name, Function f) {
      return show(name, f, stable_cross_entropy, logits, c.dtype);
    };
    holds &= !cross_entropy("naive cross-entropy", naive_cross_entropy);
    holds &= cross_entropy("stable cross-entropy", stable_cross_entropy);
    holds &= cross_entropy("cross_entropy_loss", library_cross_entropy);
  }
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
