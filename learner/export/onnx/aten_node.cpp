#include "tern/learner/export/onnx/aten_node.h"

#include <algorithm>

#include <ATen/native/TypeProperties.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>

namespace tern::onnx {

namespace {

// The default of `int[2] padding=0` is [0, 0], but calls from C++ pass [0].
bool is_default(
    const c10::IValue& value,
    const std::optional<c10::IValue>& usual) {
  if (!usual) return value == false;
  if (!value.isIntList() || !usual->isIntList()) return value == *usual;
  const Integers given = value.toIntVector(), all = usual->toIntVector();
  if (given.size() != 1 || all.empty()) return given == all;
  return std::ranges::all_of(all, [&](int64_t x) { return x == given[0]; });
}

std::optional<torch::Tensor> tensor_of(const Value* given) {
  const auto known = jit::toIValue(given);
  if (!known || !known->isTensor()) return std::nullopt;
  return known->toTensor();
}

// Returns the tensor that a view reshapes or repeats; null for other nodes.
const Value* source_of_view(const jit::Node& node) {
  const std::string name = node.kind().toQualString();
  const bool is_view = name == "aten::expand" || name == "aten::expand_as" ||
                       name == "aten::reshape" || name == "aten::view" ||
                       name == "aten::unsqueeze";
  return is_view ? node.input(0) : nullptr;
}

}  // namespace

bool AtenNode::has(std::string_view name) const {
  const auto i = find(name);
  return i && !node_.input(*i)->mustBeNone();
}

// ---- Tensors and numbers ----

Value* AtenNode::value(std::string_view name) {
  Value* const value = optional_value(name);
  if (!value)
    refuse(fmt::format("it has no {}; expected this argument. Pass it", name));
  return value;
}

// Writes a number directly in the requested type, which saves a Cast.
Value* AtenNode::value(std::string_view name, torch::ScalarType type) {
  const Value* const given = argument(name);
  const auto number = jit::toIValue(given);
  if (number && number->isScalar()) {
    read(name);
    return graph_.constant(torch::full({}, number->toScalar(), type));
  }
  return graph_.cast(value(name), this->type(name), type);
}

Term AtenNode::term(std::string_view name) {
  return {graph_, value(name), type(name)};
}

Term AtenNode::term(std::string_view name, torch::ScalarType type) {
  return {graph_, value(name, type), type};
}

Value* AtenNode::optional_value(std::string_view name) {
  const Value* const given = read(name);
  return given ? graph_.value(given) : nullptr;
}

Values AtenNode::values(std::string_view name) {
  return values(name, torch::ScalarType::Undefined);
}

Values AtenNode::values(std::string_view name, torch::ScalarType type) {
  const Value* const given = argument(name);
  read(name);
  const auto cast = [&](Value* value, torch::ScalarType from) {
    const bool stays = type == torch::ScalarType::Undefined;
    return stays ? value : graph_.cast(value, from, type);
  };
  Values values;
  if (const auto constants = jit::toIValue(given)) {
    for (const c10::IValue& x : constants->toListRef()) {
      if (x.isNone()) {
        values.push_back(nullptr);
      } else {
        const torch::Tensor tensor = x.toTensor();
        values.push_back(cast(graph_.constant(tensor), tensor.scalar_type()));
      }
    }
  } else {  // prim::ListConstruct
    for (const Value* x : given->node()->inputs()) {
      Value* const value = graph_.value(x);
      values.push_back(value ? cast(value, type_of(x)) : nullptr);
    }
  }
  return values;
}

// ---- Constants ----

c10::IValue AtenNode::constant(std::string_view name) {
  const Value* const given = read(name);
  if (!given)
    refuse(fmt::format("it has no {}; expected this argument. Pass it", name));
  if (const auto constant = jit::toIValue(given)) return *constant;
  refuse(fmt::format(
      "its argument {} is a result of the model; expected a constant, as ONNX "
      "requires. Write it as a number",
      name));
}

int64_t AtenNode::integer(std::string_view name) {
  return constant(name).toInt();
}

double AtenNode::number(std::string_view name) {
  return constant(name).toScalar().toDouble();
}

std::string AtenNode::string(std::string_view name) {
  return has(name) ? constant(name).toStringRef() : "";
}

std::optional<torch::Tensor> AtenNode::known_tensor(
    std::string_view name) const {
  return tensor_of(argument(name));
}

std::optional<torch::Tensor> AtenNode::known_rows(std::string_view name) const {
  const Value* given = argument(name);
  const int64_t length = sizes_of(given).back();
  while (const auto source = source_of_view(*given->node())) {
    if (sizes_of(source).empty() || sizes_of(source).back() != length) break;
    given = source;
  }
  return tensor_of(given);
}

bool AtenNode::flag(std::string_view name) {
  return has(name) && constant(name).toBool();
}

Integers AtenNode::integers(std::string_view name) {
  if (!has(name)) return {};
  const c10::IValue given = constant(name);
  return given.isInt() ? Integers{given.toInt()} : given.toIntVector();
}

int64_t AtenNode::dimension(std::string_view name, std::string_view of) {
  const int64_t given = integer(name);
  return given < 0 ? given + rank(of) : given;
}

// ---- About tensors ----

Integers AtenNode::sizes(std::string_view name) const {
  return sizes_of(argument(name));
}

int64_t AtenNode::rank(std::string_view name) const {
  return std::ssize(sizes(name));
}

torch::ScalarType AtenNode::type(std::string_view name) const {
  return type_of(argument(name));
}

at::ArrayRef<const Value*> AtenNode::outputs() const {
  const Value* const first = node_.output(0);
  const bool is_list = first->type()->kind() == c10::TypeKind::ListType;
  // prim::ListUnpack splits a list into its elements.
  const jit::Node& giver = is_list ? *first->uses()[0].user : node_;
  return giver.outputs();
}

torch::ScalarType AtenNode::common_type(
    std::initializer_list<std::string_view> names) const {
  at::native::ResultTypeState state = {};
  for (const std::string_view name : names) {
    const Value* const given = argument(name);
    const bool has_dimensions = !sizes_of(given).empty();
    const torch::Tensor like =
        torch::empty(Integers(has_dimensions ? 1 : 0, 0), type_of(given));
    const bool is_tensor = given->type()->cast<c10::TensorType>() != nullptr;
    if (!is_tensor) like.unsafeGetTensorImpl()->set_wrapped_number(true);
    state = at::native::update_result_type_state(like, state);
  }
  return at::native::result_type(state);
}

// ---- Arguments that are not read ----

void AtenNode::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) read(name);
}

