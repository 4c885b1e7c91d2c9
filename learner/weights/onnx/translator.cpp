#define ONNX_NAMESPACE onnx_torch  // LibTorch's own copy of ONNX

#include "tern/learner/weights/onnx/translator.h"

#include <algorithm>
#include <numeric>

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/serialization/export.h>

#include "tern/kernels/check.h"
#include "tern/learner/weights/frozen_graph.h"
#include "tern/learner/weights/graph.h"

namespace tern::onnx {

namespace jit = torch::jit;

namespace {

constexpr int64_t kOpset = 17;      // the first with LayerNormalization
constexpr int64_t kFewest = 1'000;  // numbers of a weight stored in fp16
constexpr const char* kOneSize =
    "Export with .dynamic_batch = false and .dynamic_size = false";

bool is_static(const Size& size) {
  return size[0] == size[1];
}

}  // namespace

Translator::Translator(const std::array<jit::Module, 2>& traces, bool half)
    : traces_{frozen_graph(traces[0]), frozen_graph(traces[1])},
      twins_(twins_of(*traces_[0], *traces_[1])),
      node_(traces_[0]->return_node()),
      graph_(std::make_shared<jit::Graph>()),
      half_(half) {
  TORCH_CHECK_VALUE(
      !twins_.empty(),
      "[export_onnx] the model takes another path for a batch or image of "
      "another size; expected one path. ",
      kOneSize);
}

Values Translator::run(const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value* const traced = traces_[0]->inputs()[i + 1];  // 0 is the module
    Value* const input = graph_->addInput(inputs[i]);
    describe(input, traced);
    give(input, traced);
  }
  for (jit::Node* node : traces_[0]->nodes()) {
    node_ = node;
    if (node->kind().is_prim()) continue;
    std::string name = node->kind().toUnqualString();
    if (name.ends_with('_')) {
      name.pop_back();
      if (overwrites_others(*node)) {
        refuse(
            "it writes into memory of another tensor, which is read later; "
            "expected a result of its own. Use the operator without _");
      }
    }
    try {
      if (!put_row(*this, name)) {
        refuse(
            "the exporter has no row for it; expected operators of the list in "
            "docs/inference.md. Write the module with those");
      }
    } catch (const c10::Error& error) {
      const std::string what = error.what_without_backtrace();
      if (what.starts_with("[export_onnx]")) throw;
      refuse(what);
    }
  }
  Value* const result = traces_[0]->outputs()[0];
  const bool is_tuple = result->node()->kind() == c10::prim::TupleConstruct;
  return is_tuple ? result->node()->inputs().vec() : Values{result};
}

void Translator::refuse(const std::string& why) const {
  const std::string module = module_of(*node_);
  C10_THROW_ERROR(
      ValueError,
      fmt::format(
          "[export_onnx] {} in {}: {}.",
          node_->kind().toQualString(),
          module.empty() ? "the model itself" : "its module " + module,
          why));
}

bool Translator::has(size_t i) const {
  return i < count() && !node_->input(i)->mustBeNone();
}

Sizes Translator::sizes_of(const Value* traced) const {
  Sizes sizes;
  for (size_t t : {0, 1}) {
    const Value* const value = t == 0 ? traced : twins_.at(traced);
    const auto type = value->type()->cast<c10::TensorType>();
    const auto known = type ? type->sizes().concrete_sizes() : std::nullopt;
    sizes.resize(known ? known->size() : 0);
    for (size_t i = 0; i < sizes.size(); ++i) sizes[i][t] = (*known)[i];
  }
  return sizes;
}

torch::ScalarType Translator::type_of(const Value* traced) {
  const auto type = traced->type()->cast<c10::TensorType>();
  if (type && type->scalarType()) return *type->scalarType();
  const bool is_float = traced->type() == c10::FloatType::get();
  return is_float ? torch::kFloat : torch::kLong;
}

