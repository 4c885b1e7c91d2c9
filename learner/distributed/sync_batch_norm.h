#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/communicator.h"
#include "tern/learner/model.h"

namespace tern {

/// Batch normalization, in training, of what all ranks hold together: output,
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

/// Lets every BatchNorm1d, 2d and 3d in the model normalize over the batches of
/// all ranks while it trains and the ranks live. Weights, statistics and names
/// stay as they are. What `to_distributed({.sync_batch_norm = true})` calls.
///
///   auto net = convert_sync_batchnorm(resnet18(), group);
///
/// Python puts other modules in the place of these; in C++ a member such as
/// `torch::nn::BatchNorm2d bn1` cannot be replaced from outside. So the modules
/// stay, and LibTorch's `batch_norm`, which they all call, hands those of this
/// model over to `sync_batch_norm`. A clone of the model is not converted. As
/// their own check comes first, each rank needs two values a channel, where
/// SyncBatchNorm needs one.
///
/// \return the same model.
/// \throws c10::ValueError if one of them keeps no running statistics;
///         c10::NotImplementedError for a TorchScript module.
Model convert_sync_batchnorm(
    Model model,
    const std::shared_ptr<Communicator>& ranks);

}  // namespace tern
