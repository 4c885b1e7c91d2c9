#pragma once

#include <cstdint>
#include <limits>
#include <tuple>
#include <unordered_map>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/step_result.h"

namespace tern {

struct GradScalerOptions {
  /// Device of the losses; only the device type is used. If kCUDA is not
  /// available, warns once and disables the scaler.
  torch::Device device = torch::kCUDA;

  // ---- Changes of the scale ----

  /// Initial scale, finite and > 0. Too high a value costs a few skipped steps;
  /// too low a value silently loses small gradients, so start high.
  double init_scale = 65536;
  /// Factor by which the scale is multiplied after `growth_interval`
  /// consecutive steps without an overflow. > 1.
  double growth_factor = 2;
  /// Factor by which the scale is multiplied after an overflow. In (0, 1).
  double backoff_factor = 0.5;
  /// Number of consecutive steps (at least 1) without an overflow before the
  /// scale grows.
  int64_t growth_interval = 2000;

  /// If false, the scaler changes neither losses nor gradients, and `step`
  /// always steps.
  bool enabled = true;

  // ---- Limits of the scale; off by default, as in PyTorch ----

  double min_scale = 0;
  double max_scale = std::numeric_limits<double>::infinity();
};

/// State of a scaler; `empty()` if the scaler was disabled.
struct GradScalerState {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  int64_t growth_interval = 0;
  int64_t growth_tracker = 0;  // overflow-free steps since the scale changed

  bool empty() const { return growth_interval == 0; }
  /// Calls `f(name, field)` with PyTorch's name of each field.
  template <class F>
  void for_each(const F& f) {
    f("scale", scale);
    f("growth_factor", growth_factor);
    f("backoff_factor", backoff_factor);
    f("growth_interval", growth_interval);
    f("_growth_tracker", growth_tracker);
  }
};

/// Scales losses so that small gradients do not underflow in half precision,
/// and skips steps in which a gradient overflowed. Behaves as
/// `torch.amp.GradScaler`.
///
///   tern::GradScaler scaler;
///   for (...) {
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);   // only if gradients are read or clipped
///     scaler.step(optimizer);
///     scaler.update();              // once, after all optimizers
///     optimizer.zero_grad();
///   }
///
/// Synchronizes with the device once in `step` of an ordinary optimizer, and in
/// the getters of the scale, the growth tracker and the skips; never with an
/// `AmpAware` optimizer. Not thread-safe.
class GradScaler {
 public:
  /// \throws c10::ValueError if an option is out of its range and `enabled`.
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(GradScaler&&) = default;  // not copied: two would share a scale
  GradScaler& operator=(GradScaler&&) = default;

  // ---- One iteration ----

  /// Returns `output * scale`, differentiable. Half and bfloat16 outputs are
  /// converted to kFloat first, because the default scale alone would overflow
  /// them.
  torch::Tensor scale(const torch::Tensor& output);
  Tensors scale(const Tensors& outputs);
  /// The same for any nesting of vectors and tuples, whose structure is kept.
  template <class T>
  std::vector<T> scale(const std::vector<T>& outputs);
  template <class... T>
  std::tuple<T...> scale(const std::tuple<T...>& outputs);

  /// Divides the gradients by the scale in place and records whether one of
  /// them is infinite or NaN. Call it before reading or clipping gradients.
  /// \throws c10::Error if called twice, after `step`, or before `scale`.
  /// \throws c10::ValueError for kHalf gradients; no gradient is changed then.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Runs the optimizer's step unless a gradient is infinite or NaN. Unscales
  /// the gradients first if `unscale_` was not called. Does not detect
  /// gradients that became infinite or NaN after `unscale_`.
  /// \throws c10::Error if called twice, before `scale`, without any gradient,
  ///         or for LBFGS, which needs a closure.
  StepResult step(torch::optim::Optimizer& optimizer);

  /// Like `step`, and clips the joint norm of the gradients to `max_norm`; for
  /// AmpAware optimizers (tern::optim). In a custom training loop, this saves
  /// the extra passes over the gradients of `unscale_` and `clip_grad_norm_`,
  /// provided that nothing else reads the gradients.
  ///
  /// The norm is computed from the scaled gradients and also serves as the
  /// overflow check. The optimizer divides by the scale and the clipping factor
  /// within its step, so gradients are not written. The optimizer's own factor
  /// (FusedOptimizer::grad_scale) is included in the norm. The last bits may
  /// differ from the results of `unscale_`, `clip_grad_norm_` and `step`.
  /// \param max_norm  > 0. A disabled scaler clips as well.
  /// \throws the errors of `step`; c10::Error after `unscale_`; c10::ValueError
  ///         for an optimizer that is not AmpAware.
  StepResult step_clipped(torch::optim::Optimizer& optimizer, double max_norm);

