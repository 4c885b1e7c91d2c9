#include "tern/learner/export/onnx/interpreter/operation.h"

#include "tern/kernels/check.h"

namespace tern::onnx {

namespace {

void require_kind(const torch::Tensor& x, bool is_allowed, const char* kind) {
  TERN_CHECK_VALUE(
      is_allowed,
      "it takes {}; expected {}",
      torch::toString(x.scalar_type()),
      kind);
}

bool is_integer(const torch::Tensor& x) {
  return torch::isIntegralType(x.scalar_type(), /*includeBool=*/false);
}

}  // namespace

// ---- Inputs ----

bool Operation::has(size_t i) const {
  return i < inputs_.size() && inputs_[i].defined();
}

const torch::Tensor& Operation::input(size_t i) const {
  TERN_CHECK_VALUE(has(i), "it has no input {}; expected one", i);
  return inputs_[i];
}

const torch::Tensor& Operation::floats(size_t i) const {
  const torch::Tensor& x = input(i);
  require_kind(x, x.is_floating_point(), "floating-point numbers");
  return x;
}

const torch::Tensor& Operation::numbers(size_t i) const {
  const torch::Tensor& x = input(i);
  require_kind(x, x.is_floating_point() || is_integer(x), "numbers");
  return x;
}

const torch::Tensor& Operation::booleans(size_t i) const {
  const torch::Tensor& x = input(i);
  require_kind(x, x.scalar_type() == torch::kBool, "booleans");
  return x;
}

const torch::Tensor& Operation::places(size_t i) const {
  const torch::Tensor& x = input(i);
  const bool is_wide =
      x.scalar_type() == torch::kLong || x.scalar_type() == torch::kInt;
  require_kind(x, is_wide, "integers of 32 or 64 bits");
  return x;
}

Integers Operation::integers(size_t i) const {
  const torch::Tensor& x = input(i);
  require_kind(x, x.scalar_type() == torch::kLong, "integers of 64 bits");
  TERN_CHECK_VALUE(
      x.dim() <= 1,
      "its input {} has {} dimensions; expected one",
      i,
      x.dim());
  const torch::Tensor flat = x.contiguous().view({-1});
  const auto* const numbers = flat.const_data_ptr<int64_t>();
  return {numbers, numbers + flat.numel()};
}

void Operation::require_one_type() const {
  for (const torch::Tensor& x : inputs_) {
    TERN_CHECK_VALUE(
        x.scalar_type() == input(0).scalar_type(),
        "it takes {} and {}; expected operands of the same type",
        torch::toString(input(0).scalar_type()),
        torch::toString(x.scalar_type()));
  }
}

// ---- Attributes ----

int64_t Operation::integer(const char* name, int64_t usual) const {
  const auto symbol = c10::Symbol::attr(name);
  return node_.hasAttribute(symbol) ? node_.i(symbol) : usual;
}

double Operation::number(const char* name, double usual) const {
  const auto symbol = c10::Symbol::attr(name);
  const double exact = node_.hasAttribute(symbol) ? node_.f(symbol) : usual;
  return static_cast<double>(static_cast<float>(exact));
}

std::string Operation::text(const char* name, const char* usual) const {
  const auto symbol = c10::Symbol::attr(name);
  return node_.hasAttribute(symbol) ? node_.s(symbol) : usual;
}

std::vector<std::string> Operation::texts(const char* name) const {
  const auto symbol = c10::Symbol::attr(name);
  return node_.hasAttribute(symbol) ? node_.ss(symbol)
                                    : std::vector<std::string>();
}

Integers Operation::list(const char* name) const {
  const auto symbol = c10::Symbol::attr(name);
  return node_.hasAttribute(symbol) ? node_.is(symbol) : Integers();
}

torch::Tensor Operation::tensor(const char* name) const {
  const auto symbol = c10::Symbol::attr(name);
  return node_.hasAttribute(symbol) ? node_.t(symbol) : torch::zeros({1});
}

int64_t Operation::axis(int64_t usual) const {
  return from_front(integer("axis", usual), input().dim());
}

int64_t from_front(int64_t dimension, int64_t rank) {
  TERN_CHECK_VALUE(
      -rank <= dimension && dimension < rank,
      "its dimension is {}; expected one of {}",
      dimension,
      rank);
  return dimension < 0 ? dimension + rank : dimension;
}

}  // namespace tern::onnx
