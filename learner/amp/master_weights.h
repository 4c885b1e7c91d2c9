#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/amp/keep_fp32.h"
#include "tern/learner/interfaces.h"
#include "tern/learner/model.h"

namespace tern {

/// The fp32 masters of a model whose parameters are half or bfloat16.
///
/// The optimizer owns the masters; forward and backward use the low-precision
/// weights, whose gradients go to the masters and which are copied back from
/// them. Parameters that stayed fp32 (BatchNorm, kept layers) are their own
/// masters.
///
/// Buffers in 16 bits have fp32 copies too, which training does not move: what
/// the model writes into a buffer during training replaces the copy's element.
class MasterWeights final : public SteppedWeights {
 public:
  /// Converts floating parameters and buffers of `model` to `dtype`, but for
  /// those of batch normalization, and keeps fp32 copies of them. Frozen weights
  /// of `add_lora` have none.
  /// Gradients are dropped: they have the old type.
  ///
  /// \param flat  Keep the masters in one block of memory.
  /// \param kept  Tensors that are not converted.
  /// \param has_masters  False: no copies of parameters; the optimizer owns the
  ///                     converted ones, and `weights` and `masters` are empty.
  MasterWeights(
      const Model& model,
      torch::ScalarType dtype,
      bool flat = false,
      const KeptParameters& kept = {},
      bool has_masters = true);

  torch::ScalarType dtype() const { return dtype_; }
  /// Parameters with a master of their own, and these masters.
  const Tensors& weights() const { return weights_; }
  const Tensors& masters() const { return masters_; }
  torch::Tensor of(const torch::Tensor& parameter) const override;
  /// Returns a model's tensor, parameter or buffer, as it is before rounding: to
  /// be read, or written before `copy_to_model`.
  torch::Tensor exact(const torch::Tensor& tensor);

  /// For an optimizer that knows nothing of masters: the weights' gradients, in
  /// fp32 and still scaled, become the masters'.
  void move_gradients_to_masters();
  /// The other way: the masters' gradients become those of the weights, in
  /// their type.
  void move_gradients_to_weights();
  /// Rounds the masters into the weights.
  void copy_masters_to_weights();
  /// The same, and the fp32 copies of buffers into these: after both were
  /// written, as by a load.
  void copy_to_model();
  /// Takes over what the model has written into its buffers. Costs nothing on a
  /// CPU when it has not.
  void follow_buffers();
  void zero_grad() override;

  /// Gives the model back its parameters and buffers, the parameters with the
  /// values of the masters, the buffers as they were but for what the model has
  /// written.
  void restore();

 private:
  /// A buffer and its copy, of the type that it had.
  struct Buffer {
    torch::Tensor of_model, exact;
    int64_t version;  // of `of_model` when it was compared last
  };

  static void follow(Buffer& buffer);
  /// Converts a tensor that has no copy.
  void round(torch::Tensor tensor);

  torch::ScalarType dtype_;
  Tensors weights_, masters_;
  std::vector<Buffer> buffers_;
  // Parameters without a master, with the types that they had.
  std::vector<std::pair<torch::Tensor, torch::ScalarType>> rounded_;
  std::unordered_map<c10::TensorImpl*, size_t> index_, buffer_index_;
};

/// Those of a Learner; null if its model is not 16-bit.
std::shared_ptr<MasterWeights> master_weights(const Learner& learn);

/// Sets or removes them. The optimizer's state moves with its parameters.
void set_master_weights(Learner& learn, std::shared_ptr<MasterWeights> masters);

/// Lets `optimizer` own `to[i]` where it owned `from[i]`, with its moments and
/// step count: how a parameter becomes its fp32 master, and back. Lists may
/// overlap, so a permutation is allowed. State stays on its device.
void rebind_parameters(
    torch::optim::Optimizer& optimizer,
    const Tensors& from,
    const Tensors& to);

}  // namespace tern
