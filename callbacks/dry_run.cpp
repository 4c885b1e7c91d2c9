#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/limit_batches.h"
#include "tern/learner/checkpoint/snapshot.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/trial.h"

namespace tern {

Learner& Learner::dry_run(int64_t batches) {
  TORCH_CHECK_VALUE(
      batches >= 1,
      fmt::format(
          "[Learner::dry_run] batches is {}; expected 1 or more.",
          batches));
  TORCH_CHECK(
      !parts_->is_fitting,
      "[Learner::dry_run] this Learner is training; call dry_run before or "
      "after fit.");
  const auto limit = std::make_shared<LimitBatches>(
      LimitBatches::Options{.train = batches, .valid = batches});
  LearnerSnapshot before(*this);
  const auto undo = [&] {
    limit->on_train_end(*this);
    before.restore();
  };
  try {
    fit(1, {}, {std::make_shared<Trial>(), limit});
    if (parts_->data.valid) {
      limit->on_train_begin(*this);
      validate();
    }
  } catch (...) {
    undo();
    throw;
  }
  undo();
  return *this;
}

}  // namespace tern
