#include "tern/callbacks/profiler.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include "tern/callbacks/nvtx.h"
#include "tern/callbacks/peak_memory.h"
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

double seconds_of(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

const char* to_string(Phase phase) {
  return kNames.at(static_cast<size_t>(phase));
}

// The Profiler goes first at each event and this one last: what is between is
// the time of the callbacks.
class Profiler::Last final : public Callback {
 public:
  explicit Last(Profiler& profiler) : profiler_(profiler) {}

  void on_train_begin(Learner& l) override { callbacks(l, Phase::other); }
  void on_epoch_begin(Learner& l) override { callbacks(l, Phase::data_wait); }
  void on_batch_begin(Learner& l) override { in_training(l, Phase::forward); }
  void on_loss_begin(Learner& l) override { in_training(l, Phase::loss); }
  void on_backward_begin(Learner& l) override { callbacks(l, Phase::backward); }
  void on_backward_end(Learner& l) override { callbacks(l, Phase::step); }
  void on_step(Learner& l) override { callbacks(l, Phase::step); }
  void on_step_end(Learner& l) override { callbacks(l, Phase::step); }
  void on_batch_end(Learner& l) override { in_training(l, Phase::data_wait); }
  void on_eval_begin(Learner& l) override { callbacks(l, Phase::validation); }
  void on_eval_end(Learner& l) override { callbacks(l, Phase::other); }
  void on_epoch_end(Learner& l) override { callbacks(l, Phase::other); }
  int order() const override { return callback_order::kLast; }
  std::string name() const override { return "Profiler (last)"; }

 private:
  void callbacks(Learner& l, Phase next) {
    profiler_.spent(l, Phase::callbacks);
    profiler_.enter(next);
  }
  void in_training(Learner& l, Phase next) {
    if (l.state().training) callbacks(l, next);
  }

  Profiler& profiler_;
};

Profiler::Profiler(Options options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      options_.trace_batches >= 0,
      fmt::format(
          "[Profiler] trace_batches is {}; expected a number >= 0.",
          options_.trace_batches));
}

Profiler::~Profiler() = default;

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
  if (options_.synchronize && learn.data().device.is_cuda()) {
    torch::cuda::synchronize();
  }
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
  last_ = std::make_shared<Last>(*this);
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
    const double mebibytes = static_cast<double>(peak_bytes_[i]) / (1 << 20);
    sink.line(fmt::format(
        "{:<11}{:>9.3f}  {:>5.1f} %  {:>8.3f}{}",
        kNames[i],
        seconds_[i],
        total > 0 ? 100 * seconds_[i] / total : 0,
        batches_ ? 1e3 * seconds_[i] / static_cast<double>(batches_) : 0,
        options_.memory ? fmt::format("  {:>8.1f}", mebibytes) : ""));
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

}  // namespace tern
