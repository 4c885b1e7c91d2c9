#include "tern/learner/inference/fuse_layers.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/mkldnn_reorder_conv2d_weight.h>
#include <c10/util/FunctionRef.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/library.h>

#include "tern/data/support/memory.h"
#include "tern/kernels/depthwise_conv.h"
#include "tern/kernels/global_average_pool.h"
#include "tern/kernels/pointwise_conv.h"
#include "tern/kernels/winograd.h"
#include "tern/learner/inference/nonfinite_values.h"

namespace tern {

namespace {

namespace jit = torch::jit;
using Numbers = std::vector<int64_t>;
using Values = std::unordered_set<const jit::Value*>;

/// \param activation  A ConvActivation::Kind.
torch::Tensor pointwise_conv2d_op(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    int64_t outputs,
    at::IntArrayRef stride,
    const std::optional<torch::Tensor>& gate,
    const std::optional<torch::Tensor>& other,
    int64_t activation,
    double low,
    double high) {
  return pointwise_conv2d(
      images,
      weight,
      outputs,
      stride,
      gate,
      other,
      {static_cast<ConvActivation::Kind>(activation),
       static_cast<float>(low),
       static_cast<float>(high)});
}

/// \param activation  A ConvActivation::Kind.
torch::Tensor depthwise_conv2d_op(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    at::IntArrayRef kernel_size,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    int64_t activation,
    double low,
    double high) {
  return depthwise_conv2d(
      images,
      weight,
      kernel_size,
      stride,
      padding,
      {static_cast<ConvActivation::Kind>(activation),
       static_cast<float>(low),
       static_cast<float>(high)});
}

// Called when the first network is fused, not at program start.
void register_convolutions() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never removed: graphs in other threads may still call them when the
    // program ends.
    auto* const library = new torch::Library(
        torch::Library::FRAGMENT,
        "tern",
        /*k=*/std::nullopt,
        __FILE__,
        __LINE__);
    library->def(
        "winograd_conv2d(Tensor images, Tensor weight, Tensor? bias, "
        "int[2] padding, Tensor? other, bool relu) -> Tensor",
        &winograd_conv2d);
    library->def(
        "pointwise_conv2d(Tensor images, Tensor weight, int outputs, "
        "int[2] stride, Tensor? gate, Tensor? other, int activation, float "
        "low, float high) -> Tensor",
        &pointwise_conv2d_op);
    library->def(
        "depthwise_conv2d(Tensor images, Tensor weight, int[2] kernel_size, "
        "int[2] stride, int[2] padding, int activation, float low, "
        "float high) -> Tensor",
        &depthwise_conv2d_op);
    library->def(
        "global_average_pool(Tensor images) -> Tensor",
        &global_average_pool);
  });
}

/// The layout of weights is chosen for a batch of one or of this size.
constexpr int64_t kSeveral = 16;

/// An activation that oneDNN can apply to the output of a layer, and with its
/// name for some of them Tern's convolutions (ConvActivation).
struct PostOp {
  std::string name;
  size_t arguments = 0;  // operator arguments passed to oneDNN
  bool has_algorithm = false;
};

const PostOp* post_op_of(const jit::Node& node) {
  static const std::unordered_map<std::string, PostOp> activations = {
      {"relu", {.name = "relu"}},
      {"sigmoid", {.name = "sigmoid"}},
      {"tanh", {.name = "tanh"}},
      {"silu", {.name = "swish"}},
      {"hardswish", {.name = "hardswish"}},
      {"hardsigmoid", {.name = "hardsigmoid"}},
      {"hardtanh", {.name = "hardtanh", .arguments = 2}},
      {"leaky_relu", {.name = "leaky_relu", .arguments = 1}},
      {"gelu", {.name = "gelu", .has_algorithm = true}}};
  if (!node.kind().is_aten()) return nullptr;
  std::string name = node.kind().toUnqualString();
  if (name.ends_with('_')) name.pop_back();
  const auto found = activations.find(name);
  return found == activations.end() ? nullptr : &found->second;
}

std::optional<torch::ScalarType> type_of(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  return type ? type->scalarType() : std::nullopt;
}

/// True if oneDNN supports weights of this dtype and the input has the same
/// dtype.
bool is_computed(torch::ScalarType weights, const jit::Value& input) {
  return (weights == torch::kFloat || weights == torch::kBFloat16) &&
         type_of(input) == weights;
}

