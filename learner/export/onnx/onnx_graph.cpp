#define ONNX_NAMESPACE onnx_torch  // LibTorch's own copy of ONNX

#include "tern/learner/export/onnx/onnx_graph.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <ranges>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/serialization/export.h>

#include "tern/kernels/check.h"
#include "tern/learner/export/embedded_torchscript.h"
#include "tern/learner/export/onnx/interpreter/interpreter.h"

namespace tern::onnx {

namespace {

constexpr int64_t kOpset = 17;  // the first with LayerNormalization

constexpr const char* kDiffers =
    " differs for a batch or image of a different size; expected no "
    "difference, or a size that follows from earlier ones. Export with "
    ".dynamic_batch and .dynamic_size = false";

// TensorProto.DataType of onnx.proto.
int64_t onnx_type(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat:
      return 1;
    case torch::kByte:
      return 2;
    case torch::kChar:
      return 3;
    case torch::kShort:
      return 5;
    case torch::kInt:
      return 6;
    case torch::kLong:
      return 7;
    case torch::kBool:
      return 9;
    case torch::kHalf:
      return 10;
    case torch::kDouble:
      return 11;
    case torch::kBFloat16:
      return 16;
    default:
      refuse(fmt::format(
          "ONNX does not have its type, {}",
          torch::toString(type)));
  }
}

// NaN equals NaN.
bool are_same(const torch::Tensor& a, const torch::Tensor& b) {
  return torch::equal(a, b) ||
         (a.is_floating_point() &&
          ((a == b) | (a.isnan() & b.isnan())).all().item<bool>());
}

/// Collects warnings, because LibTorch only warns about a file that no runtime
/// can read.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { text += warning.msg(); }
  std::string text;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

void check_file(const std::string& bytes) {
  const Warnings warnings;
  jit::check_onnx_proto(bytes);
  TERN_CHECK_VALUE(
      warnings.text.empty(),
      "[export_onnx] the file would not be valid ONNX ({}); this is a bug in "
      "Tern: please report it. export_torchscript may be able to write the "
      "model.",
      warnings.text);
}

void set_attribute(
    jit::Node& node,
    const std::string& name,
    const c10::IValue& value) {
  const c10::Symbol symbol = c10::Symbol::attr(name);
  if (value.isDouble()) node.f_(symbol, value.toDouble());
  if (value.isIntList()) node.is_(symbol, value.toIntVector());
  if (value.isString()) node.s_(symbol, value.toStringRef());
  if (value.isInt()) node.i_(symbol, value.toInt());
  if (value.isBool()) node.i_(symbol, value.toBool() ? 1 : 0);
  if (!value.isList() || value.isIntList()) return;
  std::vector<std::string> strings;
  for (const c10::IValue& x : value.toListRef()) {
    strings.push_back(x.toStringRef());
  }
  node.ss_(symbol, strings);
}

// Returns a constant value, which may be part of a constant list; unset if the
// model computes it.
std::optional<c10::IValue> constant_of(const Value* traced) {
  const jit::Node& node = *traced->node();
  if (node.kind() != c10::prim::ListUnpack) return jit::toIValue(traced);
  const auto list = jit::toIValue(node.input());
  if (!list) return std::nullopt;
  return list->toListRef()[traced->offset()];
}

}  // namespace

void refuse(const std::string& why) {
  C10_THROW_ERROR(ValueError, why);
}

Integers sizes_of(const Value* traced) {
  const auto type = traced->type()->cast<c10::TensorType>();
  return type ? type->sizes().concrete_sizes().value_or(Integers())
              : Integers();
}

torch::ScalarType type_of(const Value* traced) {
  const auto type = traced->type()->cast<c10::TensorType>();
  if (type && type->scalarType()) return *type->scalarType();
  const bool is_float = traced->type() == c10::FloatType::get();
  return is_float ? torch::kFloat : torch::kLong;
}

// ---- Operators ----

Value* OnnxGraph::op(
    const std::string& type,
    Values inputs,
    const Attributes& attributes) {
  return op_with_outputs(1, type, std::move(inputs), attributes)[0];
}

