#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/kernels/fused_optimizer.h"
#include "tern/learner/optim/amp_aware.h"
#include "tern/learner/optim/decoupled_weight_decay.h"
#include "tern/learner/optim/fused_param_state.h"

namespace tern::optim {

/// What `SGD`, `Adam` and `AdamW` have in common: a group's parameters go
/// through one fused kernel, in one pass over memory, and neither allocate nor
/// wait once the first step is made.
///
/// Parameters are kFloat; gradients kFloat, kHalf or kBFloat16. A parameter
/// without gradient is left as it is. Sparse gradients and kDouble parameters
/// are refused: take the optimizer of the same name from `torch::optim`.
class FusedOptimizer : public torch::optim::Optimizer,
                       public AmpAware,
                       public DecoupledWeightDecay {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  torch::Tensor step(LossClosure closure = nullptr) final;
  void step_amp(const torch::Tensor& grad_scale, const torch::Tensor& found_inf)
      final;

  std::vector<torch::Tensor> gradients() const final;
  void set_weights(
      const std::vector<torch::Tensor>& masters,
      const std::vector<torch::Tensor>& weights) final;
  void move_gradients_to_masters() final;

  /// How `weight_decay` acts. true: `param *= 1 - lr * weight_decay`, as AdamW
  /// and fastai. false: it is added to the gradient (L2), as torch's SGD and
  /// Adam. Saved with the optimizer.
  void decoupled_weight_decay(bool on) final { decoupled_weight_decay_ = on; }
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
  /// (learner/graph/step_graph.h): from now on the kernels read the rates and
  /// the other numbers of their group from memory on the device, as
  /// `write_rates` left them there. false: from the groups again.
  void rates_on_device(bool on);
  /// Brings what the groups hold now to the device; nobody waits for it.
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
  using Buffers = std::array<torch::Tensor, 3>;

  /// The tensors of one group on one device; index i of each belongs together.
  struct TensorLists {
    OptimizerTensors kernel_tensors() const;

    std::vector<torch::Tensor> params, grads, weights, steps;
    std::array<std::vector<torch::Tensor>, 3> buffers;  // Buffers, turned
    bool has_weights = false;
    size_t size = 0;
    torch::Tensor rates;  // what the kernel reads; undefined: the options
    size_t moments = 0;   // that the kernel was run with
  };

  /// \param name  For errors, e.g. "tern::optim::Adam".
  FusedOptimizer(
      std::string name,
      const Groups& groups,
      std::unique_ptr<torch::optim::OptimizerOptions> defaults,
      bool decoupled_weight_decay);

  /// \throws c10::ValueError "[name] message" unless `is_valid`.
  void check_option(bool is_valid, const std::string& message) const;

 private:
  /// Makes the moments that a step with `options` needs and `state` lacks, and
  /// returns them in the order in which the kernel takes them.
  virtual Buffers prepare_buffers(
      FusedParamState& state,
      const torch::Tensor& param,
      const torch::optim::OptimizerOptions& options) const = 0;
  /// The numbers of a group as its kernel takes them from memory.
  virtual torch::Tensor rates_of(
      const torch::optim::OptimizerOptions& options,
      torch::Device device) const = 0;
  /// How many moments a step with `options` keeps.
  virtual size_t moments_of(
      const torch::optim::OptimizerOptions& options) const = 0;
  virtual void run_kernel(
      const TensorLists& lists,
      const torch::optim::OptimizerOptions& options,
      const GradState& grad_state) const = 0;
  /// LibTorch's archive of groups and state; typed, so left to the subclass.
  virtual void write(torch::serialize::OutputArchive& archive) const = 0;
  virtual void read(torch::serialize::InputArchive& archive) = 0;

  void check_param(const torch::Tensor& param) const;
  void step_all(const GradState& grad_state);
  void collect(size_t group);
  void collect(size_t group, const torch::Tensor& param);
  FusedParamState& state_of(const torch::Tensor& param);
  const torch::Tensor& weight(const torch::Tensor& param) const;
  const torch::Tensor& gradient(const torch::Tensor& param) const;
  TensorLists& lists_for(size_t group, torch::Device device);

  std::string name_;
  bool decoupled_weight_decay_;
  torch::Tensor grad_scale_;
  std::unordered_map<c10::TensorImpl*, torch::Tensor> weights_;  // by master
  std::optional<Shard> shard_;
  bool rates_on_device_ = false;
  /// Kept from step to step, so that a step allocates nothing: by group, then
  /// one for each device.
  std::vector<std::vector<std::pair<torch::Device, TensorLists>>> lists_;
};

}  // namespace tern::optim