Numbers sizes_of(const jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  return type ? type->sizes().concrete_sizes().value_or(Numbers()) : Numbers();
}

jit::Node* only_user(const jit::Value& value) {
  return value.uses().size() == 1 ? value.uses()[0].user : nullptr;
}

bool is_convolution(const jit::Node& node) {
  return node.kind() == c10::aten::_convolution;
}

/// Returns the value as a constant matrix [inputs, outputs]; unset if it is not
/// one.
std::optional<torch::Tensor> matrix_of(const jit::Value* value) {
  const auto known = jit::toIValue(value);
  if (!known || !known->isTensor()) return std::nullopt;
  const torch::Tensor& matrix = known->toTensor();
  return matrix.dim() == 2 ? std::optional(matrix.detach()) : std::nullopt;
}

bool is_one(const jit::Value* value) {
  const auto known = jit::toIValue(value);
  return known && known->isScalar() && known->toScalar().toDouble() == 1;
}

/// A linear layer of a trace: addmm, or matmul with an optional addition.
struct Linear {
  jit::Value* input;
  torch::Tensor weight;  // [inputs, outputs]
  jit::Value* bias = nullptr;
};

std::optional<Linear> linear_of(jit::Node& node) {
  const bool is_addmm = node.kind() == c10::aten::addmm;
  if (!is_addmm && node.kind() != c10::aten::matmul) return std::nullopt;
  jit::Value* const input = node.input(is_addmm ? 1 : 0);
  const auto weight = matrix_of(node.input(is_addmm ? 2 : 1));
  if (!weight || sizes_of(*input).size() < 2 ||
      !is_computed(weight->scalar_type(), *input)) {
    return std::nullopt;
  }
  if (is_addmm && (!is_one(node.input(3)) || !is_one(node.input(4)) ||
                   sizes_of(*node.input(0)) != Numbers{weight->size(1)})) {
    return std::nullopt;
  }
  return Linear{input, *weight, is_addmm ? node.input(0) : nullptr};
}

/// True for a convolution of images whose weights are constant.
bool is_convolution_of_images(const jit::Node& node) {
  if (!is_convolution(node) || sizes_of(*node.input(0)).size() != 4) {
    return false;
  }
  const auto weight = jit::toIValue(node.input(1));
  const auto is_transposed = jit::toIValue(node.input(6));
  return weight && weight->isTensor() && is_transposed &&
         !is_transposed->toBool() &&
         is_computed(weight->toTensor().scalar_type(), *node.input(0));
}

/// True if `sum` may be written into its operand's memory: nothing reads the
/// operand later, and it is not part of another tensor.
bool may_overwrite(const jit::Value& operand, const jit::Node& sum) {
  const auto makes_no_view = [](const jit::Node& node) {
    const std::string_view name = node.kind().toQualString();
    return is_convolution(node) || name == "tern::winograd_conv2d" ||
           name == "tern::pointwise_conv2d" ||
           name == "tern::depthwise_conv2d" ||
           name.starts_with("mkldnn::_convolution_pointwise");
  };
  return makes_no_view(*operand.node()) &&
         std::ranges::all_of(operand.uses(), [&](const jit::Use& use) {
           return use.user == &sum ||
                  (use.user->isBefore(&sum) && makes_no_view(*use.user));
         });
}

/// True for an addition of a tensor of the same size and dtype.
bool is_plain_sum(const jit::Node& node) {
  if (node.kind() != c10::aten::add && node.kind() != c10::aten::add_) {
    return false;
  }
  const Numbers sizes = sizes_of(*node.input(0));
  return !sizes.empty() && sizes == sizes_of(*node.input(1)) &&
         type_of(*node.input(0)) == type_of(*node.input(1)) &&
         is_one(node.inputs()[2]);
}

/// True if an operator between the two writes into a tensor. A convolution that
/// is moved down there might read changed values.
bool is_written_between(const jit::Node& convolution, const jit::Node& last) {
  for (const jit::Node* node = convolution.next(); node != &last;
       node = node->next()) {
    const c10::FunctionSchema* const schema = node->maybeSchema();
    if (schema != nullptr && schema->is_mutable()) return true;
  }
  return false;
}

/// The part of the graph that one operator will compute.
struct Parts {
  std::vector<jit::Node*> nodes;  // the layer first
  jit::Value* other = nullptr;    // the tensor that is added
  const PostOp* activation = nullptr;

  jit::Node& layer() const { return *nodes[0]; }
};

