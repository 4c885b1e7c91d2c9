#include "tern/tests/parity/fixture.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <torch/nn/functional/conv.h>
#include <torch/nn/functional/linear.h>

#include "tern/tests/support/tests_folder.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test {

namespace {

const std::map<std::string, torch::ScalarType> kDtypes = {
    {"float32", torch::kFloat},
    {"float64", torch::kDouble},
    {"float16", torch::kHalf},
    {"bfloat16", torch::kBFloat16}};

bool rounds_alike(const nlohmann::json& probe) {
  namespace F = torch::nn::functional;
  const auto kernel = decode(probe["kernel"]).requires_grad_();
  const auto weight = decode(probe["weight"]).requires_grad_();
  const auto scores =
      F::linear(F::conv2d(decode(probe["image"]), kernel).flatten(1), weight);
  scores.backward(torch::ones_like(scores));
  const auto is = [&](const torch::Tensor& actual, const char* name) {
    return static_cast<bool>(bit_equal(actual, decode(probe[name])));
  };
  return is(scores, "scores") && is(scores.norm(), "norm") &&
         is(kernel.grad(), "kernel_grad") && is(weight.grad(), "weight_grad") &&
         is(weight.add(weight.grad(), 0.3), "sum");
}

}  // namespace

nlohmann::json load_fixture(const std::string& name) {
  at::set_num_threads(1);
  const char* folder = std::getenv("TERN_PARITY");
  const std::string path =
      (folder ? folder : in_tests_folder("parity/fixtures")) / (name + ".json");
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return nlohmann::json::parse(file);
}

bool is_live() {
  return std::getenv("TERN_PARITY") != nullptr;
}

torch::Tensor decode(const nlohmann::json& tensor) {
  const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
  const auto digits = tensor.at("bytes").get<std::string>();
  auto decoded = torch::empty(shape, dtype_of(tensor.at("dtype")));
  if (digits.size() != 2 * decoded.nbytes()) {
    throw std::runtime_error("a tensor has bytes that do not fit its shape");
  }
  auto* bytes = static_cast<uint8_t*>(decoded.mutable_data_ptr());
  for (size_t i = 0; i < decoded.nbytes(); ++i) {
    bytes[i] = std::stoi(digits.substr(2 * i, 2), nullptr, 16);
  }
  return decoded;
}

torch::ScalarType dtype_of(const std::string& name) {
  return kDtypes.at(name);
}

std::string name_of(torch::ScalarType dtype) {
  for (const auto& [name, each] : kDtypes) {
    if (each == dtype) return name;
  }
  return c10::toString(dtype);
}

bool rounds_alike() {
  static const bool result = [] {
    const nlohmann::json fixture = load_fixture("arithmetic");
    for (const auto& probe : fixture.at("probes")) {
      if (!rounds_alike(probe)) return false;
    }
    return true;
  }();
  return result;
}

testing::AssertionResult same(
    const torch::Tensor& actual,
    const torch::Tensor& expected) {
  return rounds_alike() ? bit_equal(actual, expected)
                        : all_close(actual, expected, {1e-4, 1e-4});
}

}  // namespace tern::test
