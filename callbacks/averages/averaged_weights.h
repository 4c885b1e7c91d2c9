#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/callback.h"
#include "tern/learner/model.h"

namespace tern {

/// Base of the callbacks that average weights, Ema and Swa: keeps a second set
/// of the model's weights, in fp32, and swaps it into the model.
///
/// In half precision it follows the fp32 master weights, and swapping in rounds
/// into the half weights too. Floating buffers of the model's state (BatchNorm's
/// running statistics) belong to the set; other buffers stay the model's, and so
/// do the frozen weights of `add_lora`.
class WeightAverage : public Callback {
 public:
  /// \throws c10::ValueError beside another callback that averages weights.
  void on_add(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kAverages; }

 protected:
  bool has_averages() const { return !averages_.empty(); }
  void clear_averages();

  /// At the start of a fit: finds the weights that `move_towards_weights`
  /// reads.
  /// \throws c10::ValueError if there are averages already and they are those
  ///         of another model; `apply` does so too.
  void follow(Learner& learn);
  /// averages += (weights - averages) * share; the first time a copy.
  void move_towards_weights(double share);
  /// \param share  0-dim kDouble on the weights' device, which nothing waits
  ///               for.
  void move_towards_weights(const torch::Tensor& share);

  /// Puts the averages into the model until `restore` puts its own weights
  /// back, and so it does with the optimizer's copies of weights (Lookahead's).
  /// Between fits, or both within one event.
  void apply(Learner& learn);
  void restore(Learner& learn);
  bool is_swapped_in() const { return !own_.empty(); }
  /// The same for an evaluation, which may come between the forward pass and the
  /// backward pass of a step: the weights, which autograd has saved, are not
  /// written; the model's tensors get other memory until `step_back`.
  void stand_in(Learner& learn);
  void step_back();
  bool has_stand_in() const { return !replaced_.empty(); }
  /// While they are in: whether the model's parameters still are the averages,
  /// bit for bit.
  bool are_untouched(Learner& learn) const;
  /// The model keeps what it holds for good.
  void forget_own();

  /// Copies by the names "average.NAME" and, while swapped in, "own.NAME" and
  /// "own_copy.0".
  void save_averages(StateDict& state) const;
  void load_averages(const StateDict& state);

 private:
  Tensors next_weights();
  void move_to_weights();
  void check_are_of(const std::vector<ModelTensor>& tensors) const;

  std::vector<std::string> names_;
  Tensors averages_, own_;
  Tensors own_copies_;  // of the optimizer
  // While the averages stand in: tensors of the model, and their own memory.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> replaced_;
  Tensors followed_;  // the model's own tensors
};

}  // namespace tern