/// Returns the layer, with the sum (if `takes_sum` accepts it) and the
/// activation, if they follow it.
Parts parts_from(
    jit::Node* layer,
    c10::function_ref<bool(const jit::Node&)> takes_sum) {
  Parts parts{.nodes = {layer}};
  jit::Node* next = only_user(*layer->output());
  if (next != nullptr && takes_sum(*next) &&
      !is_written_between(*layer, *next)) {
    parts.other = next->input(next->input(0) == layer->output() ? 1 : 0);
    parts.nodes.push_back(next);
    next = only_user(*next->output());
  }
  if (next == nullptr || is_written_between(*parts.nodes.back(), *next)) {
    return parts;
  }
  parts.activation = post_op_of(*next);
  if (parts.activation != nullptr) parts.nodes.push_back(next);
  return parts;
}

/// The arguments of a convolution.
struct Given {
  explicit Given(const jit::Node& convolution)
      : images(sizes_of(*convolution.input(0))),
        weight(jit::toIValue(convolution.input(1))->toTensor().detach()),
        stride(numbers(convolution, 3)),
        padding(numbers(convolution, 4)),
        dilation(numbers(convolution, 5)),
        groups(jit::toIValue(convolution.input(8))->toInt()) {
    if (images[0] > 1) images[0] = kSeveral;
    const auto known = jit::toIValue(convolution.input(2));
    has_constant_bias = known.has_value();
    if (known && known->isTensor()) bias = known->toTensor().detach();
  }

  bool suits_pointwise() const {
    return is_float() && groups == 1 && is_all(padding, 0) &&
           pointwise_conv_pays(images, weight.sizes(), stride);
  }

  bool suits_depthwise() const {
    return is_float() && groups == weight.size(0) && groups == images[1] &&
           depthwise_conv_pays(images, weight.sizes(), dilation);
  }

  bool suits_winograd() const {
    return weight.scalar_type() == torch::kFloat && groups == 1 &&
           is_all(stride, 1) && is_all(dilation, 1) &&
           winograd_pays(images, weight.sizes(), padding);
  }

  Numbers images;
  torch::Tensor weight;
  std::optional<torch::Tensor> bias;
  bool has_constant_bias;  // or none
  Numbers stride, padding, dilation;
  int64_t groups;

 private:
  bool is_float() const {
    return weight.scalar_type() == torch::kFloat && has_constant_bias &&
           (!bias || bias->scalar_type() == torch::kFloat);
  }

  static bool is_all(const Numbers& numbers, int64_t value) {
    return std::ranges::all_of(numbers, [&](int64_t n) { return n == value; });
  }

  /// Returns an argument's numbers for height and width. One number, as in
  /// `torch::conv2d(x, w, b, 1)`, is for both.
  static Numbers numbers(const jit::Node& convolution, size_t i) {
    Numbers numbers = jit::toIValue(convolution.input(i))->toIntVector();
    if (numbers.size() == 1) numbers.push_back(numbers[0]);
    return numbers;
  }
};

/// Inserts a constant. LibTorch returns the address of oneDNN's tensors as a
/// number.
jit::Value* packed(const torch::Tensor& weight, jit::Graph& graph) {
  const auto address = c10::Dispatcher::singleton()
                           .findSchemaOrThrow("mkldnn::data_ptr", "")
                           .typed<int64_t(const torch::Tensor&)>()
                           .call(weight);
  use_huge_pages(
      reinterpret_cast<const void*>(address),  // NOLINT
      weight.numel() * c10::elementSize(weight.scalar_type()));
  jit::Node* const constant = graph.create(c10::prim::ConstantMKLDNNTensor);
  return graph.insertNode(constant->t_(c10::attr::value, weight))->output();
}

/// The arguments that describe an activation to oneDNN.
struct ActivationInputs {
  ActivationInputs(const Parts& parts, jit::Graph& graph)
      : name(graph.insertConstant("none")),
        algorithm(graph.insertConstant(jit::IValue())) {
    std::vector<jit::Value*> values;
    if (parts.activation != nullptr) {
      jit::Node& node = *parts.nodes.back();
      name = graph.insertConstant(parts.activation->name);
      const auto given = node.inputs().slice(1, parts.activation->arguments);
      values.assign(given.begin(), given.end());
      if (parts.activation->has_algorithm) algorithm = node.inputs()[1];
    }
    const auto number = c10::OptionalType::create(c10::NumberType::get());
    arguments = graph.insertNode(graph.createList(number, values))->output();
  }

