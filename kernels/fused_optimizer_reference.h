#pragma once

#include "tern/kernels/fused_optimizer.h"

namespace tern::reference {

/// `tern::fused_sgd_` and `tern::fused_adam_` in operations of ATen: their
/// definition, for tests. Each operation rounds as the kernels' do, so that
/// the results agree bit for bit on a CPU.
void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state = {});

void fused_adam_(
    const OptimizerTensors& tensors,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    const FusedAdamArgs& args,
    const GradState& grad_state = {});

}  // namespace tern::reference
