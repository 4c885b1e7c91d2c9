#include "tern/learner/forward_error.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/support/error_text.h"
#include "tern/learner/model_around.h"

namespace tern {

namespace {

thread_local bool is_repeated = false;

// An operation that the model's forward calls directly.
struct Operation {
  std::string name;      // "linear"
  std::string module;    // owner of its weights; empty: it has no weights
  torch::Tensor weight;  // the weight with the most dimensions
  Tensors given;         // inputs that are not weights
  Tensors results;
};

class Watch {
 public:
  explicit Watch(const ModelImpl& model) {
    for (const auto& tensors :
         {model.parameters(), model.buffers(), model.state()}) {
      for (const ModelTensor& item : tensors) {
        weights_.try_emplace(item.tensor.unsafeGetTensorImpl(), item);
      }
    }
    here = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&Watch::begin, &Watch::end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~Watch() {
    at::removeCallback(handle_);
    here = nullptr;
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// The operation that failed; unset: no operation failed.
  const std::optional<Operation>& failed() const { return failed_; }
  /// The last operation with weights before the failure, and the last operation
  /// of any kind.
  const Operation& layer_before() const { return layer_; }
  const Operation& before() const { return before_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(
      const at::RecordFunction& function) {
    if (here->depth_++ == 0) here->running_ = here->describe(function);
    return nullptr;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext*) {
    Watch& watch = *here;
    if (--watch.depth_ > 0) return;
    if (std::uncaught_exceptions() > watch.exceptions_) {
      watch.failed_ = std::move(watch.running_);
      return;
    }
    Operation& done = watch.running_;
    done.results = tensors_of(function.outputs());
    if (!done.module.empty()) {
      if (done.given.empty()) {
        watch.note_weights(done);
        return;
      }
      watch.layer_ = done;
    }
    watch.before_ = std::move(done);
  }

  static Tensors tensors_of(std::span<const c10::IValue> values) {
    Tensors tensors;
    for (const c10::IValue& value : values) {
      if (value.isTensor() && value.toTensor().defined()) {
        tensors.push_back(value.toTensor());
      } else if (value.isTensorList()) {
        for (const torch::Tensor& tensor : value.toTensorVector()) {
          tensors.push_back(tensor);
        }
      }
    }
    return tensors;
  }

  // A view of a weight is treated as the weight.
  const ModelTensor* weight(const torch::Tensor& tensor) const {
    auto found = weights_.find(tensor.unsafeGetTensorImpl());
    if (found == weights_.end() && tensor.is_view()) {
      found = weights_.find(tensor._base().unsafeGetTensorImpl());
    }
    return found == weights_.end() ? nullptr : &found->second;
  }

  Operation describe(const at::RecordFunction& function) const {
    Operation operation;
    operation.name = function.name();
    operation.name.erase(0, operation.name.rfind(':') + 1);
    for (const torch::Tensor& input : tensors_of(function.inputs())) {
      const ModelTensor* const own = weight(input);
      if (!own) {
        operation.given.push_back(input);
        continue;
      }
      if (operation.weight.defined() &&
          operation.weight.dim() >= own->tensor.dim()) {
        continue;
      }
      operation.weight = own->tensor;
      const size_t dot = own->name.rfind('.');
      operation.module = own->name.substr(0, std::min(dot, own->name.size()));
    }
    return operation;
  }

  // Records results computed only from weights, such as a weight with its
  // adapter.
  void note_weights(const Operation& done) {
    for (const torch::Tensor& result : done.results) {
      if (weight(result)) continue;
      made_.push_back(result);  // kept alive, so that no address is reused
      weights_[result.unsafeGetTensorImpl()] = {done.module + ".", result};
    }
  }

  // LibTorch's callbacks cannot capture anything.
  inline static thread_local Watch* here = nullptr;

  int exceptions_ = std::uncaught_exceptions();
  int64_t depth_ = 0;
  std::unordered_map<const c10::TensorImpl*, ModelTensor> weights_;
  Tensors made_;
  Operation running_, layer_, before_;
  std::optional<Operation> failed_;
  at::CallbackHandle handle_ = 0;
};

// Repeats the pass, which an existing Watch observes.
// \return true if it failed for the same reason as before.
bool fails_again(
    ModelImpl& model,
    const Tensors& inputs,
    const std::string& reason) {
  std::vector<std::pair<torch::Tensor, torch::Tensor>> buffers;
  for (const ModelTensor& item : model.buffers()) {
    buffers.emplace_back(item.tensor, item.tensor.detach().clone());
  }
  std::vector<std::pair<at::Generator, torch::Tensor>> generators;
  const auto keep_random = [&](torch::Device device) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    generators.emplace_back(generator, generator.get_state());
  };
  keep_random(torch::kCPU);
  for (const torch::Tensor& input : inputs) {
    if (!input.is_cpu()) keep_random(input.device());
  }
  const auto restore = c10::make_scope_exit([&] {
    is_repeated = false;
    const torch::NoGradGuard no_grad;
    for (auto& [buffer, before] : buffers) buffer.copy_(before);
    for (auto& [generator, state] : generators) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  });
  is_repeated = true;
  try {
    model.forward(inputs);
  } catch (const std::exception& error) {
    return reason_of(error) == reason;
  }
  return false;
}

bool says_any(
    const std::string& reason,
    std::initializer_list<std::string_view> words) {
  std::string low = reason;
  std::ranges::transform(low, low.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return std::ranges::any_of(words, [&](std::string_view word) {
    return low.find(word) != std::string::npos;
  });
}

std::string place_of(const Watch& watch) {
  const Operation& layer = watch.layer_before();
  const std::string behind =
      layer.module.empty() ? "before any layer" : "behind " + layer.module;
  if (!watch.failed()) {
    const Tensors& last = watch.before().results;
    return last.empty()
               ? behind
               : fmt::format("{}, with {}", behind, shapes_of({last[0]}));
  }
  const Operation& failed = *watch.failed();
  if (failed.module.empty()) {
    return fmt::format(
        "{}, {} received {}",
        behind,
        failed.name,
        shapes_of(failed.given));
  }
  return fmt::format(
      "{} received {}, and its weight is {}",
      failed.module,
      failed.given.empty() ? "nothing" : shapes_of({failed.given[0]}),
      shapes_of({failed.weight}));
}

std::string type_name(const torch::Tensor& tensor) {
  return c10::toString(tensor.scalar_type());
}

// Returns advice, or "" if none is known.
std::string advice_for(const std::string& reason, const Watch& watch) {
  const Operation& layer = watch.layer_before();
  const Operation failed = watch.failed().value_or(Operation());
  const bool is_first = layer.module.empty();
  if (says_any(reason, {"more than 1 value per channel when training"})) {
    return "BatchNorm needs at least two samples: omit a short last batch "
           "(.drop_last = true), or use a different batch size.";
  }
  if (says_any(
          reason,
          {"not implemented for 'half'",
           "not implemented for 'bfloat16'",
           "low precision dtypes not supported",
           "unsupported dtype half",
           "unsupported dtype bfloat16"})) {
    return fmt::format(
        "This operation has no 16-bit version: name {} in keep_fp32, or train "
        "with to_amp.",
        failed.module.empty() ? "its module" : failed.module);
  }
  if (says_any(reason, {"same device", "expected device"})) {
    return "Create the tensors in the model's forward on the device of its "
           "inputs (x.options()).";
  }
  if (failed.name.starts_with("embedding")) {
    if (says_any(reason, {"index out of range"})) {
      return fmt::format(
          "Give indices from 0 to {}.",
          failed.weight.defined() ? failed.weight.size(0) - 1 : 0);
    }
    return "Give it integers: indices of kLong or kInt.";
  }
  if (says_any(reason, {"dtype", "scalar type", "same type", "input type"})) {
    if (failed.module.empty() || failed.given.empty()) {
      return "Convert one of them to the dtype of the other (y.to(x.dtype())).";
    }
    if (is_first) {
      return fmt::format(
          "Give the model samples of {}: convert them in the dataset or by a "
          "batch transform such as normalize.",
          type_name(failed.weight));
    }
    return fmt::format(
        "Convert its input to {} in the model's forward "
        "(x.to(weight.dtype())).",
        type_name(failed.weight));
  }
  if (!says_any(
          reason,
          {"shape",
           "size",
           "dim",
           "channel",
           "element",
           "multipl",
           "feature",
           "d input"})) {
    return "";
  }
  if (is_first) return "Make the samples match the model's first layer.";
  if (failed.module.empty()) {
    return fmt::format(
        "Change what the model's forward does after {}.",
        layer.module);
  }
  return fmt::format(
      "Make it match {}, the layer before it, which returns {}.",
      layer.module,
      layer.results.empty() ? "nothing" : shapes_of({layer.results[0]}));
}

}  // namespace

bool is_forward_repeated() {
  return is_repeated;
}

std::string explain_forward_error(
    ModelImpl& model,
    const Tensors& inputs,
    const std::string& reason) {
  const std::string given = fmt::format(
      "[Model] the model cannot take inputs of {}",
      shapes_of(inputs));
  // A model on several devices runs in other threads.
  if (!is_repeated && !dynamic_cast<const ModelAround*>(&model)) {
    const Watch watch(model);
    if (fails_again(model, inputs, reason)) {
      const std::string advice = advice_for(reason, watch);
      return fmt::format(
          "{}; {}: {}.{}",
          given,
          place_of(watch),
          reason,
          advice.empty() ? "" : " " + advice);
    }
  }
  return fmt::format("{}; {}.", given, reason);
}

}  // namespace tern
