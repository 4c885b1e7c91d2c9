#include "tern/learner/step_window.h"

namespace tern {

void StepWindow::begin(
    const Accumulation& accumulation,
    int64_t batch_size,
    int64_t world_size) {
  accumulation_ = accumulation;
  world_size_ = world_size;
  full_ =
      world_size * (accumulation.samples ? accumulation.samples
                                         : accumulation.batches * batch_size);
  close();
  is_complete_ = true;
}

double StepWindow::add(const Samples& samples, bool is_last) {
  const auto share = static_cast<double>(samples.of_rank * world_size_);
  correction_ = 1;
  if (accumulation_.batches == 1) {
    is_complete_ = true;
    return share / static_cast<double>(samples.of_all);
  }
  ++batches_;
  samples_ += samples.of_all;
  const bool is_full = accumulation_.samples
                           ? samples_ >= full_
                           : batches_ >= accumulation_.batches;
  is_complete_ = is_full || is_last;
  if (is_complete_) {
    correction_ = static_cast<double>(full_) / static_cast<double>(samples_);
    close();
  }
  return share / static_cast<double>(full_);
}

void StepWindow::restore(int64_t batches, int64_t samples) {
  batches_ = batches;
  samples_ = samples;
  is_complete_ = batches == 0;
}

}  // namespace tern
