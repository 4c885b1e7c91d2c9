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

/// The fp32 master weights of a model whose parameters are half or bfloat16.
///
/// The optimizer owns the master weights. Forward and backward use the 16-bit
/// weights; their gradients are moved to the master weights, whose values are
/// copied back after a step. Parameters that stayed fp32 (BatchNorm, kept
/// layers) are their own master weights.
///
/// 16-bit buffers also have fp32 copies, which the optimizer does not change.
/// If the model changes an element of a buffer during training, the new value
/// is copied to the fp32 copy.
class MasterWeights final : public SteppedWeights {
 public:
  /// Converts the floating-point parameters and buffers of `model` to `dtype`,
  /// except BatchNorm's, and keeps fp32 copies of them. Frozen weights of
  /// `add_lora` have no copies. Gradients are dropped, because they have the
  /// old dtype.
  ///
  /// \param flat  Keep the master weights in one block of memory.
  /// \param kept  Tensors that are not converted.
  /// \param has_masters  False: keeps no copies of parameters; the optimizer
  ///                     owns the converted parameters, and `weights` and
  ///                     `masters` are empty.
  MasterWeights(
      const Model& model,
      torch::ScalarType dtype,
      bool flat = false,
      const KeptParameters& kept = {},
      bool has_masters = true);

  torch::ScalarType dtype() const { return dtype_; }
  /// Parameters that have a master weight, and these master weights.
  const Tensors& weights() const { return weights_; }
  const Tensors& masters() const { return masters_; }
  torch::Tensor of(const torch::Tensor& parameter) const override;
  /// Returns the unrounded version of a parameter or buffer of the model, for
  /// reading, or for writing before `copy_to_model`.
  torch::Tensor exact(const torch::Tensor& tensor);

  /// For an optimizer without support for master weights: moves the weights'
  /// gradients, in fp32 and still scaled, to the master weights.
  void move_gradients_to_masters();
  /// The reverse: moves the master weights' gradients to the weights, in the
  /// weights' dtype.
  void move_gradients_to_weights();
  /// Rounds the master weights into the weights.
  void copy_masters_to_weights();
  /// Like `copy_masters_to_weights`; also rounds the fp32 copies of buffers
  /// into the buffers. Call it after both were written, for example by a load.
  void copy_to_model();
  /// Updates the fp32 copies with values that the model has written into its
  /// buffers. On a CPU this costs nothing if the model has not written any.
  void follow_buffers();
  void zero_grad() override;

  /// Restores the model's parameters and buffers in their original dtypes: the
  /// parameters from the master weights, and the buffers from their fp32
  /// copies, including values that the model has written.
  void restore();

 private:
  /// A buffer and its copy in the original dtype.
  struct Buffer {
    torch::Tensor of_model, exact;
    int64_t version;  // of `of_model` at the last comparison
  };

  static void follow(Buffer& buffer);
  /// Converts a tensor without keeping a copy.
  void round(torch::Tensor tensor);

  torch::ScalarType dtype_;
  Tensors weights_, masters_;
  std::vector<Buffer> buffers_;
  // Tensors without a master weight, with their original dtypes.
  std::vector<std::pair<torch::Tensor, torch::ScalarType>> rounded_;
  std::unordered_map<c10::TensorImpl*, size_t> index_, buffer_index_;
};

/// Returns the master weights of a Learner; null if its model is not 16-bit.
std::shared_ptr<MasterWeights> master_weights(const Learner& learn);

/// Sets or removes the master weights. The optimizer's state moves with its
/// parameters.
void set_master_weights(Learner& learn, std::shared_ptr<MasterWeights> masters);

/// Replaces the parameters `from[i]` of `optimizer` by `to[i]`, keeping moments
/// and step counts. Used to replace a parameter by its fp32 master weight, and
/// back. The lists may overlap, so a permutation is allowed. State stays on its
/// device.
void rebind_parameters(
    torch::optim::Optimizer& optimizer,
    const Tensors& from,
    const Tensors& to);

}  // namespace tern
