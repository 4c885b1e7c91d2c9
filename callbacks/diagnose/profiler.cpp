#include "tern/callbacks/diagnose/profiler.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <ranges>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>
// Header-only: its first call looks for a tool to load.
#if defined(TERN_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#define TERN_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/option_text.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/report/model_summary.h"

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

// The phases before and after an event, and whether the event counts only in
// training. An evaluation is a single phase.
struct Moment {
  Phase before, after;
  bool of_training = false;
};

constexpr std::array<Moment, 13> kMoments = {{
    {Phase::other, Phase::other},              // train_begin
    {Phase::other, Phase::data_wait},          // epoch_begin
    {Phase::to_device, Phase::forward, true},  // batch_begin
    {Phase::forward, Phase::loss, true},       // loss_begin
    {Phase::loss, Phase::backward},            // backward_begin
    {Phase::backward, Phase::step},            // backward_end
    {Phase::other, Phase::step},               // step
    {Phase::step, Phase::step},                // step_end
    {Phase::step, Phase::data_wait, true},     // batch_end
    {Phase::other, Phase::other},              // epoch_end
    {Phase::other, Phase::other},              // train_end
    {Phase::other, Phase::validation},         // eval_begin
    {Phase::validation, Phase::other},         // eval_end
}};

double mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

double seconds_of(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Opens and closes a range of this thread, shown by NVIDIA's tools. Without
// such a tool a call costs a few nanoseconds; in a build without CUDA it does
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

Profiler::Profiler(Options options) : options_(std::move(options)) {
  check_at_least("Profiler", "trace_batches", options_.trace_batches, 0);
}

void Profiler::spent(Learner& learn, Phase phase, Clock::time_point end) {
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
  // The time at which the batch arrived is known only afterwards, so both
  // phases share a range.
  nvtx_push(
      phase == Phase::data_wait ? "data wait, to device" : to_string(phase));
  is_in_range_ = true;
}

void Profiler::begins(Learner& learn, Event event) {
  const Moment& moment = kMoments[static_cast<size_t>(event)];
  if (moment.of_training && !learn.state().training) return;
  if (event == Event::batch_begin) {
    spent(learn, Phase::data_wait, learn.state().batch_arrived);
  }
  spent(learn, moment.before);
  if (event == Event::batch_end) ++batches_;
}

// The time between `begins` and `ends` is spent in callbacks.
void Profiler::ends(Learner& learn, Event event) {
  const Moment& moment = kMoments[static_cast<size_t>(event)];
  if (moment.of_training && !learn.state().training) return;
  spent(learn, Phase::callbacks);
  enter(moment.after);
}

void Profiler::restart() {
  seconds_.fill(0);
  callback_seconds_.clear();
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
        "[Profiler] PeakMemory also measures memory, and each would reset the "
        "other's count; remove PeakMemory, or omit Profiler's `memory`.");
    memory_ = std::make_unique<MemoryMeter>(learn.data().device);
  }
  const auto then = [this](Event event) {
    return [this, event](Learner& l) { ends(l, event); };
  };
  last_ = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_train_begin = then(Event::train_begin),
      .on_epoch_begin = then(Event::epoch_begin),
      .on_batch_begin = then(Event::batch_begin),
      .on_loss_begin = then(Event::loss_begin),
      .on_backward_begin = then(Event::backward_begin),
      .on_backward_end = then(Event::backward_end),
      .on_step = then(Event::step),
      .on_step_end = then(Event::step_end),
      .on_batch_end = then(Event::batch_end),
      .on_epoch_end = then(Event::epoch_end),
      .on_eval_begin = then(Event::eval_begin),
      .on_eval_end = then(Event::eval_end),
      .order = std::numeric_limits<int>::max()});
  learn.add(last_);
  is_on_ = true;
  callback_times_.clear();
  parts_of(learn).callbacks.seconds = &callback_seconds_;
  restart();
}

// Reads the names while the callbacks still exist. Callbacks of the same name
// are summed up.
void Profiler::name_callbacks(Learner& learn) {
  parts_of(learn).callbacks.seconds = nullptr;
  std::map<std::string, double> by_name;
  for (const auto& callback : learn.callbacks()) {
    const auto at = callback_seconds_.find(callback.get());
    const bool is_own = callback.get() == this || callback == last_;
    if (at != callback_seconds_.end() && !is_own) {
      by_name[callback->name()] += at->second;
    }
  }
  callback_times_.assign(by_name.begin(), by_name.end());
  std::ranges::sort(callback_times_, std::greater(), [](const auto& time) {
    return time.second;
  });
}

void Profiler::on_train_end(Learner& learn) {
  if (!is_on_) return;
  spent(learn, Phase::other);
  if (std::exchange(is_in_range_, false)) nvtx_pop();
  is_on_ = false;
  name_callbacks(learn);
  memory_.reset();
  learn.remove(*last_);
  if (trace_) write_trace();
  trace_.reset();
  if (options_.show && !learn.state().failed) show(learn);
}

void Profiler::show(Learner& learn) const {
  const double total = seconds_of(mark_ - start_);
  SinkImpl& sink = *learn.options().sink;
  sink.line(fmt::format(
      "Profiler: {} in {:.2f} s",
      counted(batches_, "batch"),
      total));
  sink.line(fmt::format(
      "phase        seconds  % of time  ms/batch{}",
      options_.memory ? "  peak MiB" : ""));
  for (size_t i = 0; i < kPhases; ++i) {
    sink.line(fmt::format(
        "{:<11}{:>9.3f}  {:>9.1f}  {:>8.3f}{}",
        kNames[i],
        seconds_[i],
        total > 0 ? 100 * seconds_[i] / total : 0,
        batches_ ? 1e3 * seconds_[i] / static_cast<double>(batches_) : 0,
        options_.memory ? fmt::format("  {:>8.1f}", mebibytes(peak_bytes_[i]))
                        : ""));
  }
  std::string slow;
  for (const auto& [name, seconds] : callback_times_ | std::views::take(3)) {
    slow +=
        fmt::format("{} {} {:.3f} s", slow.empty() ? "" : ",", name, seconds);
  }
  if (!slow.empty()) sink.line("of callbacks:" + slow);
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
  learn.log("peak_mib", mebibytes(epochs_.back()));
}

void PeakMemory::on_train_end(Learner& learn) {
  if (!meter_) return;
  meter_.reset();
  if (epochs_.empty()) return;
  const auto peak = std::max_element(epochs_.begin(), epochs_.end());
  learn.options().sink->line(fmt::format(
      "PeakMemory: {:.1f} MiB at most, in epoch {}",
      mebibytes(*peak),
      peak - epochs_.begin()));
}

OptionValues Profiler::option_values() const {
  return {
      {"trace", option_text(options_.trace)},
      {"trace_batches", option_text(options_.trace_batches)},
      {"nvtx", option_text(options_.nvtx)},
      {"memory", option_text(options_.memory)},
      {"show", option_text(options_.show)}};
}

}  // namespace tern
