#include "tern/learner/amp/keep_fp32.h"

#include <algorithm>
#include <array>
#include <fnmatch.h>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/library.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

// LibTorch has no hooks on the modules of C++, whose forward calls each other
// directly; but each of their operations goes through its dispatcher. This key
// lies above autograd, so that what is converted has a gradient, and above
// autocast; it is that of a backend from outside LibTorch, of which there is
// none in the process.
constexpr c10::DispatchKey kKey = c10::DispatchKey::AutocastPrivateUse1;

thread_local const KeptParameters* kept_here = nullptr;

bool autocast_is_on() {
  return at::autocast::is_autocast_enabled(torch::kCPU) ||
         at::autocast::is_autocast_enabled(torch::kCUDA);
}

enum class Among {
  weights,      // they come last, and decide
  activations,  // the wider type wins
  statistics    // BatchNorm takes any input beside its fp32 weights
};

template <Among kAmong>
void in_one_type(
    const c10::OperatorHandle& operation,
    torch::jit::Stack* stack) {
  const size_t count = operation.schema().arguments().size();
  bool is_kept = false, is_mixed = false;
  std::optional<torch::ScalarType> type;
  for (const torch::Tensor& tensor :
       tensors_of(torch::jit::last(*stack, count))) {
    if (!tensor.is_floating_point()) continue;
    is_kept |= kept_here && kept_here->contains(tensor.unsafeGetTensorImpl());
    const torch::ScalarType own = tensor.scalar_type();
    is_mixed |= type && *type != own;
    type = kAmong == Among::activations && type ? c10::promoteTypes(*type, own)
                                                : own;
  }
  const c10::impl::ExcludeDispatchKeyGuard below(
      is_kept ? c10::autocast_dispatch_keyset : c10::DispatchKeySet(kKey));
  if (is_kept) type = torch::kFloat;
  const bool converts = kAmong != Among::statistics && !autocast_is_on();
  if (is_kept || (is_mixed && converts)) to_type(*type, *stack, count);
  operation.callBoxed(stack);
}

constexpr std::array kWithWeights = {
    "linear",
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "convolution",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "prelu",
    "bilinear",
    "addmm",
    "addbmm",
    "baddbmm",
    "lstm.input",
    "lstm.data",
    "gru.input",
    "gru.data",
    "rnn_tanh.input",
    "rnn_tanh.data",
    "rnn_relu.input",
    "rnn_relu.data",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell"};
constexpr std::array kOfActivations = {
    "matmul",
    "mm",
    "bmm",
    "mv",
    "dot",
    "scaled_dot_product_attention",
    "cdist",
    "cosine_similarity"};
constexpr std::array kWithStatistics = {"batch_norm", "instance_norm"};

// Made at the first use: other programs never have it in their dispatcher.
void register_once() {
  static const auto libraries = [] {
    auto fallback = std::make_unique<torch::Library>(
        torch::Library::IMPL,
        "_",
        kKey,
        __FILE__,
        __LINE__);
    fallback->fallback(torch::CppFunction::makeFallthrough());
    auto aten = std::make_unique<torch::Library>(
        torch::Library::IMPL,
        "aten",
        kKey,
        __FILE__,
        __LINE__);
    const auto add = [&](const auto& names, auto&& function) {
      for (const char* name : names) aten->impl(name, function());
    };
    using F = torch::CppFunction;
    add(kWithWeights, [] {
      return F::makeFromBoxedFunction<&in_one_type<Among::weights>>();
    });
    add(kOfActivations, [] {
      return F::makeFromBoxedFunction<&in_one_type<Among::activations>>();
    });
    add(kWithStatistics, [] {
      return F::makeFromBoxedFunction<&in_one_type<Among::statistics>>();
    });
    return std::make_pair(std::move(fallback), std::move(aten));
  }();
}

bool matches(const std::string& module, const std::string& pattern) {
  return fnmatch(pattern.c_str(), module.c_str(), 0) == 0;
}

// "a.b.weight": "a.b" and "a"; a tensor of the model itself: its own name.
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

KeptParameters kept_parameters(
    const Model& model,
    const std::vector<std::string>& modules,
    const char* where) {
  KeptParameters kept;
  const std::vector<ModelTensor> state = model.state();
  for (const std::string& pattern : modules) {
    bool is_found = pattern == "input";
    std::set<std::string> names;
    for (const ModelTensor& item : state) {
      const bool is_in = any_module_of(item.name, [&](const std::string& name) {
        names.insert(name);
        return matches(name, pattern);
      });
      is_found |= is_in;
      if (is_in && item.tensor.is_floating_point()) {
        kept.insert(item.tensor.unsafeGetTensorImpl());
      }
    }
    TERN_CHECK_VALUE(
        is_found,
        "[{}] keep_fp32 names '{}', and no module with parameters is called "
        "so; there are: {}.",
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
  const auto converted = [&](const torch::Tensor& tensor) {
    const bool stays = !tensor.defined() || !tensor.is_floating_point() ||
                       tensor.scalar_type() == torch::kDouble;
    return stays ? tensor : tensor.to(type);
  };
  for (c10::IValue& value : std::span(stack).last(count)) {
    if (value.isTensor()) {
      value = converted(value.toTensor());
    } else if (value.isTensorList()) {
      Tensors list = value.toTensorVector();
      std::ranges::transform(list, list.begin(), converted);
      value = list;
    }
  }
}

bool computes_in_type_of_weights(std::string_view operation) {
  return std::ranges::any_of(kWithWeights, [&](std::string_view known) {
    return known.substr(0, known.find('.')) == operation;
  });
}

KeepFp32Guard::KeepFp32Guard(const KeptParameters& kept) : outer_(kept_here) {
  register_once();
  kept_here = &kept;
  c10::impl::tls_set_dispatch_key_excluded(kKey, false);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

KeepFp32Guard::~KeepFp32Guard() {
  kept_here = outer_;
  if (outer_) return;
  c10::impl::tls_set_dispatch_key_included(kKey, false);
  c10::impl::tls_set_dispatch_key_excluded(kKey, true);
}

const KeptParameters* KeepFp32Guard::current() {
  return kept_here;
}

}  // namespace tern
