// Compares a custom matrix product with save_autocast, BackwardGuard and
// CastInputs with Python's custom_fwd and custom_bwd.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "tern/learner/amp/autocast.h"
#include "tern/tests/parity/fixture.h"

namespace tern::custom_function_test {
namespace {

using nlohmann::json;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool is_autocast_on() {
  return amp::AutocastState(torch::kCPU).enabled;
}

/// \param cast  The dtype of cast_inputs, if any.
class Product : public torch::autograd::Function<Product> {
 public:
  static Tensor forward(
      AutogradContext* ctx,
      Tensor a,
      Tensor b,
      std::optional<torch::ScalarType> cast) {
    std::optional<amp::CastInputs> inputs;
    if (cast) {
      inputs.emplace(a.device(), *cast);
      a = (*inputs)(a);
      b = (*inputs)(b);
    }
    amp::save_autocast(ctx, a.device());
    seen["forward_input"] = test::name_of(a.scalar_type());
    seen["forward_autocast"] = is_autocast_on();
    ctx->save_for_backward({a, b});
    return a.mm(b);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const amp::BackwardGuard autocast(ctx, grads[0].device());
    seen["backward_input"] = test::name_of(grads[0].scalar_type());
    seen["backward_autocast"] = is_autocast_on();
    const auto saved = ctx->get_saved_variables();
    return {grads[0].mm(saved[1].t()), saved[0].t().mm(grads[0]), Tensor()};
  }

  static inline json seen;
};

const json& fixture() {
  static const json loaded = test::load_fixture("custom_function");
  return loaded;
}

struct Outcome {
  Tensor out, a_grad, b_grad;
};

Outcome run(const json& settings) {
  const auto input = [&](const char* name, int index) {
    const auto dtype = test::dtype_of(settings["inputs"][index]);
    return test::decode(fixture()[name]).to(dtype).requires_grad_();
  };
  const Tensor a = input("a", 0), b = input("b", 1);
  std::optional<torch::ScalarType> cast;
  if (settings["function"] != "plain") {
    cast = test::dtype_of(settings["function"]);
  }
  Tensor out;
  {
    std::optional<AutocastGuard> autocast;
    if (settings["autocast"] != "off") {
      autocast.emplace(torch::kCPU, test::dtype_of(settings["autocast"]));
    }
    out = Product::apply(a, b, cast);
  }
  out.sum().backward();  // outside autocast
  return {out, a.grad(), b.grad()};
}

TEST(CustomFunction, GivesPythonsOutputsAndGradients) {
  ASSERT_GE(fixture()["runs"].size(), 27);
  int errors = 0;
  for (const auto& of_python : fixture()["runs"]) {
    SCOPED_TRACE(
        of_python["function"].dump() + " autocast " +
        of_python["autocast"].dump() + " inputs " + of_python["inputs"].dump());
    if (of_python.contains("error")) {
      ++errors;
      EXPECT_THROW(run(of_python), c10::Error);
      continue;
    }
    const Outcome outcome = run(of_python);
    const auto expect = [&](const char* name, const Tensor& actual) {
      const Tensor expected = test::decode(of_python[name]);
      EXPECT_EQ(actual.scalar_type(), expected.scalar_type()) << name;
      if (!test::rounds_alike() && expected.element_size() == 2) return;
      EXPECT_TRUE(test::same(actual, expected)) << name;
    };
    expect("out", outcome.out);
    expect("a_grad", outcome.a_grad);
    expect("b_grad", outcome.b_grad);
  }
  EXPECT_GT(errors, 0);  // mixed dtypes fail without autocast
}

TEST(CustomFunction, SeesTheSameDtypesAndAutocastStateAsPython) {
  for (const auto& of_python : fixture()["runs"]) {
    if (of_python.contains("error")) continue;
    run(of_python);
    for (const auto& [name, value] : Product::seen.items()) {
      EXPECT_EQ(value, of_python.at(name))
          << name << " in " << of_python["function"] << " autocast "
          << of_python["autocast"];
    }
    EXPECT_EQ(Product::seen.size(), 4);
    EXPECT_FALSE(is_autocast_on());
  }
}

}  // namespace
}  // namespace tern::custom_function_test