Values OnnxGraph::op_with_outputs(
    size_t count,
    const std::string& type,
    Values inputs,
    const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    if (in_first_trace(value) != value) refuse("its " + name + kDiffers);
  }
  // In ONNX an omitted input has an empty name, but omitted inputs at the end
  // do not appear.
  while (!inputs.back()) inputs.pop_back();
  return insert(count, type, inputs, attributes);
}

Values OnnxGraph::insert(
    size_t count,
    const std::string& type,
    const Values& inputs,
    const Attributes& attributes) {
  const auto kind = c10::Symbol::fromQualString("onnx::" + type);
  jit::Node* const node = graph_->insertNode(graph_->create(kind, count));
  for (Value* input : inputs) {
    if (!input) input = graph_->insertNode(graph_->createNone())->output();
    node->addInput(input);
  }
  for (const auto& [name, value] : attributes) {
    set_attribute(*node, name, value);
  }
  return node->outputs().vec();
}

Value*
OnnxGraph::cast(Value* value, torch::ScalarType from, torch::ScalarType to) {
  if (from == to) return value;
  return insert(1, "Cast", {value}, {{"to", onnx_type(to)}})[0];
}

Value*
OnnxGraph::swap_dimensions(Value* x, int64_t rank, int64_t dim0, int64_t dim1) {
  Integers order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[dim0], order[dim1]);
  return op("Transpose", {x}, {{"perm", order}});
}

// ---- Constants ----

Value* OnnxGraph::constant(
    const torch::Tensor& tensor,
    const std::string& name) {
  const torch::Tensor first = in_first_trace(tensor).toTensor();
  const std::string differs =
      std::string("one of its input tensors") + kDiffers;
  if (first.dim() != tensor.dim()) refuse(differs);
  // Takes one slice along each dimension whose size differs.
  torch::Tensor part = tensor;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (first.size(i) != tensor.size(i)) part = part.narrow(i, 0, 1);
  }
  const bool is_repeated = are_same(part.expand_as(first), first) &&
                           are_same(part.expand_as(tensor), tensor);
  if (is_repeated) {
    Value* const value = initializer(part, name);
    if (part.sizes() == tensor.sizes()) return value;
    Value* const shape = integers(first.sizes().vec(), tensor.sizes().vec());
    return insert(1, "Expand", {value, shape})[0];
  }
  if (Value* const value = counting(first, tensor)) return value;
  if (Value* const value = triangular(first, tensor)) return value;
  refuse(differs);
}

Value* OnnxGraph::counting(
    const torch::Tensor& first,
    const torch::Tensor& own) {
  const torch::ScalarType type = own.scalar_type();
  if (type == torch::kBool || own.numel() == 0) return nullptr;
  const auto differs = [&](int64_t i) { return first.size(i) != own.size(i); };
  // The numbers at index 0 of the dimensions that differ, and the step from
  // there to index 1.
  torch::Tensor part = own;
  Integers steps(own.dim(), 0);
  for (int64_t i = 0; i < own.dim(); ++i) {
    if (!differs(i)) continue;
    part = part.narrow(i, 0, 1);
    if (own.size(i) < 2) continue;
    const torch::Tensor line =
        own.transpose(0, i).reshape({own.size(i), -1}).select(1, 0);
    steps[i] = (line[1] - line[0]).to(torch::kLong).item<int64_t>();
  }
  const auto counts_up = [&](const torch::Tensor& all) {
    torch::Tensor sum = part;
    for (int64_t i = 0; i < all.dim(); ++i) {
      if (!differs(i)) continue;
      Integers shape(all.dim(), 1);
      shape[i] = all.size(i);
      sum = sum + steps[i] * torch::arange(all.size(i)).to(type).view(shape);
    }
    return torch::equal(sum.expand_as(all), all);
  };
  if (!counts_up(first) || !counts_up(own)) return nullptr;
  Value* sum = initializer(part);
  for (int64_t i = 0; i < own.dim(); ++i) {
    if (!differs(i)) continue;
    Value* const place = places(first.size(i), own.size(i), i, own.dim());
    Value* const step = initializer(torch::tensor(steps[i]));
    Value* const counted = insert(1, "Mul", {place, step})[0];
    sum = insert(1, "Add", {sum, cast(counted, torch::kLong, type)})[0];
  }
  return sum;
}

