#pragma once

#include <set>
#include <string>

#include <c10/util/Exception.h>

#include "tern/learner/sink.h"

namespace tern {

/// Sends LibTorch's warnings of this thread to a sink while it lives, each text
/// once: those of GradScaler too, which uses LibTorch's way to warn.
class SinkWarnings final : public c10::WarningHandler {
 public:
  explicit SinkWarnings(SinkImpl& sink) : sink_(sink), guard_(this) {}
  void process(const c10::Warning& warning) override {
    if (told_.insert(warning.msg()).second) sink_.warning(warning.msg());
  }

 private:
  SinkImpl& sink_;
  std::set<std::string> told_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace tern