  /// Updates the scale. Call it once per iteration, after all optimizers have
  /// stepped.
  /// \throws c10::Error if neither `step` nor `unscale_` was called before.
  void update();
  /// Sets the scale. The growth tracker keeps its value.
  void update(double new_scale);
  /// \param new_scale  One floating-point element without requires_grad,
  ///                   copied.
  void update(const torch::Tensor& new_scale);

  /// The host part of `update`: warns after 50 consecutive updates that found
  /// an overflow. For iterations that are replayed from a graph.
  void watch_skips();
  /// If true, `update` is being recorded for replays and omits its host part,
  /// so that nothing of that part is recorded; call `watch_skips` after each
  /// replay.
  void set_recording(bool is_recording) { is_recording_ = is_recording; }
  /// Discards the state of an optimizer that is destroyed before `update`.
  void forget(const torch::optim::Optimizer& optimizer);
  /// The same for all optimizers, after an iteration that ended with an
  /// exception.
  void forget_all();

  // ---- Queries ----

  /// Returns the current scale; 1 if disabled.
  double get_scale() const;
  /// Returns the number of steps without an overflow since the scale changed; 0
  /// if disabled.
  int64_t growth_tracker() const;
  /// Returns the number of consecutive updates that found an overflow. At 50, a
  /// warning lists likely causes.
  int64_t consecutive_skips() const;
  /// Returns a 0-dim kFloat tensor that is nonzero if a gradient of `optimizer`
  /// was infinite or NaN. Available from `unscale_` or `step` until `update`.
  /// This does not read the value from the device.
  torch::Tensor found_inf(const torch::optim::Optimizer& optimizer) const;
  /// Returns the current scale and the number of consecutive skips, [2] kFloat
  /// on the device, so that many records can later be read at once. Undefined
  /// before the first `scale`, and if disabled.
  torch::Tensor record() const;
  bool is_enabled() const { return enabled_; }

  double get_growth_factor() const { return options_.growth_factor; }
  void set_growth_factor(double factor);
  double get_backoff_factor() const { return options_.backoff_factor; }
  void set_backoff_factor(double factor);
  int64_t get_growth_interval() const { return options_.growth_interval; }
  /// If the growth tracker is already beyond the new interval, the scale grows
  /// at the next step without an overflow.
  void set_growth_interval(int64_t interval);

  // ---- Saving; call between `update` and the next `scale` ----

  GradScalerState state_dict() const;
  /// \throws c10::ValueError if `state` is empty or out of range.
  void load_state_dict(const GradScalerState& state);
  /// Saves and loads the state under PyTorch's names.
  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct Record {
    Stage stage = Stage::ready;
    std::unordered_map<torch::Device, torch::Tensor>
        found_inf;  // 0-dim kFloat each
  };
  /// Scale, growth tracker and skips, read from the device in one transfer.
  struct Values {
    float scale;
    int32_t growth_tracker;
    float skips;
  };

  void check_scaled(const char* method) const;
  void check_gradients(
      torch::optim::Optimizer& optimizer,
      Record& record,
      bool unscale);
  torch::Tensor combine(const Record& record, torch::Tensor found = {}) const;
  torch::Tensor combine_all() const;
  void set_scale(const torch::Tensor& new_scale);
  void count_skips(const torch::Tensor& found);
  void warn_of_skips(int64_t skips) const;
  void create_tensors(torch::Device device);
  torch::Tensor scale_on(torch::Device device) const;
  Values values() const;

  GradScalerOptions options_;
  bool enabled_;
  /// The initial values of the tensors, which the getters return until the
  /// tensors exist.
  Values initial_;
  /// [3] kFloat: the values; the growth tracker is stored as the bits of an
  /// int32.
  torch::Tensor packed_;
  torch::Tensor scale_, growth_tracker_, skips_;  // 0-dim views of packed_
  torch::Tensor skips_mailbox_;  // pinned; the value of `skips_` 50 updates ago
  int64_t updates_ = 0;
  bool is_recording_ = false;
  mutable bool has_warned_ = false;
  std::unordered_map<const torch::optim::Optimizer*, Record> records_;
};

template <class T>
std::vector<T> GradScaler::scale(const std::vector<T>& outputs) {
  std::vector<T> scaled;
  scaled.reserve(outputs.size());
  for (const T& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

template <class... T>
std::tuple<T...> GradScaler::scale(const std::tuple<T...>& outputs) {
  return std::apply(
      [this](const T&... output) { return std::tuple<T...>{scale(output)...}; },
      outputs);
}

}  // namespace tern
