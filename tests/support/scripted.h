#pragma once

#include <memory>
#include <vector>

#include "tern/callbacks/lambda_callback.h"
#include "tern/learner/learner.h"

namespace tern::testing_support {

/// Replaces the validation losses of the epochs of all fits by these.
inline std::shared_ptr<Callback> scripted_valid_loss(
    std::vector<double> losses) {
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_epoch_end =
          [losses, at = size_t{0}](Learner& l) mutable {
            l.state().valid_loss = losses.at(at++);
          },
      .order = callback_order::kRecorder - 1});
}

}  // namespace tern::testing_support
