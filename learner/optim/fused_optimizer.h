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

/// An optimizer that reads scaled gradients itself and obeys an overflow flag
/// on the device, so that no step waits for the host. `GradScaler::step` finds
/// it by `dynamic_cast`; all of `tern::optim` implement it.
///
/// Master form: the optimizer owns fp32 masters and the model computes with
/// their rounded half or bfloat16 twins, the weights. Gradients then arrive at
/// the weights, and every step writes the new masters, rounded, into them.
class AmpAware {
 public:
  virtual ~AmpAware() = default;

  /// One step. Nothing changes, not even a step count, when `found_inf` is set.
  ///
  /// \param grad_scale  0-dim kFloat: gradients are divided by it. Undefined:
  ///                    they are already unscaled.
  /// \param found_inf   0-dim kFloat: anything but 0 skips the step. Undefined:
  ///                    never skip.
  virtual void step_amp(
      const torch::Tensor& grad_scale,
      const torch::Tensor& found_inf) = 0;

  /// The gradients that the next step reads, defined ones only. A master with
  /// a gradient of its own is read from there, else from its weight.
  virtual Tensors gradients() const = 0;

  /// Begins the master form: parameter `masters[i]` of this optimizer gets its
  /// gradient from `weights[i]`, and a step writes `weights[i]`. Empty lists
  /// end it.
  ///
  /// \param masters  kFloat, each one a parameter of this optimizer.
  /// \param weights  kHalf or kBFloat16, shape and strides of the master.
  /// \throws c10::ValueError if the lists disagree.
  virtual void set_weights(const Tensors& masters, const Tensors& weights) = 0;

  /// Moves every weight's gradient into a fp32 gradient of its master, so that
  /// `GradScaler::unscale_`, clipping and logging see fp32. Costs one more pass
  /// over the gradients; does nothing without the master form.
  virtual void move_gradients_to_masters() = 0;
};

}  // namespace tern

namespace tern::optim {

/// The parameters of all groups.
Tensors parameters_of(const torch::optim::Optimizer& optimizer);

/// An optimizer that can decay weights directly, as AdamW and fastai do.
class DecoupledWeightDecay {
 public:
  virtual ~DecoupledWeightDecay() = default;

  /// How the groups' `weight_decay` acts. true: `param *= 1 - lr *
  /// weight_decay` for every parameter with a gradient, before the step. false:
  /// the optimizer's own way.
  virtual void decoupled_weight_decay(bool on) = 0;
};

/// What every fused optimizer can do besides its own.
///
///   .optimizer = tern::optimizer<tern::optim::AdamW>(
///       torch::optim::AdamWOptions(),
///       tern::optim::FusedOptions{.lookahead = {.k = 6}})
struct FusedOptions {
  /// Lookahead around the optimizer, as fastai's `Lookahead(opt, k=6,
  /// alpha=0.5)`; each parameter counts its own steps.
  LookaheadArgs lookahead = {};
  /// 8: moments take a byte an element instead of four (Dettmers et al. 2022),
  /// by a dynamic map and a magnitude for each 256 elements, as bitsandbytes'
  /// 8-bit optimizers; those of smaller parameters than `min_8bit_size` stay
  /// fp32. Saved as they are. 32: kFloat.
  int64_t optim_bits = 32;
  int64_t min_8bit_size = 4096;
};

/// What a fused optimizer remembers of one parameter: tensors alone, on the
/// device of the parameter, so that a skipped step needs no word to the host.
class FusedParamState : public torch::optim::OptimizerParamState {
 public:
  /// 0-dim kFloat: how many steps were made (not counting skipped ones).
  torch::Tensor step;
  /// Like the parameter, or kByte [moment_8bit_size(parameter)]; undefined
  /// while unused.
  std::array<torch::Tensor, 3> moments;
  /// Lookahead's, like the parameter; undefined without it.
  torch::Tensor slow_weights;

  /// Every tensor by PyTorch's name, `step` first.
  std::vector<std::pair<std::string, torch::Tensor*>> tensors();

  /// Reads what a Tern or a `torch::optim` optimizer of the same name wrote.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 protected:
  explicit FusedParamState(std::vector<std::string> names)
      : names_(std::move(names)) {}