Value* Translator::value(const Value* traced, Type type) {
  if (traced->mustBeNone()) return nullptr;
  const torch::ScalarType own = type_of(traced), wanted = type.value_or(own);
  const auto at = values_.find(traced);
  if (at != values_.end()) {
    return wanted == own ? at->second : cast(at->second, wanted);
  }
  const auto [first, second] = known(traced);
  const auto tensor = [&](const c10::IValue& x) {
    return x.isTensor() ? x.toTensor().to(wanted)
                        : torch::full({}, x.toScalar(), wanted);
  };
  Value* const value = constant(
      {tensor(first), tensor(second)},
      traced->hasDebugName() ? traced->debugName() : "constant");
  if (wanted == own) values_[traced] = value;
  return value;
}

std::array<c10::IValue, 2> Translator::known(const Value* traced) const {
  const auto first = jit::toIValue(traced);
  if (!first) refuse("it takes a result that ONNX does not give as a constant");
  return {*first, *jit::toIValue(twins_.at(traced))};
}

Value* Translator::transposed(size_t i) {
  Value* const traced = node_->input(i);
  if (const auto weight = jit::constant_as<torch::Tensor>(traced)) {
    return constant({weight->mT(), weight->mT()}, traced->debugName());
  }
  Ints order(sizes(i).size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 2], order.back());
  return op("Transpose", {in(i)}, {{"perm", order}});
}

Values Translator::list(size_t i) {
  const Value* const traced = node_->input(i);
  Values values;
  if (traced->node()->kind() == c10::prim::ListConstruct) {
    for (const Value* x : traced->node()->inputs()) values.push_back(value(x));
    return values;
  }
  const auto [first, second] = known(traced);
  for (size_t k = 0; k < first.toListRef().size(); ++k) {
    const auto &x = first.toListRef()[k], &y = second.toListRef()[k];
    values.push_back(constant({x.toTensor(), y.toTensor()}));
  }
  return values;
}

c10::IValue Translator::same(size_t i) const {
  const auto [first, second] = known(node_->input(i));
  if (first.isTensorList() || first == second) return first;
  refuse(fmt::format("its argument {} has a dynamic size. {}", i, kOneSize));
}

Ints Translator::ints(size_t i, size_t count) const {
  if (!has(i)) return {};
  const c10::IValue given = same(i);
  Ints all = given.isInt() ? Ints{given.toInt()} : given.toIntVector();
  const size_t own = all.size();
  for (size_t k = 0; own > 0 && k + own < count; ++k) all.push_back(all[k]);
  return all;
}

int64_t Translator::axis(size_t i) const {
  return integer(i) < 0 ? integer(i) + std::ssize(sizes(0)) : integer(i);
}

at::ArrayRef<Value*> Translator::out() const {
  const Value* const first = node_->output(0);
  const bool is_list = first->type()->kind() == c10::TypeKind::ListType;
  return is_list ? first->uses()[0].user->outputs() : node_->outputs();
}

void Translator::give(const Values& results) {
  for (size_t i = 0; i < results.size(); ++i) give(results[i], out()[i]);
}

// Sizes that depend on the inputs can be read there.
void Translator::give(Value* value, const Value* traced) {
  values_[traced] = value;
  const Sizes sizes = sizes_of(traced);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (is_static(sizes[i])) continue;
    places_.try_emplace(sizes[i], value, static_cast<int64_t>(i));
  }
}

// ---- The ONNX graph ----

void Translator::output(const std::string& name, const Value* traced) {
  // Of its own: inputs and weights have names already.
  Value* const named = op("Identity", {value(traced)});
  named->setDebugName(name);
  describe(named, traced);
  graph_->registerOutput(named);
}

void Translator::describe(Value* value, const Value* traced) {
  const std::string name = value->debugName();
  Ints first;
  for (const Size& size : sizes_of(traced)) {
    const auto at = std::ssize(first);
    first.push_back(size[0]);
    if (is_static(size)) continue;
    dynamic_axes_[name][at] =
        at == 0 ? "batch" : fmt::format("{}_dim_{}", name, at);
  }
  value->setType(
      c10::TensorType::createContiguous(type_of(traced), torch::kCPU, first));
}

