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

/// Batch normalization in training over the global batch: the output, the
/// gradients and the running statistics are the same as in a single process
/// with the whole batch. Every rank must call it and run backward. The forward
/// pass all-reduces 2 C + 1 numbers per rank, the backward pass 2 C numbers.
///
/// Statistics are computed in float (in double for a kDouble input), also for a
/// 16-bit input, and combined in double. The output has the dtype of the input.
///
/// \param input  [N, C, ...], floating-point; N >= 1 and may differ between
///               ranks.
/// \param weight, bias  [C] or undefined.
/// \param running_mean, running_var  [C] or undefined. Updated in place with
///                                   factor `momentum` towards the mean and the
///                                   unbiased variance.
/// \throws c10::ValueError for an input without channels or values;
///         DistributedError if a rank is lost.
torch::Tensor sync_batch_norm(
    const torch::Tensor& input,
    const torch::Tensor& weight,
    const torch::Tensor& bias,
    const torch::Tensor& running_mean,
    const torch::Tensor& running_var,
    double momentum,
    double eps,
    const std::shared_ptr<Communicator>& ranks);

/// BatchNorm over the global batch, for inputs [N, C, ...] of any dimension.
/// Like Python's `torch.nn.SyncBatchNorm`, and works on CPUs too. Options,
/// state dict names and behavior in eval mode are the same as BatchNorm's. With
/// a single rank it is a plain BatchNorm.
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

/// Makes every BatchNorm1d, 2d and 3d of the model normalize over the global
/// batch in training, for the lifetime of `ranks`. Weights, statistics and
/// names do not change. Used by `to_distributed({.sync_batch_norm = true})`.
///
///   auto net = convert_sync_batchnorm(resnet18(), group);
///
/// Python replaces these modules. In C++ a member such as
/// `torch::nn::BatchNorm2d bn1` cannot be replaced from outside. Instead,
/// LibTorch's `batch_norm`, which all these modules call, forwards to
/// `sync_batch_norm` for this model. A clone of the model is not converted.
/// Because LibTorch checks the input first, each rank needs two values per
/// channel, whereas SyncBatchNorm needs one.
///
/// \return the same model.
/// \throws c10::ValueError if a BatchNorm keeps no running statistics;
///         c10::NotImplementedError for a TorchScript module.
Model convert_sync_batchnorm(
    Model model,
    const std::shared_ptr<Communicator>& ranks);

}  // namespace tern