Value* OnnxGraph::triangular(
    const torch::Tensor& first,
    const torch::Tensor& own) {
  const int64_t rank = own.dim();
  if (rank < 2) return nullptr;
  const int64_t rows = own.size(-2), columns = own.size(-1);
  if (own.numel() != rows * columns || first.numel() == 0) return nullptr;
  const torch::Tensor matrix = own.view({rows, columns});
  const torch::Tensor above = matrix[0][columns - 1].clone();
  const torch::Tensor below = matrix[rows - 1][0].clone();
  // The first column above the diagonal in row 0, which may be negative.
  const auto count = [&](const torch::Tensor& line) {
    return line.eq(above).sum().item<int64_t>();
  };
  const int64_t in_row = count(matrix[0]),
                in_column = count(matrix.select(1, 0));
  const int64_t offset = in_row < columns ? columns - in_row : 1 - in_column;
  const auto is_triangular = [&](const torch::Tensor& all) {
    const torch::Tensor row = torch::arange(all.size(-2)).unsqueeze(1);
    const torch::Tensor is_above = torch::arange(all.size(-1)) - row >= offset;
    return torch::equal(
        torch::where(is_above, above, below),
        all.reshape({all.size(-2), all.size(-1)}));
  };
  if (!is_triangular(first) || !is_triangular(own)) return nullptr;
  Value* const row = places(first.size(-2), rows, rank - 2, rank);
  Value* const column = places(first.size(-1), columns, rank - 1, rank);
  Value* const distance = insert(1, "Sub", {column, row})[0];
  Value* const least = initializer(torch::tensor(offset));
  Value* const is_below = insert(1, "Less", {distance, least})[0];
  // ONNX Runtime's Where supports numbers but not booleans.
  const torch::ScalarType type = own.scalar_type();
  const auto chosen = type == torch::kBool ? torch::kInt : type;
  Value* const below_it = initializer(below.to(chosen));
  Value* const above_it = initializer(above.to(chosen));
  Value* const all = insert(1, "Where", {is_below, below_it, above_it})[0];
  return cast(all, chosen, type);
}

Value*
OnnxGraph::places(int64_t first, int64_t own, int64_t dimension, int64_t rank) {
  Value* const axes = initializer(torch::tensor({int64_t{0}}));
  Value* const size = insert(1, "Squeeze", {integer(first, own), axes})[0];
  Value* const range = insert(
      1,
      "Range",
      {initializer(torch::tensor(int64_t{0})),
       size,
       initializer(torch::tensor(int64_t{1}))})[0];
  Integers shape(rank, 1);
  shape[dimension] = -1;
  return insert(1, "Reshape", {range, initializer(torch::tensor(shape))})[0];
}

Value* OnnxGraph::scalar(double number, torch::ScalarType type) {
  if (!c10::isIntegralType(type, /*includeBool=*/false)) {
    return constant(torch::full({}, number, type));
  }
  // -1 as a byte is 255, as in PyTorch.
  const auto whole = static_cast<int64_t>(number);
  return constant(torch::full({}, whole, torch::kLong).to(type));
}

Value* OnnxGraph::integers(const Integers& numbers) {
  return integers(in_first_trace(numbers).toIntVector(), numbers);
}

Value* OnnxGraph::shape_to_infer(const Integers& sizes) {
  Integers first = in_first_trace(sizes).toIntVector(), own = sizes;
  for (size_t i = own.size(); i-- > 0;) {
    if (first[i] == own[i]) continue;
    first[i] = own[i] = -1;
    break;
  }
  return integers(first, own);
}

Value* OnnxGraph::integers(const Integers& first, const Integers& own) {
  if (first == own) return initializer(torch::tensor(own));
  Values parts;
  for (size_t i = 0; i < own.size(); ++i) {
    parts.push_back(integer(first[i], own[i]));
  }
  return insert(1, "Concat", parts, {{"axis", 0}})[0];
}