Values Translator::ops(
    const std::string& name,
    Values inputs,
    const Attributes& attributes,
    size_t count) {
  const auto kind = c10::Symbol::fromQualString("onnx::" + name);
  auto* const node = graph_->insertNode(graph_->create(kind, count));
  while (!inputs.back()) inputs.pop_back();
  for (Value* input : inputs) {
    node->addInput(
        input ? input : graph_->insertNode(graph_->createNone())->output());
  }
  for (const auto& [key, value] : attributes) {
    const c10::Symbol symbol = c10::Symbol::attr(key);
    if (value.isDouble()) {
      node->f_(symbol, value.toDouble());
    } else if (value.isIntList()) {
      node->is_(symbol, value.toIntVector());
    } else if (value.isString()) {
      node->s_(symbol, value.toStringRef());
    } else {
      node->i_(symbol, value.toScalar().toLong());
    }
  }
  return node->outputs().vec();
}

Value* Translator::cast(Value* value, torch::ScalarType type) {
  // TensorProto's numbers, in the order of ScalarType.
  static constexpr std::array<int64_t, 16> kNumbers =
      {2, 3, 5, 6, 7, 10, 1, 11, 0, 0, 0, 9, 0, 0, 0, 16};
  return op("Cast", {value}, {{"to", kNumbers.at(static_cast<size_t>(type))}});
}

// They may differ in how often they repeat alone.
Value* Translator::constant(const Both& both, std::string name) {
  torch::Tensor part = both[0];
  Sizes repeats;
  std::array<Ints, 2> times;
  for (int64_t i = 0; i < part.dim(); ++i) {
    const int64_t a = both[0].size(i), b = both[1].size(i);
    const int64_t period = std::max<int64_t>(std::gcd(a, b), 1);
    part = part.narrow(i, 0, std::min(a, period));
    repeats.push_back({a / period, b / period});
    for (size_t t : {0, 1}) times[t].push_back(repeats[i][t]);
  }
  TORCH_CHECK_VALUE(
      torch::equal(part.repeat(times[0]), both[0]) &&
          torch::equal(part.repeat(times[1]), both[1]),
      "it takes a tensor that is computed without the input and has other "
      "values for a batch or image of another size; expected one that repeats "
      "itself. ",
      kOneSize);
  while (initializers_.contains(name)) {
    name += fmt::format("_{}", initializers_.size());
  }
  const bool is_half = half_ && part.scalar_type() == torch::kFloat &&
                       part.numel() >= kFewest && fits_half(part);
  initializers_[name] = is_half ? part.to(torch::kHalf) : part;
  Value* value = graph_->addInput(name);
  if (is_half) value = cast(value, torch::kFloat);
  const bool is_all = part.sizes() == both[0].sizes();
  return is_all ? value : op("Tile", {value, shape(repeats)});
}

Value* Translator::size(const Size& size) {
  const auto at = places_.find(size);
  if (at != places_.end()) {
    const auto& [value, dimension] = at->second;
    return op("Gather", {op("Shape", {value}), int_list({dimension})});
  }
  for (const auto& [part, place] : places_) {
    const int64_t times = size[0] / std::max<int64_t>(part[0], 1);
    if (size != Size{times * part[0], times * part[1]}) continue;
    return op("Mul", {this->size(part), int_list({times})});
  }
  if (!is_static(size)) {
    refuse(fmt::format(
        "it takes a size of {} in one trace and {} in a second, with a batch "
        "or image of another size, and nothing before it has that size; "
        "expected sizes of tensors, or multiples of the batch. {}",
        size[0],
        size[1],
        kOneSize));
  }
  return int_list({size[0]});
}

Value* Translator::shape(const Sizes& sizes) {
  Ints known;
  for (const Size& part : sizes) known.push_back(part[0]);
  if (std::ranges::all_of(sizes, is_static)) return int_list(known);
  Values parts;
  for (const Size& part : sizes) parts.push_back(size(part));
  return op("Concat", parts, {{"axis", 0}});
}

std::string Translator::serialize() const {
  const auto proto = std::get<0>(jit::export_onnx(
      graph_,
      initializers_,
      kOpset,
      dynamic_axes_,
      /*defer_weight_export=*/false,
      torch::onnx::OperatorExportTypes::ONNX,
      /*strip_doc_string=*/true,
      /*keep_initializers_as_inputs=*/false));
  std::string bytes = jit::serialize_model_proto_to_string(proto);
  jit::check_onnx_proto(bytes);
  return bytes;
}

}  // namespace tern::onnx
