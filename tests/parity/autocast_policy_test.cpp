// Compares the dtype that each operation returns under CPU autocast with
// Python's.

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/amp/autocast.h"
#include "tern/tests/parity/fixture.h"

namespace tern::autocast_policy_test {
namespace {

using M = const torch::Tensor&;  // [4, 4]

torch::Tensor one(M a) {
  return a.unsqueeze(0);
}
torch::Tensor two(M a) {
  return one(one(a));
}

// The same operations as in oracle/autocast_policy.py.
const std::map<std::string, std::function<torch::Tensor(M, M)>> kOperations = {
    {"mm", [](M a, M b) { return torch::mm(a, b); }},
    {"matmul", [](M a, M b) { return torch::matmul(a, b); }},
    {"linear", [](M a, M b) { return torch::linear(a, b); }},
    {"bmm", [](M a, M b) { return torch::bmm(one(a), one(b)); }},
    {"addmm", [](M a, M b) { return torch::addmm(a, a, b); }},
    {"conv1d", [](M a, M b) { return torch::conv1d(one(a), b.unsqueeze(2)); }},
    {"conv2d", [](M a, M b) { return torch::conv2d(two(a), two(b)); }},
    {"conv_transpose2d",
     [](M a, M b) { return torch::conv_transpose2d(two(a), two(b)); }},
    {"scaled_dot_product_attention",
     [](M a, M b) {
       return at::scaled_dot_product_attention(two(a), two(b), two(b));
     }},
    {"prelu", [](M a, M b) { return torch::prelu(a, b[0]); }},
    {"add", [](M a, M b) { return a + b; }},
    {"mul", [](M a, M b) { return a * b; }},
    {"add_", [](M a, M b) { return a.clone().add_(b); }},
    {"cat",
     [](M a, M b) {
       return torch::cat({a, b});
     }},
    {"stack",
     [](M a, M b) {
       return torch::stack({a, b});
     }},
    {"relu", [](M a, M) { return a.relu(); }},
    {"gelu", [](M a, M) { return at::gelu(a); }},
    {"tanh", [](M a, M) { return a.tanh(); }},
    {"sigmoid", [](M a, M) { return a.sigmoid(); }},
    {"max_pool2d", [](M a, M) { return torch::max_pool2d(two(a), 2); }},
    {"avg_pool2d", [](M a, M) { return at::avg_pool2d(two(a), 2); }},
    {"softmax", [](M a, M) { return a.softmax(1); }},
    {"log_softmax", [](M a, M) { return a.log_softmax(1); }},
    {"sum", [](M a, M) { return a.sum(); }},
    {"mean", [](M a, M) { return a.mean(); }},
    {"prod", [](M a, M) { return a.prod(); }},
    {"cumsum", [](M a, M) { return a.cumsum(0); }},
    {"exp", [](M a, M) { return a.exp(); }},
    {"log", [](M a, M) { return a.log(); }},
    {"pow", [](M a, M) { return a.pow(2); }},
    {"norm", [](M a, M) { return a.norm(); }},
    {"layer_norm", [](M a, M) { return torch::layer_norm(a, 4); }},
    {"group_norm", [](M a, M) { return torch::group_norm(one(a), 2); }},
    {"batch_norm",
     [](M a, M) {
       return torch::batch_norm(a, {}, {}, {}, {}, true, .1, 1e-5, true);
     }},
    {"mse_loss", [](M a, M b) { return torch::mse_loss(a, b); }},
    {"l1_loss", [](M a, M b) { return torch::l1_loss(a, b); }},
    {"smooth_l1_loss", [](M a, M b) { return torch::smooth_l1_loss(a, b); }},
    {"huber_loss", [](M a, M b) { return torch::huber_loss(a, b); }},
    {"kl_div", [](M a, M b) { return torch::kl_div(a, b); }},
    {"nll_loss", [](M a, M) { return torch::nll_loss(a, torch::arange(4)); }},
    {"cross_entropy",
     [](M a, M) { return torch::cross_entropy_loss(a, torch::arange(4)); }},
    {"binary_cross_entropy",
     [](M a, M b) { return torch::binary_cross_entropy(a, b); }},
    {"binary_cross_entropy_with_logits",
     [](M a, M b) { return torch::binary_cross_entropy_with_logits(a, b); }}};

// The result dtype for a pair of input dtypes such as "bfloat16 float32".
std::string output(const std::string& operation, const std::string& pair) {
  std::istringstream names(pair);
  std::string a, b;
  names >> a >> b;
  try {
    return test::name_of(kOperations
                             .at(operation)(
                                 torch::full({4, 4}, .5, test::dtype_of(a)),
                                 torch::full({4, 4}, .5, test::dtype_of(b)))
                             .scalar_type());
  } catch (const c10::Error&) {
    return "error";
  }
}

// The autocast mode: "off", "bfloat16" or "float16".
void expect_the_types_of_python(const std::string& autocast) {
  const auto fixture = test::load_fixture("autocast_policy");
  const auto& policy = fixture.at("policies").at(autocast);
  ASSERT_EQ(policy.size(), kOperations.size());
  std::optional<AutocastGuard> guard;
  if (autocast != "off") guard.emplace(torch::kCPU, test::dtype_of(autocast));
  for (const auto& [operation, outputs] : policy.items()) {
    ASSERT_GE(outputs.size(), 7);
    for (const auto& [pair, expected] : outputs.items()) {
      EXPECT_EQ(output(operation, pair), expected.get<std::string>())
          << operation << " " << pair;
    }
  }
}

TEST(AutocastPolicy, ReturnsPythonsDtypesInBFloat16) {
  expect_the_types_of_python("bfloat16");
}

TEST(AutocastPolicy, ReturnsPythonsDtypesInHalf) {
  expect_the_types_of_python("float16");
}

TEST(AutocastPolicy, ReturnsPythonsDtypesWhenOff) {
  expect_the_types_of_python("off");
}

}  // namespace
}  // namespace tern::autocast_policy_test
