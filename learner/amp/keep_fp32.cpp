#include "tern/learner/amp/keep_fp32.h"

#include <algorithm>
#include <fnmatch.h>
#include <iterator>
#include <mutex>
#include <set>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

// LibTorch has no hooks on C++ modules, whose forward methods call each other
// directly, but all their operations go through the dispatcher. This key is
// above autograd, so that conversions are differentiated, and above autocast.
// It is reserved for backends outside LibTorch, which Tern never uses.
constexpr c10::DispatchKey kKey = c10::DispatchKey::AutocastPrivateUse1;

thread_local KeepFp32Guard::State* here = nullptr;

bool autocast_is_on() {
  return at::autocast::is_autocast_enabled(torch::kCPU) ||
         at::autocast::is_autocast_enabled(torch::kCUDA);
}

enum class Kind {
  weighted,    // inputs of one dtype; weights, if any, are last
  product,     // inputs of one dtype; any of them may be a weight
  statistics,  // BatchNorm accepts any input with fp32 weights
  embedding,   // floating-point weights, indices
  conversion,  // the program specifies the dtype
  other
};

const std::unordered_map<std::string_view, Kind> kKinds = [] {
  std::unordered_map<std::string_view, Kind> kinds;
  const auto add = [&](Kind kind,
                       std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) kinds[name] = kind;
  };
  add(Kind::weighted,
      {"linear",
       "conv1d",
       "conv2d",
       "conv3d",
       "conv_transpose1d",
       "conv_transpose2d",
       "conv_transpose3d",
       "convolution",
       "_convolution",
       "layer_norm",
       "group_norm",
       "rms_norm",
       "prelu",
       "bilinear",
       "addmm",
       "addbmm",
       "baddbmm",
       "addmv",
       "lstm",
       "gru",
       "rnn_tanh",
       "rnn_relu",
       "lstm_cell",
       "gru_cell",
       "rnn_tanh_cell",
       "rnn_relu_cell"});
  add(Kind::product,
      {"matmul",
       "mm",
       "bmm",
       "mv",
       "dot",
       "vdot",
       "inner",
       "einsum",
       "tensordot",
       "linalg_vecdot",
       "linalg_matmul",
       "linalg_multi_dot",
       "chain_matmul",
       "scaled_dot_product_attention",
       "cdist",
       "cosine_similarity"});
  add(Kind::statistics, {"batch_norm", "native_batch_norm", "instance_norm"});
  add(Kind::embedding, {"embedding", "embedding_bag"});
  add(Kind::conversion, {"to", "_to_copy", "type_as"});
  return kinds;
}();

// The role of a tensor in a forward pass.
enum class Origin {
  unknown,
  kept_weight,   // or computed only from these, or these and others
  other_weight,  // or computed only from these
  projection,    // a weight of a MultiheadAttention that is not kept
  scores,        // products of the queries and keys of an attention
  kept_result    // in fp32 because of a kept layer
};

// How an operation is computed, and the state after it.
struct Computation {
  Kind kind = Kind::other;
  Origin results = Origin::unknown;
  bool is_kept = false;           // fp32, excluded from autocast
  bool is_in_kept_layer = false;  // after this operation
  bool is_in_attention = false;   // the same, after the projections
  bool is_about_to_mask = false;  // its result is scores to be masked
  // The dtype to which its floating-point arguments are converted; for
  // BatchNorm, only the first one.
  std::optional<torch::ScalarType> type = {};
};

bool is_weight(Origin origin) {
  return origin == Origin::kept_weight || origin == Origin::other_weight ||
         origin == Origin::projection;
}

using WeakTensor =
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

bool is_wide(const torch::Tensor& tensor) {
  return tensor.scalar_type() == torch::kFloat || tensor.is_complex();
}

}  // namespace

struct KeepFp32Guard::State {
  const KeptParameters* kept;
  std::optional<torch::ScalarType> dtype;
  bool is_in_kept_layer = false, is_in_attention = false;
  // Operations of a backward pass within the forward pass have a different task
  // id.
  int graph_task = torch::autograd::get_current_graph_task_id();
  State* outer = here;
  // Weak references keep no memory alive, but prevent addresses from being
  // reused.
  std::unordered_map<const c10::TensorImpl*, std::pair<WeakTensor, Origin>>
      origins = {};