  jit::Value *name, *arguments = nullptr, *algorithm;
};

jit::Value* insert(
    jit::Graph& graph,
    const std::string& kind,
    const std::vector<jit::NamedValue>& inputs) {
  return graph.insert(c10::Symbol::fromQualString(kind), inputs);
}

jit::Value*
by_onednn(const Parts& parts, const Linear& linear, jit::Graph& graph) {
  const Numbers sizes = sizes_of(*linear.input);
  int64_t rows = sizes[0] > 1 ? kSeveral : 1;
  for (size_t i = 1; i + 1 < sizes.size(); ++i) rows *= sizes[i];
  using Reorder =
      torch::Tensor(const torch::Tensor&, std::optional<c10::SymInt>);
  const torch::Tensor weight =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("mkldnn::_reorder_linear_weight", "")
          .typed<Reorder>()
          .call(linear.weight.t().contiguous(), c10::SymInt(rows));
  const ActivationInputs activation(parts, graph);
  jit::Value* bias = linear.bias ? linear.bias : parts.other;
  if (bias == nullptr) bias = graph.insertConstant(jit::IValue());
  return insert(
      graph,
      "mkldnn::_linear_pointwise",
      {linear.input,
       packed(weight, graph),
       bias,
       activation.name,
       activation.arguments,
       activation.algorithm});
}

jit::Value*
by_winograd(const Parts& parts, const Given& given, jit::Graph& graph) {
  jit::Node& convolution = parts.layer();
  const torch::Tensor weight =
      winograd_weight(given.weight, given.images, given.padding);
  jit::Value* const other =
      parts.other ? parts.other : graph.insertConstant(jit::IValue());
  return insert(
      graph,
      "tern::winograd_conv2d",
      {convolution.input(0),
       packed(weight, graph),
       convolution.input(2),
       given.padding,
       other,
       parts.activation != nullptr});
}

/// Returns the activation of a convolution; unset if Tern's convolutions do not
/// have it.
std::optional<ConvActivation> own_activation(const Parts& parts) {
  if (parts.activation == nullptr) return ConvActivation{};
  std::vector<double> arguments = {0, 0};
  for (size_t i = 0; i < parts.activation->arguments; ++i) {
    const auto known = jit::toIValue(parts.nodes.back()->input(i + 1));
    if (!known || !known->isScalar()) return std::nullopt;
    arguments.at(i) = known->toScalar().toDouble();
  }
  return ConvActivation::from(
      parts.activation->name,
      arguments[0],
      arguments[1]);
}

std::vector<jit::NamedValue> arguments_of(const ConvActivation& activation) {
  return {
      static_cast<int64_t>(activation.kind),
      static_cast<double>(activation.low),
      static_cast<double>(activation.high)};
}

/// A product of images and a factor of each channel of each.
struct GatedImages {
  jit::Value *images, *gate;
};

/// Returns the product that only this convolution reads; unset if its input is
/// something else.
std::optional<GatedImages> gated_images(const jit::Node& convolution) {
  jit::Node* const product = convolution.input(0)->node();
  if (product->kind() != c10::aten::mul ||
      only_user(*product->output()) != &convolution ||
      is_written_between(*product, convolution)) {
    return std::nullopt;
  }
  const auto is_gated = [&](const jit::Value& image, const jit::Value& gate) {
    const Numbers sizes = sizes_of(image);
    // For images of few pixels, reading the weight once for each would take
    // longer than the product.
    constexpr int64_t kFewPixels = 16;
    return sizes.size() == 4 &&
           (sizes[0] == 1 || sizes[2] * sizes[3] >= kFewPixels) &&
           type_of(image) == torch::kFloat && type_of(gate) == torch::kFloat &&
           sizes_of(gate) == Numbers{sizes[0], sizes[1], 1, 1};
  };
  for (const size_t i : {0, 1}) {
    if (is_gated(*product->input(i), *product->input(1 - i))) {
      return GatedImages{product->input(i), product->input(1 - i)};
    }
  }
  return std::nullopt;
}

/// Inserts a constant in plain memory.
jit::Value* constant(const torch::Tensor& weight, jit::Graph& graph) {
  use_huge_pages(
      weight.const_data_ptr(),
      static_cast<int64_t>(weight.nbytes()));
  return graph.insertConstant(weight);
}