// Returns an integer as a tensor of shape [1]: a constant, or the smallest
// multiple of a size that can be read, or of a product of two such sizes.
Value* OnnxGraph::integer(int64_t first, int64_t own) {
  if (first == own) return initializer(torch::tensor({own}));
  struct Found {
    int64_t times = std::numeric_limits<int64_t>::max();
    std::vector<std::pair<Value*, int64_t>> places;
  } found;
  const auto consider = [&](int64_t in_first, int64_t in_own, auto... places) {
    const int64_t times = own / std::max<int64_t>(in_own, 1);
    if (times * in_first != first || times * in_own != own) return;
    if (times >= 1 && times < found.times) found = {times, {places...}};
  };
  for (const auto& [numbers, place] : sizes_ | std::views::reverse) {
    consider(numbers.first, numbers.second, place);
  }
  for (const auto& [numbers, place] : sizes_) {
    for (const auto& [others, other] : sizes_) {
      consider(
          numbers.first * others.first,
          numbers.second * others.second,
          place,
          other);
    }
  }
  if (found.places.empty()) {
    refuse(fmt::format("a size, {} and {},{}", first, own, kDiffers));
  }
  Value* product = nullptr;
  for (const auto& [tensor, dimension] : found.places) {
    Value* const index = initializer(torch::tensor({dimension}));
    Value* const shape = insert(1, "Shape", {tensor})[0];
    Value* const size = insert(1, "Gather", {shape, index})[0];
    product = product ? insert(1, "Mul", {product, size})[0] : size;
  }
  if (found.times == 1) return product;
  Value* const factor = initializer(torch::tensor({found.times}));
  return insert(1, "Mul", {product, factor})[0];
}

Value* OnnxGraph::initializer(const torch::Tensor& tensor, std::string name) {
  // Without a name, uses a name that no weight has.
  if (name.empty()) name = fmt::format(".{}", initializers_.size());
  const bool is_half = half_ && tensor.scalar_type() == torch::kFloat &&
                       tensor.numel() >= 1'000 && fits_half(tensor);
  initializers_[name] = tensor;
  if (is_half) halved_.insert(name);
  Value* const value = graph_->addInput(name);
  const auto type = is_half ? torch::kHalf : tensor.scalar_type();
  value->setType(
      c10::TensorType::createContiguous(type, torch::kCPU, tensor.sizes()));
  return is_half ? cast(value, torch::kHalf, torch::kFloat) : value;
}

// ---- Differences between the traces ----

bool OnnxGraph::differ(const Integers& numbers) {
  const bool differs = in_first_trace(numbers).toIntVector() != numbers;
  if (differs) is_compared_ = false;
  return differs;
}

Value* OnnxGraph::sizes_at(Value* tensor, const Integers& dimensions) {
  Value* const shape = insert(1, "Shape", {tensor})[0];
  Value* const places = initializer(torch::tensor(dimensions));
  return insert(1, "Gather", {shape, places})[0];
}

// ---- Values of the trace ----

Value* OnnxGraph::value(const Value* traced) {
  if (traced->mustBeNone()) return nullptr;
  if (const auto known = values_.find(traced); known != values_.end()) {
    return known->second;
  }
  const auto number = constant_of(traced);
  if (!number) {
    refuse(fmt::format(
        "it uses a result of {} that the exporter does not write; expected a "
        "supported result. Compute it in a different way",
        traced->node()->kind().toQualString()));
  }
  const torch::Tensor tensor =
      number->isTensor() ? number->toTensor()
                         : torch::full({}, number->toScalar(), type_of(traced));
  const bool has_name = traced->hasDebugName();
  return values_[traced] =
             constant(tensor, has_name ? traced->debugName() : "");
}

void OnnxGraph::set_value(const Value* traced, Value* value) {
  begin_step();
  values_[traced] = value;
  describe(value, type_of(traced), sizes_of(traced));
}