  Origin own_origin(const at::TensorBase& tensor) const {
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    if (kept->contains(impl)) return Origin::kept_weight;
    if (kept->is_projection(impl)) return Origin::projection;
    if (kept->has_other(impl)) return Origin::other_weight;
    const auto found = origins.find(impl);
    return found == origins.end() ? Origin::unknown : found->second.second;
  }
  // A view of a weight may have been created before the guard.
  Origin origin(const torch::Tensor& tensor) const {
    const Origin own = own_origin(tensor);
    if (own != Origin::unknown || !tensor.is_view()) return own;
    const Origin base = own_origin(tensor._base());
    return is_weight(base) ? base : own;
  }
  void note(const torch::Tensor& tensor, Origin origin) {
    if (origin == Origin::kept_result && !is_wide(tensor)) {
      origin = Origin::unknown;
    }
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    if (origin == Origin::unknown) {
      origins.erase(impl);
    } else {
      origins.insert_or_assign(
          impl,
          std::make_pair(WeakTensor(tensor.getIntrusivePtr()), origin));
    }
  }

  Computation computation(
      const c10::OperatorHandle& operation,
      const Tensors& inputs) const;
};

Computation KeepFp32Guard::State::computation(
    const c10::OperatorHandle& operation,
    const Tensors& inputs) const {
  Computation c{
      .is_in_kept_layer = is_in_kept_layer,
      .is_in_attention = is_in_attention};
  const std::string& full = operation.operator_name().name;
  const auto name = std::string_view(full).substr(full.rfind(':') + 1);
  const auto found = kKinds.find(name);
  if (found != kKinds.end()) c.kind = found->second;

  bool has_kept = false, has_other = false, has_result = false;
  bool has_projection = false;
  bool is_of_weights = !inputs.empty(), is_mixed = false;
  bool is_wide_elsewhere = false;  // fp32 not from a kept layer
  std::optional<torch::ScalarType> of_weight, narrow, widest, last;
  for (const torch::Tensor& input : inputs) {
    const Origin origin = this->origin(input);
    has_kept |= origin == Origin::kept_weight;
    has_other |= is_weight(origin) && origin != Origin::kept_weight;
    has_projection |= origin == Origin::projection;
    has_result |= origin == Origin::kept_result;
    is_of_weights &= is_weight(origin);
    const torch::ScalarType own = input.scalar_type();
    if (!input.is_floating_point() || own == torch::kDouble) continue;
    if (is_weight(origin)) of_weight = own;
    if (c10::isReducedFloatingType(own)) narrow = own;
    is_wide_elsewhere |= own == torch::kFloat && input.dim() > 0 &&
                         origin != Origin::kept_result;
    is_mixed |= last && *last != own;
    widest = widest ? c10::promoteTypes(*widest, own) : own;
    last = own;
  }

  // For example adapters of a weight, its norm, its transpose.
  if (is_of_weights && c.kind != Kind::weighted) {
    c.is_kept = has_kept;
    c.results = has_kept         ? Origin::kept_weight
                : has_projection ? Origin::projection
                                 : Origin::other_weight;
    if (has_kept || (is_mixed && c.kind == Kind::product)) c.type = widest;
    if (c.kind != Kind::embedding) return c;
  }

  const bool is_layer = c.kind != Kind::other && c.kind != Kind::conversion;
  const bool is_other_layer = is_layer && has_other && !has_kept;
  if (has_kept || is_other_layer) c.is_in_kept_layer = has_kept;
  if (has_kept || is_other_layer) c.is_in_attention = has_projection;
  c.is_kept = c.is_in_kept_layer && (has_kept || has_result);
  if (c.is_kept || (has_result && !is_other_layer)) {
    c.results = Origin::kept_result;
  }
  const bool is_of_scores =
      !inputs.empty() && origin(inputs[0]) == Origin::scores;
  const bool stays_scores =
      operation.schema().is_mutable() || c.kind == Kind::conversion;
  if (is_of_scores ? stays_scores
                   : c.is_in_attention && !c.is_kept && name == "bmm") {
    c.results = Origin::scores;
  }
  c.is_about_to_mask = is_of_scores && name == "view";
  if (c.kind == Kind::conversion) return c;
  if (c.is_kept) {
    c.type = torch::kFloat;
  } else if (autocast_is_on() || c.kind == Kind::embedding) {
    c.type.reset();
  } else if (c.kind == Kind::statistics) {
    if (has_result) c.type = dtype;
  } else if (is_layer && of_weight) {
    c.type = of_weight;
  } else if (has_result && narrow && !is_wide_elsewhere) {
    c.type = narrow;
  } else if (is_layer && is_mixed) {
    c.type = c.kind == Kind::weighted ? last : widest;
  }
  return c;
}

