#pragma once

#include <string>

#include <torch/types.h>

#include "tern/learner/grad_scaler.h"

namespace tern {

class Learner;

/// A parameter's gradient by the parameter's name; see Learner::gradients.
struct NamedGradient {
  std::string name;
  torch::Tensor gradient;  // kFloat
};

/// How a step is made in another precision than plain fp32. The loop asks the
/// callback that implements it; LossScaling does.
class PrecisionPolicy {
 public:
  virtual ~PrecisionPolicy() = default;
  /// Gives the optimizer's parameters fp32 gradients without the loss scale. A
  /// second call before the step does nothing.
  virtual void unscale(Learner& learn) = 0;
  /// The step is not made: forgets what `unscale` noted. Gradients that stay,
  /// for the next batch to add to, get their loss scale back.
  virtual void abandon(Learner& learn, bool keeps_gradients) = 0;
  virtual StepResult step(Learner& learn) = 0;
};

}  // namespace tern
