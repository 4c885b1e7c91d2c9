#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

/// All that training changes in a Learner, copied to memory, and put back bit
/// for bit: weights, masters, buffers, the optimizer, LibTorch's random
/// numbers, the place in the data's order, the Recorder and the callbacks'
/// states.
class LearnerSnapshot {
 public:
  explicit LearnerSnapshot(Learner& learner);
  ~LearnerSnapshot();
  /// Callable more than once.
  void restore();

 private:
  struct Saved {
    torch::Tensor tensor, copy;
  };
  void keep(const torch::Tensor& tensor);

  Learner& learner_;
  std::vector<Saved> tensors_;
  std::string optimizer_;  // empty: there was none
  std::vector<std::pair<at::Generator, torch::Tensor>> generators_;
  std::vector<std::pair<CallbackHandle, StateDict>> callbacks_;
  Recorder recorder_;
  TrainState state_;
  int64_t epochs_begun_, fits_done_;
  std::map<std::string, std::string> fit_settings_;
  // Out of the Learner meanwhile: it is for the fits that count.
  std::unique_ptr<ResumePlan> resume_;
};

}  // namespace tern
