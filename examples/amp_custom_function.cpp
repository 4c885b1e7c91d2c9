// %% [markdown]
// # Custom functions under autocast
//
// The `backward` of a `torch::autograd::Function` runs outside the autocast
// guard, so its operations are not cast. Therefore `forward` saves the autocast
// state and `backward` restores it. A function that must compute in fp32 casts
// its inputs with `CastInputs`.

// %%
#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/csrc/autograd/custom_function.h>

#include "options.h"

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const char* type_of(const Tensor& tensor) {
  return c10::toString(tensor.scalar_type());
}

// %% [markdown]
// ## Two functions
//
// The first function ignores autocast. The second saves and restores the
// autocast state.

// %%
// A matrix product that ignores autocast.
struct Forgetful : torch::autograd::Function<Forgetful> {
  static Tensor
  forward(AutogradContext* ctx, const Tensor& a, const Tensor& b) {
    ctx->save_for_backward({a, b});
    return a.mm(b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {grads[0].mm(saved[1].t()), saved[0].t().mm(grads[0])};
  }
};

// The same function with the two lines that autocast requires.
struct Remembering : torch::autograd::Function<Remembering> {
  static Tensor
  forward(AutogradContext* ctx, const Tensor& a, const Tensor& b) {
    tern::amp::save_autocast(ctx, a.device());
    ctx->save_for_backward({a, b});
    return a.mm(b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const tern::amp::BackwardGuard autocast(ctx, grads[0].device());
    const auto saved = ctx->get_saved_variables();
    fmt::print(
        "  in backward: the incoming gradient is {}, the saved inputs are {}\n",
        type_of(grads[0]),
        type_of(saved[0]));
    return {grads[0].mm(saved[1].t()), saved[0].t().mm(grads[0])};
  }
};

// %% [markdown]
// ## A function that must compute in fp32

// %%
// Computes in fp32 for inputs of any dtype, like a kernel that supports only
// fp32.
struct InFloat : torch::autograd::Function<InFloat> {
  static Tensor forward(AutogradContext* ctx, Tensor a, Tensor b) {
    const tern::amp::CastInputs cast(a.device(), torch::kFloat);
    a = cast(a);
    b = cast(b);
    tern::amp::save_autocast(ctx, a.device());
    ctx->save_for_backward({a, b});
    fmt::print("  in forward: the inputs are {}\n", type_of(a));
    return a.mm(b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const tern::amp::BackwardGuard autocast(ctx, grads[0].device());
    const auto saved = ctx->get_saved_variables();
    return {grads[0].mm(saved[1].t()), saved[0].t().mm(grads[0])};
  }
};

// Sums the output of F for a and b under autocast, and calls backward outside
// the guard. Returns the gradient of b.
template <class F>
Tensor run(const char* name, const Tensor& a, const Tensor& b, bool low_input) {
  fmt::print("{}:\n", name);
  const Tensor leaf = b.detach().requires_grad_();
  Tensor loss;
  {
    const tern::AutocastGuard autocast(a.device());
    // Under autocast a matrix product returns 16 bits, so this converts the
    // input.
    const Tensor input = low_input ? a.mm(torch::eye(4, a.options())) : a;
    const Tensor y = F::apply(input, leaf);
    fmt::print("  the output is {}\n", type_of(y));
    loss = y.to(torch::kFloat).sum();
  }
  loss.backward();
  fmt::print("  the gradient of the weight is {}\n", type_of(leaf.grad()));
  return leaf.grad();
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Runs custom autograd functions under autocast")
      .read(argc, argv);

  // %% [markdown]
  // ## Forward under autocast, backward outside

  // %%
  const torch::Device device = tern::DataBunch::default_device();
  torch::manual_seed(1);
  const Tensor a = torch::randn({3, 4}).to(device).requires_grad_();
  const Tensor b = torch::randn({4, 2}).to(device);
  const Tensor truth =
      a.detach().t().mm(torch::ones({3, 2}, a.options().requires_grad(false)));

  bool has_failed = false;
  try {
    run<Forgetful>("Without help", a, b, false);
  } catch (const std::exception& error) {
    has_failed = true;
    fmt::print("  backward fails: {}\n", tern::message_of(error));
  }
  const auto remembering =
      run<Remembering>("With save_autocast and BackwardGuard", a, b, false);
  const auto in_float =
      run<InFloat>("With CastInputs, a 16-bit input", a, b, true);

  // %% [markdown]
  // ## Gradients compared with fp32

  // %%
  const auto error_of = [&](const Tensor& gradient) {
    return ((gradient - truth).abs().max() / truth.abs().max()).item<double>();
  };
  fmt::print(
      "The gradients are off by {:.2g} and {:.2g}, relative to fp32.\n",
      error_of(remembering),
      error_of(in_float));
  const bool holds = has_failed && error_of(remembering) < 0.02 &&
                     error_of(in_float) < 0.02 &&
                     remembering.scalar_type() == torch::kFloat;
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