namespace {

Tensors inputs_of(
    const c10::OperatorHandle& operation,
    const torch::jit::Stack& stack) {
  return tensors_of(
      torch::jit::last(stack, operation.schema().arguments().size()));
}

void convert_values(torch::ScalarType type, std::span<c10::IValue> values) {
  const auto converted = [&](const torch::Tensor& tensor) {
    const bool stays = !tensor.defined() || !tensor.is_floating_point() ||
                       tensor.scalar_type() == torch::kDouble ||
                       tensor.scalar_type() == type;
    return stays ? tensor : tensor.to(type);
  };
  for (c10::IValue& value : values) {
    if (value.isTensor()) {
      value = converted(value.toTensor());
    } else if (value.isTensorList()) {
      Tensors list = value.toTensorVector();
      std::ranges::transform(list, list.begin(), converted);
      value = list;
    }
  }
}

void convert_arguments(
    const c10::OperatorHandle& operation,
    const Computation& c,
    torch::jit::Stack& stack) {
  // An in-place operation keeps the dtype of its output.
  if (!c.type || operation.schema().is_mutable()) return;
  const auto all = std::span(stack).last(operation.schema().arguments().size());
  const bool is_first_alone = c.kind == Kind::statistics && !c.is_kept;
  convert_values(*c.type, is_first_alone ? all.first(1) : all);
}

void compute(
    const c10::OperatorHandle& operation,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  KeepFp32Guard::State* const state = here;
  // Threads of a backward pass inherit the key.
  if (!state ||
      state->graph_task != torch::autograd::get_current_graph_task_id()) {
    return operation.redispatchBoxed(keys, stack);
  }
  Computation c = state->computation(operation, inputs_of(operation, *stack));
  const c10::impl::ExcludeDispatchKeyGuard below(
      c.is_kept ? c10::autocast_dispatch_keyset : c10::DispatchKeySet(kKey));
  convert_arguments(operation, c, *stack);
  if (c.is_kept) keys = keys - c10::autocast_dispatch_keyset;
  state->is_in_kept_layer = c.is_in_kept_layer;
  state->is_in_attention = c.is_in_attention;
  operation.redispatchBoxed(keys, stack);
  if (c.is_about_to_mask &&
      torch::jit::peek(*stack, 0, 1).toTensor().dim() == 4) {
    c.results = Origin::kept_result;
    to_type(torch::kFloat, *stack, 1);
  }
  const size_t results = operation.schema().returns().size();
  for (const torch::Tensor& result :
       tensors_of(torch::jit::last(*stack, results))) {
    state->note(result, c.results);
  }
}

// Registered at the first use, so that programs that do not use it never have
// it in their dispatcher.
void register_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never removed: other threads may be calling it when the program ends.
    auto* const library =
        new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
  });
}

void include_key(bool is_included) {
  c10::impl::tls_set_dispatch_key_excluded(kKey, !is_included);
  c10::impl::tls_set_dispatch_key_included(kKey, is_included);
}

bool matches(const std::string& module, const std::string& pattern) {
  return fnmatch(pattern.c_str(), module.c_str(), 0) == 0;
}

