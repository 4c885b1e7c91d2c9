#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/kernels/optim/fused_step.h"
#include "tern/learner/interfaces.h"

namespace tern {

/// An optimizer that unscales gradients itself and reads the overflow flag on
/// the device, so that a step never synchronizes with the host.
/// `GradScaler::step` detects it by `dynamic_cast`; all optimizers in
/// `tern::optim` implement it.
///
/// With master weights, the optimizer owns the fp32 master weights ("masters"),
/// and the model computes with their rounded half or bfloat16 copies
/// ("weights"). The weights then receive the gradients, and every step writes
/// the new master weights, rounded, into the weights.
class AmpAware {
 public:
  virtual ~AmpAware() = default;

  /// Runs one step. If `found_inf` is not 0, nothing changes, not even a step
  /// count.
  ///
  /// \param grad_scale  0-dim kFloat; gradients are divided by it. Undefined:
  ///                    they are already unscaled.
  /// \param found_inf   0-dim kFloat; any value but 0 skips the step.
  ///                    Undefined: never skip.
  virtual void step_amp(
      const torch::Tensor& grad_scale,
      const torch::Tensor& found_inf) = 0;

  /// Returns the gradients that the next step reads, without undefined ones.
  /// For a master weight this is its own gradient if it has one, otherwise its
  /// weight's gradient.
  virtual Tensors gradients() const = 0;

  /// Sets up master weights: parameter `masters[i]` of this optimizer takes its
  /// gradient from `weights[i]`, and a step writes `weights[i]`. Empty lists
  /// remove the master weights.
  ///
  /// \param masters  kFloat, each a parameter of this optimizer.
  /// \param weights  kHalf or kBFloat16, with the shape and strides of its
  ///                 master weight.
  /// \throws c10::ValueError if the lists do not match.
  virtual void set_weights(const Tensors& masters, const Tensors& weights) = 0;

  /// Moves every weight's gradient into an fp32 gradient of its master weight,
  /// so that `GradScaler::unscale_`, clipping and logging read fp32 gradients.
  /// Costs one more pass over the gradients. Without master weights, does
  /// nothing.
  virtual void move_gradients_to_masters() = 0;
};

}  // namespace tern

namespace tern::optim {

/// Returns the parameters of all groups.
Tensors parameters_of(const torch::optim::Optimizer& optimizer);

/// An optimizer that supports decoupled weight decay, as AdamW and fastai do.
class DecoupledWeightDecay {
 public:
  virtual ~DecoupledWeightDecay() = default;

  /// Sets how the groups' `weight_decay` acts. true: `param *= 1 - lr *
  /// weight_decay` for every parameter with a gradient, before the step. false:
  /// the optimizer applies it in its own way.
  virtual void decoupled_weight_decay(bool on) = 0;
};

/// Options that all fused optimizers share.
///
///   .optimizer = tern::optimizer<tern::optim::AdamW>(
///       torch::optim::AdamWOptions(),
///       tern::optim::FusedOptions{.lookahead = {.k = 6}})
struct FusedOptions {
  /// Lookahead around the optimizer, like fastai's `Lookahead(opt, k=6,
  /// alpha=0.5)`. Steps are counted per parameter.
  LookaheadArgs lookahead = {};
  /// 8: moments need one byte per element instead of four (Dettmers et al.
  /// 2022), with a dynamic map and one scale per 256 elements, as in
  /// bitsandbytes' 8-bit optimizers. Moments of parameters with fewer than
  /// `min_8bit_size` elements stay fp32. Checkpoints keep them in this form.
  /// 32: kFloat.
  int64_t optim_bits = 32;
  int64_t min_8bit_size = 4096;
};

/// A fused optimizer's state for one parameter. All of it is in tensors on the
/// parameter's device, so that a skipped step needs no communication with the
/// host.
class FusedParamState : public torch::optim::OptimizerParamState {
 public:
  /// 0-dim kFloat: number of steps so far, without skipped steps.
  torch::Tensor step;
  /// Like the parameter, or kByte [moment_8bit_size(parameter)]; undefined
  /// while unused.
  std::array<torch::Tensor, 3> moments;
  /// Lookahead's slow weights, like the parameter; undefined without Lookahead.
  torch::Tensor slow_weights;

