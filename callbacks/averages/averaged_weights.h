#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/callback.h"
#include "tern/learner/model.h"

namespace tern {

/// Base of Ema and Swa: keeps averaged weights in fp32 beside the model's
/// weights and swaps them into the model.
///
/// In half precision it averages the fp32 master weights; a swap also writes
/// the rounded 16-bit weights. Floating-point buffers of the model's state
/// (BatchNorm's running statistics) are averaged too. Other buffers and the
/// frozen weights of `add_lora` are not averaged.
class WeightAverage : public Callback {
 public:
  /// \throws c10::ValueError if the Learner already has a callback that
  ///         averages weights.
  void on_add(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kAverages; }

 protected:
  bool has_averages() const { return !averages_.empty(); }
  void clear_averages();

  /// Called at the start of a fit: finds the weights that
  /// `move_towards_weights` reads.
  /// \throws c10::ValueError if the averages belong to a different model;
  ///         `apply` throws it too.
  void follow(Learner& learn);
  /// averages += (weights - averages) * share; the first call copies the
  /// weights.
  void move_towards_weights(double share);
  /// Like the above, for a share on the device; does not synchronize with it.
  /// \param share  0-dim kDouble on the weights' device.
  void move_towards_weights(const torch::Tensor& share);

  /// Swaps the averages into the model until `restore` swaps the model's own
  /// weights back. Also swaps the optimizer's copies of the weights
  /// (Lookahead's slow weights). Call both between fits, or both within one
  /// event.
  void apply(Learner& learn);
  void restore(Learner& learn);
  bool is_swapped_in() const { return !own_.empty(); }
  /// Swaps the averages in for an evaluation, which may run between the forward
  /// and the backward pass of a step. Does not write to the weights, because
  /// autograd has saved them; the model's tensors point to other memory until
  /// `step_back`.
  void stand_in(Learner& learn);
  void step_back();
  bool has_stand_in() const { return !replaced_.empty(); }
  /// True if the swapped-in parameters are still bit-identical to the averages.
  bool are_untouched(Learner& learn) const;
  /// Discards the model's stored own weights, so that the model keeps the
  /// averages.
  void forget_own();

  /// Stores copies under the names "average.NAME" and, while swapped in,
  /// "own.NAME" and "own_copy.0".
  void save_averages(StateDict& state) const;
  void load_averages(const StateDict& state);

 private:
  Tensors next_weights();
  void move_to_weights();
  void check_are_of(const std::vector<ModelTensor>& tensors) const;

  std::vector<std::string> names_;
  Tensors averages_, own_;
  Tensors own_copies_;  // the optimizer's weight copies
  // During `stand_in`: the model's tensors, and their own memory.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> replaced_;
  Tensors followed_;  // the model's own tensors
};

}  // namespace tern
