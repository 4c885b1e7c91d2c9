#include "tern/learner/snapshot.h"

#include <sstream>

#include <torch/serialize.h>

#include "tern/learner/master_weights.h"
#include "tern/learner/resume.h"
#include "tern/learner/training_state.h"

namespace tern {

LearnerSnapshot::LearnerSnapshot(Learner& learner)
    : learner_(learner),
      recorder_(learner.recorder()),
      state_(learner.state()),
      epochs_begun_(learner.epochs_begun_),
      fits_done_(learner.fits_done_),
      fit_settings_(learner.fit_settings_),
      resume_(std::move(learner.resume_)) {
  for (const ModelTensor& p : learner.model_.parameters()) keep(p.tensor);
  for (const ModelTensor& b : learner.model_.buffers()) keep(b.tensor);
  if (learner.masters_) {
    for (const torch::Tensor& m : learner.masters_->masters()) keep(m);
  }
  if (learner.optimizer_) {
    std::ostringstream bytes;
    torch::save(*learner.optimizer_, bytes);
    optimizer_ = bytes.str();
  }
  for (auto& [name, generator] : default_generators()) {
    generators_.emplace_back(generator, generator.get_state());
  }
  for (const auto& callback : learner.callbacks_) {
    callbacks_.emplace_back(callback, callback->state_dict());
  }
}

LearnerSnapshot::~LearnerSnapshot() {
  if (resume_) learner_.resume_ = std::move(resume_);
}

void LearnerSnapshot::keep(const torch::Tensor& tensor) {
  tensors_.push_back({tensor, tensor.detach().clone()});
}

void LearnerSnapshot::restore() {
  const torch::NoGradGuard no_grad;
  for (const Saved& saved : tensors_) saved.tensor.copy_(saved.copy);
  if (optimizer_.empty()) {
    learner_.optimizer_.reset();
  } else {
    std::istringstream bytes(optimizer_);
    // Loading leaves alone what was not saved.
    learner_.optimizer_->state().clear();
    torch::load(*learner_.optimizer_, bytes);
  }
  for (auto& [generator, state] : generators_) generator.set_state(state);
  learner_.state_was_replaced();
  for (auto& [callback, state] : callbacks_) {
    if (!state.is_empty()) callback->load_state_dict(state);
  }
  learner_.recorder() = recorder_;
  learner_.state_ = state_;
  learner_.epochs_begun_ = epochs_begun_;
  learner_.fits_done_ = fits_done_;
  learner_.fit_settings_ = fit_settings_;
}

}  // namespace tern
