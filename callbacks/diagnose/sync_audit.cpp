#include "tern/callbacks/diagnose/sync_audit.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#ifdef TERN_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#endif

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/option_text.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/report/model_summary.h"
#include "tern/learner/report/op_hook.h"

namespace tern {

namespace {

// Operations whose results, or the results' sizes, depend on values.
constexpr std::array kReading = std::to_array<std::string_view>(
    {"aten::_local_scalar_dense",
     "aten::nonzero",
     "aten::equal",
     "aten::masked_select",
     "aten::_unique",
     "aten::_unique2",
     "aten::unique_dim",
     "aten::unique_consecutive",
     "aten::repeat_interleave",
     "aten::bincount"});

constexpr const char* kCudaWaits = "called a synchronizing CUDA operation";

}  // namespace

// Records one step. LibTorch reports a synchronization as a warning; other
// warnings are forwarded to the previous handler.
class SyncAudit::Watch final : public c10::WarningHandler {
 public:
  Watch(SyncAudit& audit, const Learner& learn, bool is_cpu)
      : audit_(audit),
        learn_(learn),
        others_(c10::WarningUtils::get_warning_handler()),
        guard_(this) {
    if (!is_cpu) return;
    observer_.emplace([this](const OpHook::Op& op) {
      const std::string_view name = op.name;
      if (std::find(kReading.begin(), kReading.end(), name) != kReading.end()) {
        audit_.found(learn_, op.name);
      }
    });
  }
  Watch(const Watch&) = delete;

  void process(const c10::Warning& warning) override {
    if (warning.msg().find(kCudaWaits) == std::string::npos) {
      others_->process(warning);
    } else {
      audit_.found(learn_, "a synchronization with the GPU");
    }
  }

 private:
  // Makes LibTorch warn about each synchronization with the GPU during its
  // lifetime.
  class WaitWarnings {
#ifdef TERN_WITH_CUDA
   public:
    WaitWarnings() : before_(state().get_sync_debug_mode()) {
      state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
    }
    ~WaitWarnings() { state().set_sync_debug_mode(before_); }
    WaitWarnings(const WaitWarnings&) = delete;

   private:
    static c10::cuda::WarningState& state() {
      return c10::cuda::warning_state();
    }
    c10::cuda::SyncDebugMode before_;
#endif
  };

  SyncAudit& audit_;
  const Learner& learn_;
  c10::WarningHandler* others_;
  c10::WarningUtils::WarningHandlerGuard guard_;
  WaitWarnings warnings_;
  std::optional<OpHook> observer_;
};

SyncAudit::SyncAudit(Options options) : options_(options) {
  check_at_least("SyncAudit", "warm_up", options_.warm_up, 0);
}

SyncAudit::~SyncAudit() = default;

void SyncAudit::enter(const char* event, const char* part) {
  if (evaluations_ > 0) return;
  event_ = event;
  part_ = part;
}

void SyncAudit::found(const Learner& learn, const std::string& what) {
  if (evaluations_ > 0) return;
  const Callback* const callback = parts_of(learn).callbacks.running;
  const std::string where =
      callback ? fmt::format("{} in {}", callback->name(), event_) : part_;
  for (Finding& finding : findings_) {
    if (finding.where == where && finding.what == what) {
      ++finding.count;
      return;
    }
  }
  findings_.push_back({where, what, 1});
}

void SyncAudit::on_train_begin(Learner& learn) {
  findings_.clear();
  steps_ = seen_ = evaluations_ = 0;
  last_ = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_end =
          [this](Learner&) {
            if (evaluations_ == 0) watch_.reset();
          },
      .order = callback_order::kLast + 1});
  learn.add(last_);
}

void SyncAudit::on_batch_begin(Learner& learn) {
  if (!learn.state().training || seen_++ < options_.warm_up) return;
  ++steps_;
  watch_.reset();
  watch_ = std::make_unique<Watch>(*this, learn, learn.data().device.is_cpu());
  enter("on_batch_begin", "the model");
}

void SyncAudit::on_train_end(Learner& learn) {
  watch_.reset();
  if (last_) learn.remove(*std::exchange(last_, nullptr));
  if (!learn.state().failed) show(learn);
}

void SyncAudit::show(Learner& learn) const {
  if (steps_ == 0) {
    learn.options().sink->line(fmt::format(
        "SyncAudit: nothing was measured, since the fit had no more than the "
        "{} of warm_up",
        counted(options_.warm_up, "step")));
    return;
  }
  learn.options().sink->line(fmt::format(
      "SyncAudit: {}, {}",
      counted(steps_, "step"),
      findings_.empty() ? "nothing synchronizes with the device"
                        : "where the host synchronizes with the device:"));
  for (const Finding& finding : findings_) {
    learn.options().sink->line(fmt::format(
        "{}: {}, {}",
        finding.where,
        finding.what,
        counted(finding.count, "time")));
  }
}

OptionValues SyncAudit::option_values() const {
  return {{"warm_up", option_text(options_.warm_up)}};
}

}  // namespace tern
