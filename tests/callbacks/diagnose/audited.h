#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/diagnose/precision_audit.h"
#include "tern/callbacks/diagnose/sync_audit.h"
#include "tern/learner/learner.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"

namespace tern {

inline std::vector<OptimizerFactory> fused_optimizers() {
  return {
      optimizer<optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)),
      optimizer<optim::Adam>(torch::optim::AdamOptions()),
      OptimizerFactory{}};
}

inline std::string findings_of(const SyncAudit& audit) {
  std::string text;
  for (const SyncAudit::Finding& f : audit.findings()) {
    text += fmt::format("{}: {}, {}\n", f.where, f.what, f.count);
  }
  return text;
}

/// Audits without the speed, which depends on the processor.
inline PrecisionAudit audit_soundness(Learner& learn) {
  return learn.audit_precision({.measure_speed = false});
}

}  // namespace tern
