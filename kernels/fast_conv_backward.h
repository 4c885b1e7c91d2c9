#pragma once

namespace tern {

/// While an instance exists, backward passes of this thread compute the weight
/// gradients of bfloat16 convolutions on a CPU with Tern's kernels where those
/// are faster than oneDNN's: `conv_weight_gradient`,
/// `depthwise_weight_gradient`, and a matrix product for patches that do not
/// overlap. A Learner does this automatically.
class FastConvBackward {
 public:
  /// Does the one-time setup of the process, which the first instance otherwise
  /// does. Call it while no other thread runs a backward pass, since it changes
  /// LibTorch's operator table.
  static void prepare();
  FastConvBackward();
  ~FastConvBackward();
  /// True if an instance exists in this thread.
  static bool is_on();
  FastConvBackward(const FastConvBackward&) = delete;
  FastConvBackward& operator=(const FastConvBackward&) = delete;

 private:
  bool outer_;
};

}  // namespace tern
