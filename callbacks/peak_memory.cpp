#include "tern/callbacks/peak_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "tern/learner/learner.h"

namespace tern {

namespace {

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

void PeakMemory::on_train_begin(Learner& learn) {
  epochs_.clear();
  meter_ = std::make_unique<MemoryMeter>(learn.data().device);
}

void PeakMemory::on_epoch_begin(Learner&) {
  if (meter_) meter_->reset_peak();
}

void PeakMemory::on_epoch_end(Learner& learn) {
  if (!meter_) return;
  epochs_.push_back(meter_->peak_bytes());
  learn.state().last_metrics.push_back({"peak_mib", mib(epochs_.back())});
}

void PeakMemory::on_train_end(Learner& learn) {
  if (!meter_) return;
  meter_.reset();
  if (epochs_.empty()) return;
  const auto peak = std::max_element(epochs_.begin(), epochs_.end());
  learn.sink().line(fmt::format(
      "PeakMemory: {:.1f} MiB at most, in epoch {}",
      mib(*peak),
      peak - epochs_.begin()));
}

}  // namespace tern
