#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/communicator.h"

namespace tern {

/// Batch normalisation, in training, of what all ranks hold together: output,
/// gradients and running statistics are those of one process with the whole
/// batch. Every rank calls it, and runs backward; each sends one message of
/// 2 C + 1 numbers a rank.
///
/// Statistics are computed in float (in double for a kDouble input), also of a
/// 16-bit input, and joined in double; the output has the input's type.
///
/// \param input   [N, C, ...], floating; N may differ between ranks, N >= 1.
/// \param weight, bias  [C] or undefined.
/// \param running_mean, running_var  [C] or undefined; they move by the share
///                `momentum` towards mean and unbiased variance, in place.
/// \throws c10::ValueError for an input without channels or values;
///         DistributedError when a rank is gone.
torch::Tensor sync_batch_norm(
    const torch::Tensor& input,
    const torch::Tensor& weight,
    const torch::Tensor& bias,
    const torch::Tensor& running_mean,
    const torch::Tensor& running_var,
    double momentum,
    double eps,
    const std::shared_ptr<Communicator>& ranks);

/// A BatchNorm over the batches of all ranks, for inputs [N, C, ...] of any
/// dimension; Python's `torch.nn.SyncBatchNorm`, on CPUs too. Options, names in
/// the state dict and what it does in eval are BatchNorm's, and so is
/// everything where there is one rank.
///
///   SyncBatchNorm norm(torch::nn::BatchNormOptions(64), group);
class SyncBatchNormImpl final : public torch::nn::BatchNorm2dImpl {
 public:
  /// \param ranks  Null: a plain BatchNorm.
  SyncBatchNormImpl(
      const torch::nn::BatchNormOptions& options,
      std::shared_ptr<Communicator> ranks)
      : torch::nn::BatchNorm2dImpl(options), communicator_(std::move(ranks)) {}

  torch::Tensor forward(const torch::Tensor& input);

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = {}) const override;
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  double step_momentum();

  std::shared_ptr<Communicator> communicator_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace tern
