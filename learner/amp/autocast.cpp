#include "tern/learner/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/cuda.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

torch::DeviceType checked(torch::Device device) {
  TERN_CHECK_VALUE(
      device.is_cpu() || device.is_cuda(),
      "[AutocastGuard] the device is {}; expected CPU or CUDA.",
      device.str());
  return device.type();
}

torch::ScalarType checked(torch::ScalarType dtype, bool enabled) {
  TERN_CHECK_VALUE(
      !enabled || dtype == torch::kHalf || dtype == torch::kBFloat16,
      "[AutocastGuard] dtype is {}; expected kHalf or kBFloat16. To train in a "
      "different dtype, convert the model.",
      c10::toString(dtype));
  return dtype;
}

bool can_be_enabled(torch::DeviceType device, bool enabled) {
  if (!enabled || device != torch::kCUDA || torch::cuda::is_available()) {
    return enabled;
  }
  TORCH_WARN_ONCE(
      "[AutocastGuard] the device is CUDA, but no CUDA device is available, so "
      "autocast stays off. Pass the device that the model runs on.");
  return false;
}

}  // namespace

AutocastGuard::AutocastGuard(
    torch::Device device,
    std::optional<torch::ScalarType> dtype,
    bool enabled,
    bool cache_enabled)
    : device_(checked(device)),
      dtype_(checked(
          dtype.value_or(at::autocast::get_autocast_dtype(device_)),
          enabled)),
      outer_dtype_(at::autocast::get_autocast_dtype(device_)),
      outer_enabled_(at::autocast::is_autocast_enabled(device_)),
      outer_cache_enabled_(at::autocast::is_autocast_cache_enabled()),
      uses_cache_(cache_enabled),
      // The cache looks up a copy by the weight alone, not by the copy's dtype.
      // While autocast is off, weights may change without the cache being
      // updated.
      has_own_cache_(dtype_ != outer_dtype_ || !outer_enabled_) {
  at::autocast::set_autocast_enabled(device_, can_be_enabled(device_, enabled));
  at::autocast::set_autocast_dtype(device_, dtype_);
  at::autocast::set_autocast_cache_enabled(cache_enabled);
  if (!uses_cache_) return;
  at::autocast::increment_nesting();
  if (has_own_cache_) at::autocast::clear_cache();
}

AutocastGuard::~AutocastGuard() {
  if (uses_cache_) {
    const bool is_outermost = at::autocast::decrement_nesting() == 0;
    if (is_outermost || has_own_cache_) at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(device_, outer_enabled_);
  at::autocast::set_autocast_dtype(device_, outer_dtype_);
  at::autocast::set_autocast_cache_enabled(outer_cache_enabled_);
}

namespace amp {

namespace {

constexpr const char* kEnabled = "tern_autocast_enabled";
constexpr const char* kDtype = "tern_autocast_dtype";

torch::jit::IValue saved(
    const torch::autograd::AutogradContext& ctx,
    const char* key) {
  const auto found = ctx.saved_data.find(key);
  TORCH_CHECK(
      found != ctx.saved_data.end(),
      "[amp::BackwardGuard] forward has not saved the autocast state; call "
      "amp::save_autocast(ctx, device) in forward.");
  return found->second;
}

}  // namespace

AutocastState::AutocastState(torch::DeviceType device)
    : enabled(at::autocast::is_autocast_enabled(device)),
      dtype(at::autocast::get_autocast_dtype(device)) {}

void save_autocast(
    torch::autograd::AutogradContext* ctx,
    torch::Device device) {
  const AutocastState state(device.type());
  ctx->saved_data[kEnabled] = state.enabled;
  ctx->saved_data[kDtype] = static_cast<int64_t>(state.dtype);
}

BackwardGuard::BackwardGuard(
    torch::autograd::AutogradContext* ctx,
    torch::Device device)
    : guard_(
          device,
          static_cast<torch::ScalarType>(saved(*ctx, kDtype).toInt()),
          saved(*ctx, kEnabled).toBool(),
          at::autocast::is_autocast_cache_enabled()) {}

CastInputs::CastInputs(torch::Device device, torch::ScalarType dtype)
    : device_(device.type()),
      dtype_(dtype),
      casts_(at::autocast::is_autocast_enabled(device_)),
      // If autocast is disabled already, this changes nothing.
      off_(
          device,
          {},
          /*enabled=*/false,
          at::autocast::is_autocast_cache_enabled()) {
  TERN_CHECK_VALUE(
      c10::isFloatingType(dtype),
      "[amp::CastInputs] dtype is {}; expected a floating-point dtype.",
      c10::toString(dtype));
}

torch::Tensor CastInputs::operator()(const torch::Tensor& tensor) const {
  const bool eligible =
      casts_ && tensor.defined() && tensor.device().type() == device_ &&
      tensor.is_floating_point() && tensor.scalar_type() != torch::kDouble;
  return eligible ? tensor.to(dtype_) : tensor;
}

}  // namespace amp
}  // namespace tern
