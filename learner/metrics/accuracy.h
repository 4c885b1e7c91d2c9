#pragma once

#include "tern/learner/metric.h"

namespace tern {

/// Share of samples (or pixels) whose likeliest class is the true one.
/// Outputs [N, C, ...] (or [N, ..., C]) scores, targets [N, ...] classes.
Metric accuracy();

/// 1 - accuracy.
Metric error_rate();

/// Share of samples whose true class is among the `k` likeliest.
/// \param k  >= 1; the model needs at least as many classes.
Metric top_k_accuracy(int64_t k = 5);

/// Share of right answers where a sample has several labels: outputs and
/// targets are both [N, L], targets 0 or 1.
/// \param threshold  In 0..1; an answer above it says yes.
/// \param sigmoid    Outputs are logits, not probabilities.
Metric accuracy_multi(double threshold = 0.5, bool sigmoid = true);

}  // namespace tern