jit::Value* by_pointwise(
    const Parts& parts,
    const Given& given,
    const ConvActivation& activation,
    jit::Graph& graph) {
  jit::Value* const none = graph.insertConstant(jit::IValue());
  const auto gated = gated_images(parts.layer());
  std::vector<jit::NamedValue> inputs = {
      gated ? gated->images : parts.layer().input(0),
      constant(pointwise_weight(given.weight, given.bias), graph),
      given.weight.size(0),
      given.stride,
      gated ? gated->gate : none,
      parts.other ? parts.other : none};
  std::ranges::copy(arguments_of(activation), std::back_inserter(inputs));
  return insert(graph, "tern::pointwise_conv2d", inputs);
}

jit::Value* by_depthwise(
    const Parts& parts,
    const Given& given,
    const ConvActivation& activation,
    jit::Graph& graph) {
  std::vector<jit::NamedValue> inputs = {
      parts.layer().input(0),
      constant(depthwise_weight(given.weight, given.bias), graph),
      Numbers(given.weight.sizes().slice(2).vec()),
      given.stride,
      given.padding};
  std::ranges::copy(arguments_of(activation), std::back_inserter(inputs));
  return insert(graph, "tern::depthwise_conv2d", inputs);
}

jit::Value*
by_onednn(const Parts& parts, const Given& given, jit::Graph& graph) {
  jit::Node& convolution = parts.layer();
  const torch::Tensor weight = at::mkldnn_reorder_conv2d_weight(
      given.weight.to_mkldnn(),
      given.padding,
      given.stride,
      given.dilation,
      given.groups,
      at::IntArrayRef(given.images));
  const ActivationInputs activation(parts, graph);
  std::vector<jit::NamedValue> inputs = {
      convolution.input(0),
      packed(weight, graph)};
  for (const size_t i : {2, 4, 3, 5, 8}) {  // bias, padding, stride, ...
    inputs.emplace_back(convolution.input(i));
  }
  std::string kind = "mkldnn::_convolution_pointwise";
  jit::Value* name = activation.name;
  if (parts.other != nullptr) {
    const bool is_in_place = may_overwrite(*parts.other, *parts.nodes[1]);
    if (is_in_place) kind += '_';
    inputs.emplace(inputs.begin() + (is_in_place ? 0 : 1), parts.other);
    inputs.emplace_back(graph.insertConstant("add"));
    inputs.emplace_back(graph.insertConstant(1.0));
    if (!parts.activation) name = activation.algorithm;  // None
  }
  inputs.insert(
      inputs.end(),
      {name, activation.arguments, activation.algorithm});
  return insert(graph, kind, inputs);
}

void leave_out_activation(Parts& parts) {
  parts.activation = nullptr;
  parts.nodes.pop_back();
}

/// True if oneDNN might replace NaN by a number, as it does with ReLU, which it
/// computes as max(x, 0), and on some processors with other activations.
/// \param nonfinite  See `possibly_nonfinite_values`.
bool would_lose_nan(const Parts& parts, const Values& nonfinite) {
  return parts.activation != nullptr &&
         nonfinite.contains(parts.nodes.back()->input(0));
}

void replace(Parts& parts, jit::Value* result) {
  jit::Value* const last = parts.nodes.back()->output();
  result->setType(last->type());
  last->replaceAllUsesWith(result);
  for (size_t i = parts.nodes.size(); i-- > 0;) parts.nodes[i]->destroy();
}

void fuse_linear(
    jit::Node* node,
    const Linear& linear,
    const Values& nonfinite,
    jit::Graph& graph) {
  const auto is_bias = [&](const jit::Node& sum) {
    return linear.bias == nullptr && sum.input(0) == node->output() &&
           (sum.kind() == c10::aten::add || sum.kind() == c10::aten::add_) &&
           is_one(sum.inputs()[2]) &&
           type_of(*sum.input(1)) == linear.weight.scalar_type() &&
           sizes_of(*sum.input(1)) == Numbers{linear.weight.size(1)};
  };
  Parts parts = parts_from(node, is_bias);
  if (would_lose_nan(parts, nonfinite)) leave_out_activation(parts);
  const jit::WithInsertPoint here(parts.nodes.back());
  replace(parts, by_onednn(parts, linear, graph));
}

