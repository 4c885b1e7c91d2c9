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
  /// Where the losses will be. kCUDA on a machine without: warns once, and the
  /// scaler is disabled. A device or its type, of which the type counts.
  torch::Device device = torch::kCUDA;

  // ---- How the scale moves ----

  /// First scale, finite and > 0. Too high costs a few skipped steps; too low
  /// loses small gradients without a sign, so start high.
  double init_scale = 65536;
  /// > 1; the scale is multiplied by it after `growth_interval` clean steps.
  double growth_factor = 2;
  /// In (0, 1); the scale is multiplied by it after an overflow.
  double backoff_factor = 0.5;
  /// Clean steps in a row before the scale grows, >= 1.
  int64_t growth_interval = 2000;

  /// false: every method passes things through.
  bool enabled = true;

  // ---- Where `update` stops; off by default, as in PyTorch ----

  double min_scale = 0;
  double max_scale = std::numeric_limits<double>::infinity();
};

/// What a scaler must remember; `empty()` when it came from a disabled one.
struct GradScalerState {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  int64_t growth_interval = 0;
  int64_t growth_tracker = 0;  // clean steps since the scale changed

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

/// Scales losses so that small gradients survive half precision, and skips the
/// steps in which large ones did not. Behaves as `torch.amp.GradScaler`.
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
/// Waits for the device once in `step` of an ordinary optimizer and in the
/// getters of scale, tracker and skips; nowhere with an `AmpAware` one.
/// Not thread-safe.
class GradScaler {
 public:
  /// \throws c10::ValueError if an option is out of its range and `enabled`.
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(GradScaler&&) = default;  // not copied: two would share a scale
  GradScaler& operator=(GradScaler&&) = default;

  // ---- One iteration ----

  /// `output * scale`, differentiable. Half and bfloat16 outputs become kFloat
  /// first, since the default scale would overflow them by itself.
  torch::Tensor scale(const torch::Tensor& output);
  Tensors scale(const Tensors& outputs);
  /// Any nesting of vectors and tuples keeps its structure.
  template <class T>
  std::vector<T> scale(const std::vector<T>& outputs);
  template <class... T>
  std::tuple<T...> scale(const std::tuple<T...>& outputs);

  /// Divides the gradients by the scale in place and notes whether one is not
  /// finite; for whoever reads or clips gradients before `step`.
  /// \throws c10::Error if called twice or after `step`, or before `scale`.
  /// \throws c10::ValueError for kHalf gradients; none has changed then.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps unless a gradient is not finite; unscales first if nobody has.
  /// Gradients that became non-finite after `unscale_` are not seen.
  /// \throws c10::Error if called twice, before `scale`, without any gradient,
  ///         or for LBFGS, which needs a closure.
  StepResult step(torch::optim::Optimizer& optimizer);

  /// `step` of an AmpAware optimizer (tern::optim) with the joint norm of its
  /// gradients brought down to `max_norm`. In a loop of your own it saves the
  /// pass of `unscale_` and `clip_grad_norm_`, if nothing else reads the
  /// gradients. That norm, read from the scaled gradients, is the check for
  /// overflow too, and the step divides by scale and clipping at once: nothing
  /// is written but by the optimizer. A factor of the optimizer's own
  /// (FusedOptimizer::grad_scale) counts as norm. With `unscale_`,
  /// `clip_grad_norm_` and `step` the last bits may differ.
  /// \param max_norm  > 0. A disabled scaler clips all the same.
  /// \throws as `step`; c10::Error after `unscale_`; c10::ValueError for an
  ///         optimizer that is not AmpAware.
  StepResult step_clipped(torch::optim::Optimizer& optimizer, double max_norm);

  /// Moves the scale, once an iteration however many optimizers stepped.
  /// \throws c10::Error if no `step` or `unscale_` came before it.
  void update();
  /// Sets the scale; the growth tracker stays as it is.
  void update(double new_scale);
  /// \param new_scale  One floating element without requires_grad, copied.
  void update(const torch::Tensor& new_scale);

  /// The host's part of `update`: warns of 50 updates in a row that found an
  /// overflow. For iterations that are replayed.
  void watch_skips();
  /// true: `update` is being recorded for replays and leaves its host part out,
  /// so that nothing of it is recorded; call `watch_skips` after each replay.
  void set_recording(bool is_recording) { is_recording_ = is_recording; }
  /// Drops what is known of an optimizer that dies before `update`.
  void forget(const torch::optim::Optimizer& optimizer);
  /// The same of all, of an iteration that ended by an exception.
  void forget_all();

  // ---- Asking ----

  /// 1 if disabled.
  double get_scale() const;
  /// Clean steps since the scale changed; 0 if disabled.
  int64_t growth_tracker() const;
  /// Updates in a row that found an overflow. At 50 a warning tells of likely
  /// causes.
  int64_t consecutive_skips() const;
  /// 0-dim kFloat: not 0 if a gradient of `optimizer` was not finite. Known
  /// from `unscale_` or `step` until `update`; reading it is up to the caller.
  torch::Tensor found_inf(const torch::optim::Optimizer& optimizer) const;
  /// Scale and consecutive skips as they are now, [2] kFloat on the device, for
  /// who reads many at once later. Undefined before the first `scale`, and if
  /// disabled.
  torch::Tensor record() const;
  bool is_enabled() const { return enabled_; }

  double get_growth_factor() const { return options_.growth_factor; }
  void set_growth_factor(double factor);
  double get_backoff_factor() const { return options_.backoff_factor; }
  void set_backoff_factor(double factor);
  int64_t get_growth_interval() const { return options_.growth_interval; }
  /// A tracker beyond the new interval grows the scale at the next clean step.
  void set_growth_interval(int64_t interval);

  // ---- Saving; call between `update` and the next `scale` ----

  GradScalerState state_dict() const;
  /// \throws c10::ValueError if `state` is empty or out of range.
  void load_state_dict(const GradScalerState& state);
  /// Under PyTorch's names.
  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct Record {
    Stage stage = Stage::ready;
    std::unordered_map<torch::Device, torch::Tensor>
        found_inf;  // 0-dim kFloat each
  };
  /// Scale, tracker and skips, read from the device in one go.
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
  /// What the tensors begin with, and what the getters say before there are
  /// any.
  Values initial_;
  /// [3] kFloat: the values, the tracker as the bits of an int32.
  torch::Tensor packed_;
  torch::Tensor scale_, growth_tracker_, skips_;  // 0-dim views of it
  torch::Tensor skips_mailbox_;  // pinned; `skips_` of some updates ago
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