void OnnxGraph::describe(
    Value* value,
    torch::ScalarType type,
    const Integers& sizes) {
  onnx_type(type);  // throws if ONNX does not have this type
  const Integers first = in_first_trace(sizes).toIntVector();
  const std::string name = value->debugName();
  for (int64_t i = 0; i < std::ssize(sizes); ++i) {
    if (sizes[i] == first[i]) continue;
    sizes_.try_emplace({first[i], sizes[i]}, value, i);
    dynamic_axes_[name][i] =
        i == 0 ? "batch" : fmt::format("{}_dim_{}", name, i);
  }
  value->setType(c10::TensorType::createContiguous(type, torch::kCPU, sizes));
}

void OnnxGraph::add_input(const Value* traced, const std::string& name) {
  input_names_.push_back(name);
  set_value(traced, graph_->addInput(name));
}

void OnnxGraph::add_output(const Value* traced, const std::string& name) {
  check_path(name);
  add_output(value(traced), type_of(traced), sizes_of(traced), name);
  values_[traced] = graph_->outputs().back();
}

void OnnxGraph::add_output(
    Value* value,
    torch::ScalarType type,
    const Integers& sizes,
    const std::string& name) {
  // A separate value, because inputs and weights can be outputs too and already
  // have names.
  Value* const output = op("Identity", {value});
  output->setDebugName(name);
  begin_step();
  describe(output, type, sizes);
  graph_->registerOutput(output);
}

void OnnxGraph::drop_outputs(size_t count) {
  for (size_t i = 0; i < count; ++i) graph_->eraseOutput(0);
}

void OnnxGraph::check_path(const std::string& step) {
  begin_step();
  TORCH_CHECK_VALUE(
      in_first_trace(step) == step,
      "[export_onnx] the path of the model",
      kDiffers);
}

c10::IValue OnnxGraph::in_first_trace(const c10::IValue& own) {
  record_.back().push_back(own);
  if (first_ == nullptr || !is_compared_) return own;
  const auto& step = first_->record_.at(record_.size() - 1);
  const size_t place = record_.back().size() - 1;
  if (place >= step.size() || step[place].tagKind() != own.tagKind()) {
    refuse(std::string("what it computes") + kDiffers);
  }
  return step[place];
}

void OnnxGraph::begin_step() {
  record_.emplace_back();
  is_compared_ = true;
}

void OnnxGraph::remove_unused() {
  for (auto node = graph_->nodes().rbegin(); node != graph_->nodes().rend();
       ++node) {
    if (!node->hasUses()) node.destroyCurrent();
  }
  for (size_t i = graph_->inputs().size(); i-- > 0;) {
    const Value* const input = graph_->inputs()[i];
    const std::string name = input->debugName();
    if (input->hasUses() || !initializers_.contains(name)) continue;
    initializers_.erase(name);
    graph_->eraseInput(i);
  }
}

std::string OnnxGraph::serialize() const {
  auto stored = initializers_;
  for (const std::string& name : halved_) {
    stored[name] = stored[name].to(torch::kHalf);
  }
  size_t bytes_of_all = 1 << 20;  // room for everything but weights
  for (const auto& [name, x] : stored) bytes_of_all += x.nbytes();
  TERN_CHECK_VALUE(
      bytes_of_all >> 31 == 0,
      "[export_onnx] the weights take {:.2f} GiB; expected less than 2 GiB, "
      "the limit of an ONNX file. Set .half, or call export_torchscript.",
      static_cast<double>(bytes_of_all) / (1 << 30));
  const auto proto = std::get<0>(jit::export_onnx(
      graph_,
      stored,
      kOpset,
      dynamic_axes_,
      /*defer_weight_export=*/false,
      torch::onnx::OperatorExportTypes::ONNX,
      /*strip_doc_string=*/true,
      /*keep_initializers_as_inputs=*/false));
  std::string bytes = jit::serialize_model_proto_to_string(proto);
  check_file(bytes);
  return bytes;
}

std::vector<torch::Tensor> OnnxGraph::compute(
    const std::vector<torch::Tensor>& inputs) const {
  auto all = initializers_;
  for (size_t i = 0; i < inputs.size(); ++i) all[input_names_[i]] = inputs[i];
  for (auto& [name, tensor] : all) tensor = tensor.cpu();
  return interpret(*graph_, std::move(all));
}

}  // namespace tern::onnx
