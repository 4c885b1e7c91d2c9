#pragma once

namespace tern {

struct FusedSgdArgs {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  /// false: L2, added to the gradient. true: `param *= 1 - lr * weight_decay`.
  bool decoupled_weight_decay = false;
};

struct FusedAdamArgs {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false;
  /// false: Adam, L2 added to the gradient. true: AdamW.
  bool decoupled_weight_decay = false;
};

}  // namespace tern
