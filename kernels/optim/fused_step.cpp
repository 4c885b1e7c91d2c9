#include "tern/kernels/optim/fused_step.h"

#include <cstring>
#include <deque>
#include <initializer_list>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>

#include "tern/kernels/check.h"
#include "tern/kernels/dispatch.h"
#include "tern/kernels/optim/dynamic_map.h"
#include "tern/kernels/optim/fused_step_math.h"

namespace tern {
namespace {

std::string describe_layout(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format(
      "{} with strides [{}]",
      describe(tensor),
      fmt::join(tensor.strides(), ", "));
}

/// True if one pass over memory visits the same elements of both: equal sizes,
/// no gaps or overlaps, and the same order of dimensions.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  for (int64_t i = 0; i < a.dim(); ++i) {
    // The stride of a dimension with one element is arbitrary.
    if (a.size(i) > 1 && a.stride(i) != b.stride(i)) return false;
  }
  return a.is_non_overlapping_and_dense();
}

/// An optimizer's state for its parameters, other than step counts.
struct StateList {
  const char* name;
  at::TensorList list;
  bool is_used = true;
  const char* why_unused = "";
};

/// Checks the lists of one fused optimizer step and converts them to pointers.
/// Keep it alive until the kernels have been launched.
class StepUnpacker {
 public:
  /// `where` names the public function in messages; `tensors` is not empty.
  StepUnpacker(
      const char* where,
      const OptimizerTensors& tensors,
      bool looks_ahead,
      const GradState& grad_state)
      : where_(where),
        tensors_(tensors),
        slow_weights_{
            "slow_weights",
            tensors.slow_weights,
            looks_ahead,
            "Lookahead is off"},
        device_(torch::kCPU) {
    check_param(0);
    device_ = tensors.params[0].device();
    check_device(where_, device_);
    check_count("grads", tensors.grads);
    check_count("steps", tensors.steps);
    if (!tensors.weights.empty()) check_count("weights", tensors.weights);
    check_count(slow_weights_);
    grad_state_.grad_scale = unpack_scalar("grad_scale", grad_state.grad_scale);
    grad_state_.found_inf = unpack_scalar("found_inf", grad_state.found_inf);
  }

  torch::Device device() const { return device_; }
  const GradStatePointers& grad_state() const { return grad_state_; }

  /// \throws c10::ValueError unless `list` has one entry per parameter.
  void check_count(const char* name, at::TensorList list) const {
    TERN_CHECK_VALUE(
        list.size() == tensors_.params.size(),
        "[{}] {} has {} tensors; expected {}, one per entry of params. Omit a "
        "parameter without a gradient from every list.",
        where_,
        name,
        list.size(),
        tensors_.params.size());
  }

  void check_count(const StateList& states) const {
    if (states.is_used) return check_count(states.name, states.list);
    TERN_CHECK_VALUE(
        states.list.empty(),
        "[{}] {} has {} tensors; expected none, because {}. Pass an empty "
        "list.",
        where_,
        states.name,
        states.list.size(),
        states.why_unused);
  }

  /// Returns parameter i with its gradient, weight and step count.
  StepTensor unpack(size_t i) {
    check_param(i);
    StepTensor out{};
    const at::Tensor& param = tensors_.params[i];
    out.size = param.numel();
    unpack_grad(i, out);
    const bool has_weight =
        !tensors_.weights.empty() && tensors_.weights[i].defined();
    if (param.scalar_type() == at::kFloat) {
      out.param = param.mutable_data_ptr<float>();
      if (has_weight) unpack_weight(i, out);
    } else {
      TERN_CHECK_VALUE(
          !has_weight,
          "[{}] params[{}] is kBFloat16, but weights[{}] is defined; `weights` "
          "holds the 16-bit copies of kFloat master weights. Leave it "
          "undefined for a kBFloat16 parameter.",
          where_,
          i,
          i);
      out.weight = param.mutable_data_ptr();
      out.weight_type = ElementType::bfloat16;
      out.rounding_key = tensors_.rounding_keys[i];
    }
    const at::Tensor& step = tensors_.steps[i];
    check_device_scalar(where_, "steps", step, device_, i);
    out.step = step.mutable_data_ptr<float>();
    out.slow_weight = unpack(slow_weights_, i);
    return out;
  }

  /// Returns moment i, and whether it has 8 bits.
  std::pair<void*, bool> unpack_moment(const StateList& states, size_t i)
      const {
    const bool is_8bit = states.is_used && states.list[i].defined() &&
                         states.list[i].scalar_type() == at::kByte;
    if (!is_8bit) return {unpack(states, i), false};
    const at::Tensor& moment = states.list[i];
    const int64_t size = moment_8bit_size(tensors_.params[i]);
    TERN_CHECK_VALUE(
        moment.dim() == 1 && moment.numel() == size && moment.is_contiguous() &&
            moment.device() == device_ &&
            moment.storage_offset() % sizeof(float) == 0,
        "[{}] {}[{}] is {}; expected [{}] kByte on {} for an 8-bit moment, or "
        "a kFloat. Create it with torch::zeros(moment_8bit_size(param), "
        "torch::kByte).",
        where_,
        states.name,
        i,
        describe_layout(moment),
        size,
        device_.str());
    return {moment.mutable_data_ptr(), true};
  }

