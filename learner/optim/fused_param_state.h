#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace tern::optim {

/// What a fused optimizer remembers of one parameter: tensors alone, on the
/// device of the parameter, so that a skipped step needs no word to the host.
class FusedParamState : public torch::optim::OptimizerParamState {
 public:
  /// 0-dim kFloat: how many steps were made (not counting skipped ones).
  torch::Tensor step;

  /// Every tensor by PyTorch's name, `step` first; undefined while unused.
  virtual std::vector<std::pair<std::string, torch::Tensor*>> tensors() = 0;

  /// Reads what a Tern or a `torch::optim` optimizer of the same name wrote.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

}  // namespace tern::optim
