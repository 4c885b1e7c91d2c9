#include "tern/callbacks/logging/profiler.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>
// Headers alone: it looks for a tool to load when it is first called.
#if defined(TERN_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#define TERN_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#include "tern/learner/lambda_callback.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

constexpr std::array<const char*, kPhases> kNames = {
    "data wait",
    "to device",
    "forward",
    "loss",
    "backward",
    "step",
    "callbacks",
    "validation",
    "other"};

double mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

double seconds_of(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Opens and closes a range of this thread that NVIDIA's tools show. Without
// such a tool a call costs some nanoseconds; in a build without CUDA it does
// nothing.
void nvtx_push([[maybe_unused]] const char* name) {
#ifdef TERN_WITH_NVTX
  nvtxRangePushA(name);
#endif
}

void nvtx_pop() {
#ifdef TERN_WITH_NVTX
  nvtxRangePop();
#endif
}

}  // namespace

const char* to_string(Phase phase) {
  return kNames.at(static_cast<size_t>(phase));
}

// The Profiler goes first at each event and this one last: what is between is
// the time of the callbacks.
std::shared_ptr<Callback> Profiler::make_last() {
  const auto then = [this](Phase next) {
    return [this, next](Learner& learn) {
      spent(learn, Phase::callbacks);
      enter(next);
    };
  };
  const auto in_training = [this](Phase next) {
    return [this, next](Learner& learn) {
      if (!learn.state().training) return;
      spent(learn, Phase::callbacks);
      enter(next);
    };
  };
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_train_begin = then(Phase::other),
      .on_epoch_begin = then(Phase::data_wait),
      .on_batch_begin = in_training(Phase::forward),
      .on_loss_begin = in_training(Phase::loss),
      .on_backward_begin = then(Phase::backward),
      .on_backward_end = then(Phase::step),
      .on_step = then(Phase::step),
      .on_step_end = then(Phase::step),
      .on_batch_end = in_training(Phase::data_wait),
      .on_epoch_end = then(Phase::other),
      .on_eval_begin = then(Phase::validation),
      .on_eval_end = then(Phase::other),
      .order = callback_order::kLast});
}

Profiler::Profiler(Options options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      options_.trace_batches >= 0,
      fmt::format(
          "[Profiler] trace_batches is {}; expected a number >= 0.",
          options_.trace_batches));
}

void Profiler::add(Learner& learn, Phase phase, Clock::time_point end) {
  if (!is_on_) return;
  seconds_[static_cast<size_t>(phase)] += seconds_of(end - mark_);
  if (memory_) {
    int64_t& peak = peak_bytes_[static_cast<size_t>(phase)];
    peak = std::max(peak, memory_->peak_bytes());
    memory_->reset_peak();
  }
  if (trace_ && batches_ < options_.trace_batches) {
    spans_.push_back(
        {phase, mark_, end, learn.state().epoch, learn.state().batch});
  }
  mark_ = end;
}

void Profiler::enter(Phase phase) {
  if (!options_.nvtx || !is_on_) return;
  if (is_in_range_) nvtx_pop();
  // When the batch arrived is known only afterwards: one range for both.
  nvtx_push(
      phase == Phase::data_wait ? "data wait, to device" : to_string(phase));
  is_in_range_ = true;
}

void Profiler::spent(Learner& learn, Phase phase) {
  add(learn, phase, Clock::now());
}

void Profiler::restart() {
  seconds_.fill(0);
  peak_bytes_.fill(0);
  batches_ = 0;
  spans_.clear();
  start_ = mark_ = Clock::now();
}

void Profiler::on_train_begin(Learner& learn) {
  if (options_.trace) {
    trace_.emplace(
        "Profiler",
        learn.options().path / *options_.trace,
        /*append=*/false,
        learn.options().sink);
  }
  if (options_.memory) {
    TORCH_CHECK_VALUE(
        !learn.find<PeakMemory>(),
        "[Profiler] PeakMemory measures memory too, and one of them would "
        "reset the other; remove it, or leave out Profiler's `memory`.");
    memory_ = std::make_unique<MemoryMeter>(learn.data().device);
  }
  last_ = make_last();
  learn.add(last_);
  is_on_ = true;
  restart();
}