  /// Returns entry i of a kFloat list like `params` that the step writes to.
  float* unpack(const StateList& states, size_t i) const {
    if (!states.is_used) return nullptr;
    const at::Tensor& state = states.list[i];
    const bool has_type = state.defined() && state.scalar_type() == at::kFloat;
    check_like_param(states.name, i, state, has_type, "kFloat");
    return state.mutable_data_ptr<float>();
  }

 private:
  const float* unpack_scalar(
      const char* name,
      const std::optional<torch::Tensor>& scalar) const {
    if (!scalar || !scalar->defined()) return nullptr;
    check_device_scalar(where_, name, *scalar, device_);
    return scalar->const_data_ptr<float>();
  }

  void check_param(size_t i) const {
    const at::Tensor& param = tensors_.params[i];
    const bool is_first = i == 0;  // determines the device
    const bool has_key = i < tensors_.rounding_keys.size();
    TERN_CHECK_VALUE(
        param.defined() &&
            (param.scalar_type() == at::kFloat ||
             (param.scalar_type() == at::kBFloat16 && has_key)) &&
            (is_first || param.device() == device_) &&
            param.is_non_overlapping_and_dense(),
        "[{}] params[{}] is {}; expected a dense kFloat, or kBFloat16 with a "
        "rounding key, on {}. Make it dense with clone(), and call once per "
        "device.",
        where_,
        i,
        describe_layout(param),
        is_first ? "one device" : device_.str());
  }

  void check_like_param(
      const char* name,
      size_t i,
      const at::Tensor& tensor,
      bool has_type,
      const char* expected_type) const {
    const at::Tensor& param = tensors_.params[i];
    TERN_CHECK_VALUE(
        has_type && tensor.device() == device_ && same_layout(param, tensor),
        "[{}] {}[{}] is {}; expected {} with sizes [{}] and strides [{}] on "
        "{}, like params[{}]. Create it with torch::empty_like(param, dtype).",
        where_,
        name,
        i,
        describe_layout(tensor),
        expected_type,
        fmt::join(param.sizes(), ", "),
        fmt::join(param.strides(), ", "),
        device_.str(),
        i);
  }

  void unpack_grad(size_t i, StepTensor& out) {
    const at::Tensor& param = tensors_.params[i];
    const at::Tensor* grad = &tensors_.grads[i];
    const auto type =
        grad->defined() ? element_type(grad->scalar_type()) : std::nullopt;
    TERN_CHECK_VALUE(
        type && type != ElementType::float64 && grad->device() == device_ &&
            grad->layout() == at::kStrided && grad->sizes() == param.sizes(),
        "[{}] grads[{}] is {}; expected [{}] kFloat, kHalf or kBFloat16 on {}, "
        "not sparse. {}.",
        where_,
        i,
        describe(*grad),
        fmt::join(param.sizes(), ", "),
        device_.str(),
        grad->defined() ? "Convert it first"
                        : "Omit its parameter from every list");
    if (!same_layout(param, *grad)) {
      const at::NoGradGuard no_grad;
      copies_.push_back(
          at::empty_strided(param.sizes(), param.strides(), grad->options()));
      copies_.back().copy_(*grad);
      grad = &copies_.back();
    }
    out.grad = grad->const_data_ptr();
    out.grad_type = *type;
  }

  void unpack_weight(size_t i, StepTensor& out) const {
    const at::Tensor& weight = tensors_.weights[i];
    const auto type = weight.scalar_type();
    const bool has_type = type == at::kHalf || type == at::kBFloat16;
    check_like_param("weights", i, weight, has_type, "kHalf or kBFloat16");
    out.weight = weight.mutable_data_ptr();
    out.weight_type = *element_type(type);
  }

  const char* where_;
  const OptimizerTensors& tensors_;
  StateList slow_weights_;
  torch::Device device_;
  GradStatePointers grad_state_;
  /// Gradients copied into their parameter's layout.
  std::deque<at::Tensor> copies_;
};

