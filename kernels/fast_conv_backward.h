#pragma once

namespace tern {

/// While it lives, backward passes of this thread compute the gradients of
/// convolutions' weights in bfloat16 on a CPU by Tern's kernels where those are
/// faster than oneDNN's: `conv_weight_gradient`, `depthwise_weight_gradient`, and
/// a product of matrices for patches that do not overlap. A Learner does so by
/// itself.
class FastConvBackward {
 public:
  /// Gets ready, once a process, which the first guard else does: while no other
  /// thread is in a backward pass, for it changes LibTorch's table of operations.
  static void prepare();
  FastConvBackward();
  ~FastConvBackward();
  /// Whether one lives, in this thread.
  static bool is_on();
  FastConvBackward(const FastConvBackward&) = delete;
  FastConvBackward& operator=(const FastConvBackward&) = delete;

 private:
  bool outer_;
};

}  // namespace tern
