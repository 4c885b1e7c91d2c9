// The Recorder's loss scales and skipped steps.

#include <cmath>

#include <torch/types.h>

#include "tern/learner/recorder.h"

namespace tern {

const std::vector<double>& Recorder::loss_scales() {
  flush();
  return scales_;
}

const std::vector<int64_t>& Recorder::skipped_steps() {
  flush();
  return skips_;
}

void Recorder::flush_scales(int64_t first_batch) {
  Tensors known;
  for (const PendingScale& pending : pending_scales_) {
    if (pending.record.defined()) known.push_back(pending.record);
  }
  const torch::Tensor read =
      known.empty() ? torch::Tensor() : torch::stack(known).cpu();
  const float* next = known.empty() ? nullptr : read.const_data_ptr<float>();
  for (size_t i = 0; i < pending_scales_.size(); ++i) {
    const PendingScale& pending = pending_scales_[i];
    const int64_t batch = first_batch + static_cast<int64_t>(i);
    if (pending.record.defined()) {
      record_scale(batch, next[0], pending.has_stepped && next[1] > 0);
      next += 2;
    } else {
      record_scale(batch, std::nan(""), false);
    }
  }
  pending_scales_.clear();
}

void Recorder::record_scale(int64_t batch, double scale, bool was_skipped) {
  scales_.push_back(scale);
  if (was_skipped) skips_.push_back(batch);
}

}  // namespace tern
