#include "tern/kernels/step_unpacker.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/kernels/checks.h"

namespace tern {
namespace {

std::string describe_layout(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "undefined";
  }
  return fmt::format(
      "{} with strides [{}]",
      describe(tensor),
      fmt::join(tensor.strides(), ", "));
}

}  // namespace

StepUnpacker::StepUnpacker(
    const char* where,
    const OptimizerTensors& tensors,
    const GradState& grad_state)
    : where_(where), tensors_(tensors), device_(torch::kCPU) {
  check_param(0);
  device_ = tensors.params[0].device();
  check_device(where_, device_);
  check_count("grads", tensors.grads);
  check_count("steps", tensors.steps);
  if (!tensors.weights.empty()) {
    check_count("weights", tensors.weights);
  }
  grad_state_.grad_scale = unpack_scalar("grad_scale", grad_state.grad_scale);
  grad_state_.found_inf = unpack_scalar("found_inf", grad_state.found_inf);
}

void StepUnpacker::check_count(const char* name, at::TensorList list) const {
  TORCH_CHECK_VALUE(
      list.size() == tensors_.params.size(),
      fmt::format(
          "[{}] {} has {} tensors; expected {}, as many as params. Leave a "
          "parameter without a gradient out of every list.",
          where_,
          name,
          list.size(),
          tensors_.params.size()));
}

void StepUnpacker::check_empty(
    const char* name,
    at::TensorList list,
    const char* why) const {
  TORCH_CHECK_VALUE(
      list.empty(),
      fmt::format(
          "[{}] {} has {} tensors; expected none, because {}. Pass an empty "
          "list.",
          where_,
          name,
          list.size(),
          why));
}

StepTensor StepUnpacker::unpack(size_t i) {
  check_param(i);
  StepTensor out{};
  out.param = tensors_.params[i].mutable_data_ptr<float>();
  out.size = tensors_.params[i].numel();
  unpack_grad(i, out);
  if (!tensors_.weights.empty() && tensors_.weights[i].defined()) {
    unpack_weight(i, out);
  }
  const at::Tensor& step = tensors_.steps[i];
  if (!is_device_scalar(step, device_)) {
    check_device_scalar(
        where_,
        fmt::format("steps[{}]", i).c_str(),
        step,
        device_);
  }
  out.step = step.mutable_data_ptr<float>();
  return out;
}

float* StepUnpacker::unpack_state(
    const char* name,
    at::TensorList list,
    size_t i) const {
  const at::Tensor& state = list[i];
  const bool has_type = state.defined() && state.scalar_type() == at::kFloat;
  check_like_param(name, i, state, has_type, "kFloat");
  return state.mutable_data_ptr<float>();
}

const float* StepUnpacker::unpack_scalar(
    const char* name,
    const std::optional<torch::Tensor>& scalar) const {
  if (!scalar || !scalar->defined()) {
    return nullptr;
  }
  check_device_scalar(where_, name, *scalar, device_);
  return scalar->const_data_ptr<float>();
}

void StepUnpacker::check_param(size_t i) const {
  const at::Tensor& param = tensors_.params[i];
  const bool is_first = i == 0;  // it decides on the device
  TORCH_CHECK_VALUE(
      param.defined() && param.scalar_type() == at::kFloat &&
          (is_first || param.device() == device_) &&
          param.is_non_overlapping_and_dense(),
      fmt::format(
          "[{}] params[{}] is {}; expected a dense kFloat on {}. Make it dense "
          "with clone(), and call once a device.",
          where_,
          i,
          describe_layout(param),
          is_first ? "one device" : device_.str()));
}

void StepUnpacker::check_like_param(
    const char* name,
    size_t i,
    const at::Tensor& tensor,
    bool has_type,
    const char* expected_type) const {
  const at::Tensor& param = tensors_.params[i];
  TORCH_CHECK_VALUE(
      has_type && tensor.device() == device_ && same_layout(param, tensor),
      fmt::format(
          "[{}] {}[{}] is {}; expected {} with sizes [{}] and strides [{}] on "
          "{}, as params[{}]. Make it with torch::empty_like(param, dtype).",
          where_,
          name,
          i,
          describe_layout(tensor),
          expected_type,
          fmt::join(param.sizes(), ", "),
          fmt::join(param.strides(), ", "),
          device_.str(),
          i));
}

void StepUnpacker::unpack_grad(size_t i, StepTensor& out) {
  const at::Tensor& param = tensors_.params[i];
  const at::Tensor* grad = &tensors_.grads[i];
  const auto type =
      grad->defined() ? element_type(grad->scalar_type()) : std::nullopt;
  TORCH_CHECK_VALUE(
      type && type != ElementType::float64 && grad->device() == device_ &&
          grad->layout() == at::kStrided && grad->sizes() == param.sizes(),
      fmt::format(
          "[{}] grads[{}] is {}; expected [{}] kFloat, kHalf or kBFloat16 on "
          "{}, not sparse. Do {}.",
          where_,
          i,
          describe(*grad),
          fmt::join(param.sizes(), ", "),
          device_.str(),
          grad->defined() ? "convert it first"
                          : "leave its parameter out of every list"));
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

void StepUnpacker::unpack_weight(size_t i, StepTensor& out) const {
  const at::Tensor& weight = tensors_.weights[i];
  const auto type = weight.scalar_type();
  const bool has_type = type == at::kHalf || type == at::kBFloat16;
  check_like_param("weights", i, weight, has_type, "kHalf or kBFloat16");
  out.weight = weight.mutable_data_ptr();
  out.weight_type = *element_type(type);
}

}  // namespace tern
