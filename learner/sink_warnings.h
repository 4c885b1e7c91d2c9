#pragma once

#include <c10/util/Exception.h>

#include "tern/learner/sink.h"

namespace tern {

/// Sends LibTorch's warnings of this thread to a sink while it lives: those of
/// GradScaler too, which uses LibTorch's way to warn.
class SinkWarnings final : public c10::WarningHandler {
 public:
  explicit SinkWarnings(SinkImpl& sink) : sink_(sink), guard_(this) {}
  void process(const c10::Warning& warning) override {
    sink_.warning(warning.msg());
  }

 private:
  SinkImpl& sink_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace tern