void fuse_convolution(
    jit::Node* node,
    const Values& nonfinite,
    jit::Graph& graph,
    bool winograd) {
  Parts parts = parts_from(node, is_plain_sum);
  const Given given(*node);
  // With an activation that Tern's convolutions lack, such as GELU, oneDNN is
  // faster, because it applies the activation while it multiplies.
  if (const auto activation = own_activation(parts)) {
    const jit::WithInsertPoint here(parts.nodes.back());
    if (given.suits_pointwise()) {
      replace(parts, by_pointwise(parts, given, *activation, graph));
      return;
    }
    if (parts.other == nullptr && given.suits_depthwise()) {
      replace(parts, by_depthwise(parts, given, *activation, graph));
      return;
    }
  }
  const bool is_winograd = winograd && given.suits_winograd();
  // Neither oneDNN's operator with a sum nor winograd_conv2d supports other
  // activations.
  const bool is_supported = (!is_winograd && parts.other == nullptr) ||
                            parts.activation == nullptr ||
                            parts.activation->name == "relu";
  if (!is_supported || (!is_winograd && would_lose_nan(parts, nonfinite))) {
    leave_out_activation(parts);
  }
  const jit::WithInsertPoint here(parts.nodes.back());
  replace(
      parts,
      is_winograd ? by_winograd(parts, given, graph)
                  : by_onednn(parts, given, graph));
}

/// Replaces `relu6` by `hardtanh`, of which it is the special case that oneDNN
/// does not have.
void replace_relu6(jit::Graph& graph) {
  for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
    jit::Node* const node = *it++;
    const std::string_view name = node->kind().toQualString();
    if (name != "aten::relu6" && name != "aten::relu6_") continue;
    const jit::WithInsertPoint here(node);
    const char* const hardtanh =
        name.ends_with('_') ? "aten::hardtanh_" : "aten::hardtanh";
    Parts parts{.nodes = {node}};
    replace(parts, insert(graph, hardtanh, {node->input(0), 0.0, 6.0}));
  }
}

/// True for an operator that computes the mean of each channel, [N, C, 1, 1],
/// of images in fp32.
bool is_channel_mean(const jit::Node& node) {
  const bool is_pooling = node.kind() == c10::aten::adaptive_avg_pool2d;
  if (!is_pooling && node.kind() != c10::aten::mean) return false;
  const Numbers images = sizes_of(*node.input(0));
  if (images.size() != 4 || type_of(*node.input(0)) != torch::kFloat ||
      type_of(*node.output()) != torch::kFloat ||
      sizes_of(*node.output()) != Numbers{images[0], images[1], 1, 1}) {
    return false;
  }
  const auto dims = jit::toIValue(node.input(1));  // or the pooled size
  if (!dims || !dims->isIntList()) return false;
  if (is_pooling) return dims->toIntVector() == Numbers{1, 1};
  return (
      dims->toIntVector() == Numbers{2, 3} ||
      dims->toIntVector() == Numbers{-1, -2} ||
      dims->toIntVector() == Numbers{-2, -1});
}

}  // namespace

void fuse_layers(
    const std::shared_ptr<jit::Graph>& graph,
    bool winograd,
    const std::vector<size_t>& nonfinite_inputs) {
  register_convolutions();
  replace_relu6(*graph);
  const Values nonfinite = possibly_nonfinite_values(*graph, nonfinite_inputs);
  std::vector<jit::Node*> layers, means;
  // With NaN or infinity in its input, more of Winograd's results are NaN.
  std::unordered_set<const jit::Node*> without_winograd;
  for (jit::Node* node : graph->nodes()) {
    if (is_convolution_of_images(*node) || linear_of(*node)) {
      layers.push_back(node);
      // Now, because fusing replaces the values. The result, because an input
      // may have been written through a view.
      if (nonfinite.contains(node->output())) without_winograd.insert(node);
    } else if (is_channel_mean(*node)) {
      means.push_back(node);
    }
  }
  for (jit::Node* layer : layers) {
    if (const auto linear = linear_of(*layer)) {
      fuse_linear(layer, *linear, nonfinite, *graph);
    } else {
      const bool may_use = winograd && !without_winograd.contains(layer);
      fuse_convolution(layer, nonfinite, *graph, may_use);
    }
  }
  for (jit::Node* mean : means) {
    const jit::WithInsertPoint here(mean);
    Parts parts{.nodes = {mean}};
    replace(
        parts,
        insert(*graph, "tern::global_average_pool", {mean->input(0)}));
  }
  jit::EliminateDeadCode(graph);
}

}  // namespace tern