void AtenNode::check_unread() const {
  for (size_t i = 0; i < node_.inputs().size(); ++i) {
    const Value* const given = node_.input(i);
    if (read_.contains(i) || given->mustBeNone()) continue;
    const auto& argument = node_.schema().arguments()[i];
    const auto& usual = argument.default_value();
    const auto constant = jit::toIValue(given);
    if (constant && is_default(*constant, usual)) continue;
    const bool is_number = constant && !constant->isTensor();
    refuse(fmt::format(
        "its argument {} is {}; expected {}. Write the module without it",
        argument.name(),
        is_number ? c10::str(*constant) : "a tensor",
        usual ? c10::str(*usual) : "false or none"));
  }
}

std::optional<size_t> AtenNode::find(std::string_view name) const {
  const auto& arguments = node_.schema().arguments();
  for (size_t i = 0; i < node_.inputs().size(); ++i) {
    if (arguments[i].name() == name) return i;
  }
  return std::nullopt;
}

const Value* AtenNode::read(std::string_view name) {
  const auto i = find(name);
  if (!i) return nullptr;
  read_.insert(*i);
  const Value* const given = node_.input(*i);
  return given->mustBeNone() ? nullptr : given;
}

const Value* AtenNode::argument(std::string_view name) const {
  const auto i = find(name);
  if (!i) refuse(fmt::format("this overload has no argument {}", name));
  return node_.input(*i);
}

}  // namespace tern::onnx