/// Increments the version counters, as an in-place operation of ATen would.
void bump_versions(at::TensorList list) {
  for (const at::Tensor& tensor : list) {
    if (tensor.defined()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

template <class Args>
torch::Tensor bytes_of(const Args& args, torch::Device device) {
  const auto host = torch::empty({sizeof(Args)}, torch::kByte);
  std::memcpy(host.data_ptr(), &args, sizeof(Args));
  return host.to(device);
}

// Returns null if `tensor` is undefined.
template <class Args>
const Args*
args_in(const char* where, const torch::Tensor& tensor, torch::Device device) {
  if (!tensor.defined()) return nullptr;
  TERN_CHECK_VALUE(
      tensor.scalar_type() == torch::kByte && tensor.is_contiguous() &&
          tensor.numel() == sizeof(Args) && tensor.device() == device,
      "[{}] args_on_device is {} {} on {}; expected {} bytes on {}, as "
      "to_tensor returns them for the same arguments.",
      where,
      tensor.numel(),
      c10::toString(tensor.scalar_type()),
      tensor.device().str(),
      sizeof(Args),
      device.str());
  return static_cast<const Args*>(tensor.const_data_ptr());
}

// For LibTorch's profiler, and for tests that replay a step.
template <class... Rest>
std::vector<c10::IValue> inputs_of(
    const OptimizerTensors& t,
    const GradState& state,
    const Rest&... rest) {
  return {
      t.params,
      t.grads,
      t.weights,
      t.steps,
      state.grad_scale,
      state.found_inf,
      rest...};
}

template <class Tensor>
torch::Tensor room_for_sums(std::vector<Tensor>& list, torch::Device device) {
  const auto blocks = [](const Tensor& tensor) {
    return (tensor.size + kStepBlock - 1) / kStepBlock;
  };
  int64_t all = 0;
  for (const Tensor& tensor : list) all += blocks(tensor);
  const auto sums =
      torch::empty({2 * all}, at::device(device).dtype(at::kDouble));
  double* next = sums.data_ptr<double>();
  for (Tensor& tensor : list) {
    tensor.sums = next;
    next += 2 * blocks(tensor);
  }
  return sums;
}

template <class Tensor, class Args>
void run(
    const char* where,
    const OptimizerTensors& tensors,
    std::initializer_list<StateList> states,
    const Args& args,
    const GradState& grad_state,
    const torch::Tensor& args_on_device) {
  const bool looks_ahead = args.lookahead.k > 0;
  StepUnpacker unpacker(where, tensors, looks_ahead, grad_state);
  for (const StateList& list : states) unpacker.check_count(list);
  std::vector<Tensor> list(tensors.params.size());
  for (size_t i = 0; i < list.size(); ++i) {
    static_cast<StepTensor&>(list[i]) = unpacker.unpack(i);
    void** state = list[i].states;
    int used = 0, of_8bit = 0;
    for (const StateList& of_all : states) {
      const auto [data, is_8bit] = unpacker.unpack_moment(of_all, i);
      *state++ = data;
      used += of_all.is_used;
      of_8bit += is_8bit;
    }
    TERN_CHECK_VALUE(
        of_8bit == 0 || of_8bit == used,
        "[{}] {} of {} moments of params[{}] are 8-bit; expected all or "
        "none.",
        where,
        of_8bit,
        used,
        i);
    list[i].has_8bit_moments = of_8bit != 0;
  }
  torch::Tensor sums;
  if (has_trust_ratio(args)) sums = room_for_sums(list, unpacker.device());
  const auto count = static_cast<int64_t>(list.size());
  const GradStatePointers& state = unpacker.grad_state();
  const auto* there = args_in<Args>(where, args_on_device, unpacker.device());
  dispatch_device(
      unpacker.device(),
      [&] { fused_step_cpu(list.data(), count, args_now(args, there), state); },
      [&](auto stream) {
        return fused_step_cuda(list.data(), count, args, there, state, stream);
      });
  bump_versions(tensors.params);
  bump_versions(tensors.weights);
  bump_versions(tensors.slow_weights);
  for (const StateList& written : states) bump_versions(written.list);
}

}  // namespace

int64_t moment_8bit_size(const at::Tensor& param) {
  return moment_8bit_bytes(param.numel());
}

torch::Tensor to_tensor(const FusedSgdArgs& args, torch::Device device) {
  return bytes_of(args, device);
}

torch::Tensor to_tensor(const FusedAdamArgs& args, torch::Device device) {
  return bytes_of(args, device);
}

void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state,
    const torch::Tensor& args_on_device) {
  if (tensors.params.empty()) return;
  RECORD_FUNCTION(
      "tern::fused_sgd_",
      inputs_of(tensors, grad_state, args_on_device, momentum_buffers));
  run<SgdTensor>(
      "fused_sgd_",
      tensors,
      {{"momentum_buffers",
        momentum_buffers,
        args.momentum != 0,
        "momentum is 0"}},
      args,
      grad_state,
      args_on_device);
}

void fused_adam_(
    const OptimizerTensors& tensors,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    const FusedAdamArgs& args,
    const GradState& grad_state,
    const torch::Tensor& args_on_device) {
  if (tensors.params.empty()) return;
  RECORD_FUNCTION(
      "tern::fused_adam_",
      inputs_of(
          tensors,
          grad_state,
          args_on_device,
          exp_avgs,
          exp_avg_sqs,
          max_exp_avg_sqs));
  TERN_CHECK_VALUE(
      !args.amsgrad || !args.trust_ratio,
      "[fused_adam_] amsgrad and trust_ratio are both set; expected one.");
  run<AdamTensor>(
      "fused_adam_",
      tensors,
      {{"exp_avgs", exp_avgs},
       {"exp_avg_sqs", exp_avg_sqs},
       {"max_exp_avg_sqs", max_exp_avg_sqs, args.amsgrad, "amsgrad is off"}},
      args,
      grad_state,
      args_on_device);
}

}  // namespace tern