void Profiler::on_epoch_begin(Learner& learn) {
  spent(learn, Phase::other);
}

void Profiler::on_batch_begin(Learner& learn) {
  if (!learn.state().training) return;
  add(learn, Phase::data_wait, learn.state().batch_arrived);
  spent(learn, Phase::to_device);
}

void Profiler::on_loss_begin(Learner& learn) {
  if (learn.state().training) spent(learn, Phase::forward);
}

void Profiler::on_backward_begin(Learner& learn) {
  spent(learn, Phase::loss);
}

void Profiler::on_backward_end(Learner& learn) {
  spent(learn, Phase::backward);
}

void Profiler::on_step(Learner& learn) {
  spent(learn, Phase::other);
}

void Profiler::on_step_end(Learner& learn) {
  spent(learn, Phase::step);
}

void Profiler::on_batch_end(Learner& learn) {
  if (!learn.state().training) return;
  spent(learn, Phase::step);
  ++batches_;
}

void Profiler::on_eval_begin(Learner& learn) {
  spent(learn, Phase::other);
}

void Profiler::on_eval_end(Learner& learn) {
  spent(learn, Phase::validation);
}

void Profiler::on_epoch_end(Learner& learn) {
  spent(learn, Phase::other);
}

void Profiler::on_train_end(Learner& learn) {
  if (!is_on_) return;
  spent(learn, Phase::other);
  if (std::exchange(is_in_range_, false)) nvtx_pop();
  is_on_ = false;
  memory_.reset();
  learn.remove(*last_);
  if (trace_) write_trace();
  trace_.reset();
  if (options_.show && !learn.state().failed) show(learn);
}

void Profiler::show(Learner& learn) const {
  const double total = seconds_of(mark_ - start_);
  SinkImpl& sink = learn.sink();
  sink.line(fmt::format("Profiler: {} batches in {:.2f} s", batches_, total));
  sink.line(fmt::format(
      "phase        seconds    share  ms/batch{}",
      options_.memory ? "  peak MiB" : ""));
  for (size_t i = 0; i < kPhases; ++i) {
    sink.line(fmt::format(
        "{:<11}{:>9.3f}  {:>5.1f} %  {:>8.3f}{}",
        kNames[i],
        seconds_[i],
        total > 0 ? 100 * seconds_[i] / total : 0,
        batches_ ? 1e3 * seconds_[i] / static_cast<double>(batches_) : 0,
        options_.memory ? fmt::format("  {:>8.1f}", mebibytes(peak_bytes_[i]))
                        : ""));
  }
}

// The Trace Event Format: complete events, times in microseconds.
void Profiler::write_trace() {
  std::string json = "{\"traceEvents\":[\n";
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    json += fmt::format(
        "{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":{:.3f},"
        "\"dur\":{:.3f},\"args\":{{\"epoch\":{},\"batch\":{}}}}}{}\n",
        to_string(span.phase),
        1e6 * seconds_of(span.begin - start_),
        1e6 * seconds_of(span.end - span.begin),
        span.epoch,
        span.batch,
        i + 1 < spans_.size() ? "," : "");
  }
  trace_->write(json + "]}\n");
}

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
  learn.state().last_metrics.push_back({"peak_mib", mebibytes(epochs_.back())});
}

void PeakMemory::on_train_end(Learner& learn) {
  if (!meter_) return;
  meter_.reset();
  if (epochs_.empty()) return;
  const auto peak = std::max_element(epochs_.begin(), epochs_.end());
  learn.sink().line(fmt::format(
      "PeakMemory: {:.1f} MiB at most, in epoch {}",
      mebibytes(*peak),
      peak - epochs_.begin()));
}

}  // namespace tern
