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
  /// The learning rate that will be passed to `fit`; determines the size of the
  /// updates.
  LearningRates lr = {};
  /// On a CPU, measures training steps of this Learner in fp32 and in 16 bits,
  /// for half a second each, but at least five steps. Recommends fp32 unless 16
  /// bits are faster by at least 5%, which they are not for small networks. If
  /// false, 16 bits are recommended whenever the network trains in them.
  bool measure_speed = true;
};

/// How 16-bit precision affects one module: the operations that use its
/// weights, and the operations without weights that follow them.
struct ModuleAudit {
  /// The first two are fractions: of the values that are finite in fp32, and of
  /// the values that are nonzero in fp32.
  struct Change {
    double overflow = 0;  // infinite or NaN
    double tiny = 0;      // subnormal or 0
    double error = 0;     // |16 bits - fp32| / |fp32|
  };
  struct InType {
    Change output;           // of the worst operation
    Change gradient;         // of its weights, with the loss scale
    Change update;           // of 16-bit weights, no master weights
    double update_lost = 0;  // fraction below half an ulp of the weight
    std::string fault = {};  // the first problem here; empty: none
  };

  std::string name;  // "layer1.0.conv1"; "input": before any weights
  double largest_output = 0, largest_gradient = 0;  // in fp32
  InType fp16 = {}, bf16 = {}, amp = {};
};

/// How one dtype affects the whole model.
struct TypeAudit {
  /// Range of loss scales at which no gradient overflows and almost none
  /// underflows, measured on the audited batch. If `from` > `to`, no scale
  /// suits all layers.
  double safe_scale_from = 1, safe_scale_to = 1;
  /// Initial loss scale.
  double loss_scale = 1;
  /// True if updates are lost without fp32 master weights (to_fp16 and to_bf16
  /// have them).
  bool needs_masters = false;
  /// Modules to keep in fp32. `is_sound` is true if nothing fails when these
  /// modules are in fp32.
  std::vector<std::string> keep_fp32;
  bool is_sound = false;
};

enum class Precision { fp32, fp16, bf16, amp };

/// Reports whether, and how, a model can be trained in 16 bits, as measured by
/// `Learner::audit_precision`. The first training batch runs through the model
/// in fp32, and again with a GPU's rounding in fp16 and bfloat16. After each
/// fault, the computation continues as if the fault had not occurred, so that
/// one run finds all faults.
///
///   const PrecisionAudit audit = learn.audit_precision();
///   fmt::print("{}", audit.to_string());
///   audit.apply(learn).fit(5);
struct PrecisionAudit {
  std::vector<ModuleAudit> modules;  // in the order of the forward pass
  TypeAudit fp16, bf16;
  /// Results with autocast, as in to_amp on this device. Measured only if too
  /// many modules fail with 16-bit weights.
  TypeAudit amp;
  /// Problems that already exist in fp32: NaN or infinite values.
  std::vector<std::string> problems;

  // ---- The recommendation ----

  Precision precision = Precision::fp32;
  /// Holds the loss scale for to_fp16; its `keep_fp32` applies to to_amp too.
  MixedPrecisionOptions options;
  std::string reason;
  /// Median times of a training step on a CPU, in milliseconds. 0: not
  /// measured, because `measure_speed` is false, the device is a GPU, the
  /// network does not train in 16 bits, the processor has no bfloat16
  /// instructions, the data is a stream that cannot restart, or a callback ends
  /// each fit.
  double fp32_milliseconds = 0, sixteen_bit_milliseconds = 0;

  /// The results for the recommended dtype; null for fp32.
  const TypeAudit* recommended() const;

  /// Calls to_fp16, to_bf16, to_amp or to_fp32, as recommended.
  Learner& apply(Learner& learn) const;
  /// Returns a table with the recommendation.
  std::string to_string() const;
  /// Returns all results as JSON.
  std::string to_json() const;
  /// For ReportOptions::sections: the table, and a plot of magnitudes by depth.
  ReportSection section() const;
};

}  // namespace tern
