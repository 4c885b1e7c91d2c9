#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include "tern/learner/model.h"
#include "tern/learner/precision/keep_fp32.h"

namespace tern {

/// How often each power of two occurs among numbers: `counts[i]` of them lie
/// between 2^(i - 150) and twice that.
struct Magnitudes {
  static constexpr int64_t kBins = 300, kZero = 150;
  std::vector<double> counts = std::vector<double>(kBins);
  double largest = 0, root_mean_square = 0;

  explicit Magnitudes(const torch::Tensor& numbers);
  Magnitudes() = default;
  /// The share of numbers other than 0 that are below 2^exponent.
  double share_below(int64_t exponent) const;
};

/// What an operation of a forward pass came to.
struct ProbedOp {
  std::string name;          // "exp"
  int64_t module = -1;       // of the weights that came last; -1: none yet
  torch::Tensor output;      // fp32, detached
  int64_t version = 0;       // of it; another one: it was written into later
  Magnitudes gradient = {};  // of the loss by the output
  // Of a pass in 16 bits, beside the same operation in fp32:
  double overflow = 0;        // share of outputs that are finite there alone
  double error = 0;           // |16 bits - fp32| / |fp32|
  int64_t blamed = -1;        // the module to keep in fp32, if it is bad
  bool is_first_bad = false;  // bad, while what it was given is not
};

/// Watches the operations of a model's forward passes in this thread while it
/// lives; they may be made to compute as a half or bfloat16 model does on a
/// GPU, or as autocast does, on any device: what passes from one operation to
/// the next is rounded, and so are gradients on their way back. Sums within an
/// operation stay fp32.
class PrecisionProbe {
 public:
  struct Rounding {
    torch::ScalarType dtype;
    KeptParameters kept = {};   // of layers that compute in fp32
    bool keeps_inputs = false;  // of the model
    // Fp32 weights; what autocast does on this device says what is rounded.
    std::optional<torch::Device> autocast = {};
  };

  /// \param rounding   Unset: only watches.
  /// \param reference  Of a pass that was only watched, to compare with.
  PrecisionProbe(
      const Model& model,
      const Tensors& inputs,
      std::optional<Rounding> rounding,
      const PrecisionProbe* reference);
  ~PrecisionProbe();
  PrecisionProbe(const PrecisionProbe&) = delete;

  /// No longer watches. \return  the outputs as they reach the loss.
  Tensors end(const Tensors& outputs);

  /// Whether an input of the model is finite in fp32 alone.
  bool inputs_overflow() const { return inputs_overflow_; }
  /// In the order in which they were called; views are left out.
  const std::vector<ProbedOp>& ops() const { return ops_; }
  /// Of the modules whose weights were used, in that order.
  const std::vector<std::string>& modules() const { return modules_; }

  /// For LibTorch's dispatcher.
  void run(
      const c10::OperatorHandle& operation,
      c10::DispatchKeySet keys,
      torch::jit::Stack* stack);
  static PrecisionProbe* current();

 private:
  // Where a tensor comes from.
  struct Origin {
    int64_t module = -1;
    std::string weight_of = {};  // of a parameter: its module
    bool is_kept = false;
    bool is_fp32 = false;
    bool promotes = true;  // other operands become fp32 beside it
    bool is_bad = false;
    double error = 0;                       // as ProbedOp's
    std::optional<int64_t> cancelled = {};  // the module of what is all error
  };
  // What an operation is given.
  struct Operands;

  bool is_autocast() const;
  bool has_autocast(const c10::OperatorHandle& operation) const;
  Origin origin_of(const torch::Tensor& tensor) const;
  Operands look_at(
      const c10::OperatorHandle& operation,
      const torch::jit::Stack& stack);
  torch::Tensor rounded(const torch::Tensor& tensor, bool is_in_16_bits);
  void note_output(
      const c10::OperatorHandle& operation,
      const torch::Tensor& output,
      Operands& operands);
  void compare(ProbedOp& op, const torch::Tensor& output, Operands& operands);

  std::optional<Rounding> rounding_;
  const PrecisionProbe* reference_;
  std::unordered_map<const c10::TensorImpl*, Origin> origins_;
  std::unordered_map<const c10::TensorImpl*, std::pair<int64_t, torch::Tensor>>
      rounded_;
  Tensors alive_;  // so that no address comes twice
  std::vector<ProbedOp> ops_;
  std::vector<std::string> modules_;
  bool is_open_ = true, inputs_overflow_ = false;
  bool is_in_fp32_operation_ = false;  // of autocast
};

}  // namespace tern