  /// Returns every tensor with PyTorch's name for it, `step` first.
  std::vector<std::pair<std::string, torch::Tensor*>> tensors();

  /// Reads the state of a Tern or a `torch::optim` optimizer of the same name.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 protected:
  explicit FusedParamState(std::vector<std::string> names)
      : names_(std::move(names)) {}

 private:
  std::vector<std::string> names_;  // of the moments
};

/// Base of the fused optimizers. One fused kernel updates all parameters of a
/// group in one pass over memory (two for `Lamb` and `Larc`). After the first
/// step, steps neither allocate memory nor synchronize with the device.
///
/// Parameters are kFloat, or kBFloat16 without master weights. kBFloat16
/// parameters are updated in fp32 and rounded stochastically, so that small
/// updates are not lost. The random numbers depend only on parameter, step and
/// element, so a resumed run rounds in the same way. Gradients are kFloat,
/// kHalf or kBFloat16. A parameter without a gradient is not changed and may
/// have any dtype. Sparse gradients and kDouble parameters are an error; use
/// the optimizer of the same name from `torch::optim` for them.
class FusedOptimizer : public torch::optim::Optimizer,
                       public AmpAware,
                       public DecoupledWeightDecay,
                       public CopiesWeights {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  torch::Tensor step(LossClosure closure = nullptr) final;
  void step_amp(const torch::Tensor& grad_scale, const torch::Tensor& found_inf)
      final;

  Tensors gradients() const final;
  void set_weights(const Tensors& masters, const Tensors& weights) final;
  void move_gradients_to_masters() final;

  /// Returns Lookahead's slow weights.
  Tensors weight_copies() final;
  void weights_replaced() final;

  /// Sets how `weight_decay` acts. true: `param *= 1 - lr * weight_decay`, as
  /// in AdamW and fastai. false: it acts through the gradient (L2), as in
  /// torch's SGD and Adam. AdamW ignores false. Saved with the optimizer.
  void decoupled_weight_decay(bool on) final {
    decoupled_weight_decay_ = on || is_always_decoupled_;
  }
  bool decoupled_weight_decay() const { return decoupled_weight_decay_; }

  /// Sets a factor by which the gradients are too large in addition to the loss
  /// scale, for example the number of accumulated batches. A step divides the
  /// gradients by both. 0-dim kFloat; undefined (the default) for none. Ignored
  /// after `unscale_`.
  void grad_scale(torch::Tensor factor) { grad_scale_ = std::move(factor); }
  const torch::Tensor& grad_scale() const { return grad_scale_; }

  /// One rank's shard of the parameters under ZeRO-1.
  struct Shard {
    std::unordered_set<c10::TensorImpl*> params;
    std::function<void()> after_step;  // receives the other ranks' shards
  };
  /// Restricts steps to the parameters of `shard` and drops the state of all
  /// others. Overflow checks, `unscale_` and clipping still use all gradients.
  /// Unset: steps update every parameter again.
  void set_shard(std::optional<Shard> shard);

  /// true: the kernels read the learning rates and the other hyperparameters
  /// from device memory, to which `write_rates` copies them, so that a step can
  /// be recorded once and replayed (learner/cuda_graph/step_graph.h). false:
  /// they use the groups' options.
  void rates_on_device(bool on);
  /// Copies the groups' current hyperparameters to the device without
  /// synchronizing.
  /// \return true if a recorded step can use them, because it reads them from
  ///         the device and the number of moments is unchanged.
  bool write_rates();

  /// Returns an empty state of the kind that this optimizer keeps per
  /// parameter.
  virtual std::unique_ptr<FusedParamState> new_state() const = 0;

  void save(torch::serialize::OutputArchive& archive) const final;
  /// Also reads archives of the `torch::optim` optimizer of the same name.
  /// Moves the state to the devices of the parameters.
  void load(torch::serialize::InputArchive& archive) final;

 protected:
  /// Arguments of a step other than its tensors.
  using Args = std::variant<FusedSgdArgs, FusedAdamArgs>;

  /// \param name  For error messages, e.g. "tern::optim::Adam".
  FusedOptimizer(
      std::string name,
      const Groups& groups,
      std::unique_ptr<torch::optim::OptimizerOptions> defaults,
      const FusedOptions& fused,
      bool decoupled_weight_decay);

  const std::string& name() const { return name_; }
  const FusedOptions& fused() const { return fused_; }
  /// For AdamW.
  void always_decouple_weight_decay() {
    is_always_decoupled_ = decoupled_weight_decay_ = true;
  }
  static Groups one_group(Tensors params);
  void check_not_negative(const char* option, double value) const;

 private:
  /// The tensors of one group on one device; index i is the same parameter in
  /// all lists.
  struct TensorLists {
    Tensors params, grads, weights, steps, slow_weights;
    std::array<Tensors, 3> moments;
    std::vector<uint32_t> rounding_keys;
    bool has_weights = false;
    size_t size = 0;
    torch::Tensor rates;     // read by the kernel; undefined: options
    size_t moments_run = 0;  // number of moments in the last step
  };

  virtual Args args_of(const torch::optim::OptimizerOptions& options) const = 0;
  /// LibTorch's archive of groups and state. Implemented by the subclass, which
  /// determines their types.
  virtual void write(torch::serialize::OutputArchive& archive) const = 0;
  virtual void read(torch::serialize::InputArchive& archive) = 0;

  void check_param(const torch::Tensor& param) const;
  void step_all(const GradState& grad_state);
  void run_kernel(
      const TensorLists& lists,
      const Args& args,
      const GradState& grad_state) const;
  void collect(size_t group, uint32_t first_index);
  void collect(
      size_t group,
      const torch::Tensor& param,
      size_t moments,
      uint32_t index);
  FusedParamState& state_of(const torch::Tensor& param, size_t moments);
  void prepare_moment(const torch::Tensor& param, torch::Tensor& moment) const;
  const torch::Tensor& weight(const torch::Tensor& param) const;
  const torch::Tensor& gradient(const torch::Tensor& param) const;
  TensorLists& lists_for(size_t group, torch::Device device);

  std::string name_;
  FusedOptions fused_;
  bool decoupled_weight_decay_;
  bool is_always_decoupled_ = false;
  torch::Tensor grad_scale_;
  std::unordered_map<c10::TensorImpl*, torch::Tensor> weights_;  // key: master
  std::optional<Shard> shard_;
  bool rates_on_device_ = false;
  /// Reused in every step, so that a step allocates nothing: one list per
  /// group, with one entry per device.
  std::vector<std::vector<std::pair<torch::Device, TensorLists>>> lists_;
};

/// A fused optimizer whose archives have the format of LibTorch's optimizer
/// with the same options.
/// \tparam State  A FusedParamState.
template <class State, class OptionsOfGroup>
class FusedOptimizerOf : public FusedOptimizer {
 public:
  using Options = OptionsOfGroup;

  std::unique_ptr<FusedParamState> new_state() const final {
    return std::make_unique<State>();
  }

 protected:
  FusedOptimizerOf(
      const char* name,
      const Groups& groups,
      const Options& defaults,
      const FusedOptions& fused,
      bool decoupled_weight_decay)
      : FusedOptimizer(
            name,
            groups,
            std::make_unique<Options>(defaults),
            fused,
            decoupled_weight_decay) {}

 private:
  void write(torch::serialize::OutputArchive& archive) const final {
    torch::optim::serialize<State, Options>(archive, *this);
  }
  void read(torch::serialize::InputArchive& archive) final {
    torch::optim::serialize<State, Options>(archive, *this);
  }
};

}  // namespace tern::optim