 private:
  std::vector<std::string> names_;  // of the moments
};

/// What the fused optimizers have in common: a group's parameters go through
/// one fused kernel, in one pass over memory (two for `Lamb` and `Larc`), and
/// neither allocate nor wait once the first step is made.
///
/// Parameters are kFloat, or kBFloat16 without masters: those are stepped in
/// fp32 and rounded stochastically, so that small updates are not lost, with
/// random numbers of (parameter, step, element) alone: a resumed training has
/// the same. Gradients are kFloat, kHalf or kBFloat16. A parameter without
/// gradient is left as it is, and may have any type. Sparse gradients and kDouble
/// parameters are refused: take the optimizer of the same name from `torch::optim`.
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

  /// Lookahead's slow weights.
  Tensors weight_copies() final;
  void weights_replaced() final;

  /// How `weight_decay` acts. true: `param *= 1 - lr * weight_decay`, as AdamW
  /// and fastai. false: it is added to the gradient (L2), as torch's SGD and
  /// Adam; not in AdamW, whose own way is the first one. Saved with the
  /// optimizer.
  void decoupled_weight_decay(bool on) final {
    decoupled_weight_decay_ = on || is_always_decoupled_;
  }
  bool decoupled_weight_decay() const { return decoupled_weight_decay_; }

  /// A factor that the gradients carry besides the scaler's, for instance the
  /// number of accumulated batches: gradients are divided by both. 0-dim
  /// kFloat; undefined (the default) for none. Ignored after `unscale_`.
  void grad_scale(torch::Tensor factor) { grad_scale_ = std::move(factor); }
  const torch::Tensor& grad_scale() const { return grad_scale_; }

  /// One rank's part of the parameters, in ZeRO-1.
  struct Shard {
    std::unordered_set<c10::TensorImpl*> params;
    std::function<void()> after_step;  // brings the others' parts
  };
  /// A step moves the parameters of `shard` alone, and what was remembered of
  /// the others is forgotten. Overflow checks, `unscale_` and clipping go on
  /// seeing all gradients. Unset: every parameter again.
  void set_shard(std::optional<Shard> shard);

  /// For a step that is recorded once and replayed
  /// (learner/cuda_graph/step_graph.h): from now on the kernels read the rates and
  /// the other numbers of their group from memory on the device, as
  /// `write_rates` left them there. false: from the groups again.
  void rates_on_device(bool on);
  /// Copies the groups' current hyper-parameters to the device without
  /// synchronizing.
  /// \return whether a step that was recorded before can take them: its tensors
  ///         are those of now, and so are the moments that it keeps.
  bool write_rates();

  /// An empty state of the kind that this optimizer keeps of a parameter.
  virtual std::unique_ptr<FusedParamState> new_state() const = 0;

  void save(torch::serialize::OutputArchive& archive) const final;
  /// Also reads what the `torch::optim` optimizer of the same name wrote.
  /// State moves to the devices of the parameters.
  void load(torch::serialize::InputArchive& archive) final;

 protected:
  /// What a step does, besides its tensors.
  using Args = std::variant<FusedSgdArgs, FusedAdamArgs>;

  /// \param name  For errors, e.g. "tern::optim::Adam".
  FusedOptimizer(
      std::string name,
      const Groups& groups,
      std::unique_ptr<torch::optim::OptimizerOptions> defaults,
      const FusedOptions& fused,
      bool decoupled_weight_decay);

  const std::string& name() const { return name_; }
  const FusedOptions& fused() const { return fused_; }
  /// For AdamW, which is that.
  void always_decouple_weight_decay() {
    is_always_decoupled_ = decoupled_weight_decay_ = true;
  }
  static Groups one_group(Tensors params);
  void check_not_negative(const char* option, double value) const;

 private:
  /// The tensors of one group on one device; index i of each belongs together.
  struct TensorLists {
    Tensors params, grads, weights, steps, slow_weights;
    std::array<Tensors, 3> moments;
    std::vector<uint32_t> rounding_keys;
    bool has_weights = false;
    size_t size = 0;
    torch::Tensor rates;     // what the kernel reads; undefined: the options
    size_t moments_run = 0;  // that the kernel was run with
  };

  virtual Args args_of(const torch::optim::OptimizerOptions& options) const = 0;
  /// LibTorch's archive of groups and state; typed, so left to the subclass.
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
  std::unordered_map<c10::TensorImpl*, torch::Tensor> weights_;  // by master
  std::optional<Shard> shard_;
  bool rates_on_device_ = false;
  /// Kept from step to step, so that a step allocates nothing: by group, then
  /// one for each device.
  std::vector<std::vector<std::pair<torch::Device, TensorLists>>> lists_;
};

/// A fused optimizer whose archives are those of LibTorch's optimizer with the
/// same options. \tparam State  A FusedParamState.
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