// For "a.b.weight" visits "a.b" and "a"; for a tensor of the model itself,
// visits the tensor's name.
template <class Function>
bool any_module_of(const std::string& tensor, const Function& function) {
  if (tensor.find('.') == std::string::npos) return function(tensor);
  for (size_t dot = tensor.rfind('.'); dot != std::string::npos && dot > 0;
       dot = tensor.rfind('.', dot - 1)) {
    if (function(tensor.substr(0, dot))) return true;
  }
  return false;
}

}  // namespace

void KeptParameters::add(const torch::Tensor& tensor, bool is_kept) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (is_kept) {
    others_.erase(impl);
    kept_.insert(impl);
  } else if (!kept_.contains(impl)) {
    others_.insert(impl);
  }
}

void KeptParameters::add_projections(const torch::nn::Module& module) {
  for (const auto& part : module.modules()) {
    const torch::nn::Module& own = *part;
    // Excludes derived classes, whose forward may differ.
    if (typeid(own) != typeid(torch::nn::MultiheadAttentionImpl)) continue;
    for (const torch::Tensor& p : own.parameters(/*recurse=*/false)) {
      projections_.insert(p.unsafeGetTensorImpl());
    }
  }
}

KeptParameters kept_parameters(
    const Model& model,
    const std::vector<std::string>& modules,
    const char* where) {
  KeptParameters kept;
  std::vector<ModelTensor> all = model.state();
  std::ranges::copy(model.parameters(), std::back_inserter(all));
  std::ranges::copy(model.buffers(), std::back_inserter(all));
  for (const ModelTensor& item : all) kept.add(item.tensor, false);
  if (model.module()) kept.add_projections(*model.module());
  for (const std::string& pattern : modules) {
    bool is_found = pattern == "input";
    std::set<std::string> names;
    for (const ModelTensor& item : all) {
      const bool is_in = any_module_of(item.name, [&](const std::string& name) {
        names.insert(name);
        return matches(name, pattern);
      });
      is_found |= is_in;
      if (is_in && item.tensor.is_floating_point()) kept.add(item.tensor, true);
    }
    TERN_CHECK_VALUE(
        is_found,
        "[{}] keep_fp32 names '{}', but no module with parameters has this "
        "name; expected one of: {}.",
        where,
        pattern,
        fmt::join(names, ", "));
  }
  return kept;
}

Tensors tensors_of(std::span<const c10::IValue> values) {
  Tensors tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      std::ranges::copy(value.toTensorVector(), std::back_inserter(tensors));
    }
  }
  return tensors;
}

void to_type(torch::ScalarType type, torch::jit::Stack& stack, size_t count) {
  convert_values(type, std::span(stack).last(count));
}

KeepFp32Guard::KeepFp32Guard(
    const KeptParameters& kept,
    std::optional<torch::ScalarType> dtype)
    : state_(std::make_unique<State>(State{.kept = &kept, .dtype = dtype})) {
  register_once();
  here = state_.get();
  include_key(true);
}

KeepFp32Guard::KeepFp32Guard(const Point& point, const torch::Tensor& x)
    : KeepFp32Guard(*point.kept, point.dtype) {
  state_->is_in_kept_layer = point.is_in_kept_layer;
  if (point.is_kept_result) state_->note(x, Origin::kept_result);
}

KeepFp32Guard::~KeepFp32Guard() {
  here = state_->outer;
  if (!here) include_key(false);
}

std::optional<KeepFp32Guard::Point> KeepFp32Guard::point(
    const torch::Tensor& x) {
  if (!here) return {};
  return Point{
      here->kept,
      here->dtype,
      here->is_in_kept_layer,
      here->origin(x) == Origin::kept_result};
}

void KeepFp32Guard::convert(
    const c10::OperatorHandle& operation,
    torch::jit::Stack& stack) {
  if (!here) return;
  const Computation c =
      here->computation(operation, inputs_of(operation, stack));
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  convert_arguments(operation, c, stack);
}

}  // namespace tern
