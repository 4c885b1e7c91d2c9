#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/report/report.h"

namespace tern {

struct PrecisionAuditOptions {
  /// As it will be passed to `fit`; decides how large updates are.
  LearningRates lr = {};
};

/// What 16 bits make of one module: the operations with its weights, and those
/// after it that have none.
struct ModuleAudit {
  /// Shares are of numbers that are not 0 in fp32.
  struct Change {
    double overflow = 0;  // infinite
    double tiny = 0;      // subnormal or 0
    double error = 0;     // |16 bits - fp32| / |fp32|
  };
  struct InType {
    Change output;           // of the worst operation
    Change gradient;         // of its weights, at the loss scale
    Change update;           // of 16-bit weights without master weights
    double update_lost = 0;  // smaller than half a unit of its weight
    std::string fault = {};  // what goes wrong here first; empty: nothing
  };

  std::string name;  // "layer1.0.conv1"; "input": before any weights
  double largest_output = 0, largest_gradient = 0;  // in fp32
  InType fp16 = {}, bf16 = {}, amp = {};
};

/// What a type makes of the whole model.
struct TypeAudit {
  /// Loss scales at which no gradient overflows and hardly one is lost, from
  /// the batch that was looked at; `from` > `to`: there is none for all layers.
  double safe_scale_from = 1, safe_scale_to = 1;
  /// The loss scale to begin with.
  double loss_scale = 1;
  /// Updates are lost unless there are fp32 master weights (to_fp16 and to_bf16
  /// have them).
  bool needs_masters = false;
  /// With these modules in fp32 nothing goes wrong, if `is_sound`.
  std::vector<std::string> keep_fp32;
  bool is_sound = false;
};

enum class Precision { fp32, fp16, bf16, amp };

/// Whether, and how, a model can be trained in 16 bits, as measured by
/// `Learner::audit_precision`: the first training batch goes through the model
/// in fp32, and again rounded as a GPU rounds it in half and in bfloat16. What
/// comes after a fault is computed as if there were none, to find it all.
///
///   const PrecisionAudit audit = learn.audit_precision();
///   fmt::print("{}", audit.to_string());
///   audit.apply(learn).fit(5);
struct PrecisionAudit {
  std::vector<ModuleAudit> modules;  // in the order of the forward pass
  TypeAudit fp16, bf16;
  /// As to_amp computes on this device; tried where too much goes wrong with
  /// 16-bit weights.
  TypeAudit amp;
  /// What is wrong in fp32 already: numbers that are not finite.
  std::vector<std::string> problems;

  // ---- The recommendation ----

  Precision precision = Precision::fp32;
  /// The loss scale for to_fp16; `keep_fp32` for to_amp too.
  MixedPrecisionOptions options;
  std::string reason;

  /// What was found out about the recommended type; null for fp32.
  const TypeAudit* recommended() const;

  /// Calls to_fp16, to_bf16, to_amp or to_fp32 as recommended.
  Learner& apply(Learner& learn) const;
  /// A table with the recommendation.
  std::string to_string() const;
  /// All of it, as JSON.
  std::string to_json() const;
  /// For ReportOptions::sections: the table, and the magnitudes by depth.
  ReportSection section() const;
};

}  // namespace tern
