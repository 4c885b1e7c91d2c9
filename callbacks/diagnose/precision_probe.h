#pragma once

#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include "tern/callbacks/diagnose/precision_audit.h"
#include "tern/learner/amp/keep_fp32.h"
#include "tern/learner/learner_parts.h"

namespace tern {

/// A precision that an audit tries, and the members that receive its results.
struct PrecisionType {
  torch::ScalarType dtype;
  ModuleAudit::InType ModuleAudit::*in_module;
  TypeAudit PrecisionAudit::*in_model;
  bool is_autocast = false;

  double smallest_normal() const {
    return dtype == torch::kHalf ? 0x1p-14 : 0x1p-126;
  }
};

/// A flat kDouble tensor per module: its weights, or their gradients.
using ByModule = std::map<std::string, torch::Tensor>;
ByModule by_module(const LearnerParts& l, bool of_gradients);

/// Compares values with the same values in fp32. `overflow` is a fraction of
/// the values that are finite in fp32, `tiny` of the values that are nonzero.
/// \param smallest_normal  Values that are smaller in fp32 count as tiny.
ModuleAudit::Change change_of(
    const torch::Tensor& own,
    const torch::Tensor& fp32,
    double smallest_normal);
/// Sets `worst` to the worse of the two values; NaN is the worst of all.
void take_worst(double& worst, double other);
void take_worst(ModuleAudit::Change& worst, const ModuleAudit::Change& other);

/// Runs forward and backward passes over one batch and compares each operation
/// with fp32. For fp16 and bf16 the model is converted as for training, and on
/// any device, operations on 16-bit tensors compute as on a GPU: in fp32,
/// rounded once. Autocast uses PyTorch's own kernels.
class PrecisionProbe {
 public:
  explicit PrecisionProbe(PrecisionAudit& audit) : audit_(audit) {}

  /// Returns the gradients of the weights, multiplied by the loss scale.
  /// \param type  Null: fp32, the reference for later passes.
  ByModule pass(LearnerParts& l, const PrecisionType* type);

  /// The smallest root mean square of a gradient in fp32, ignoring zeros.
  double faintest_gradient() const { return faintest_; }

  /// Records a fault of the module and adds it to `keep_fp32` of the last
  /// pass's dtype.
  void blame(ModuleAudit& module, const std::string& fault);

  /// Called by LibTorch's dispatcher: runs an operation and records it.
  void call(
      const c10::OperatorHandle& operation,
      c10::DispatchKeySet keys,
      torch::jit::Stack& stack);

 private:
  // Where a tensor comes from.
  struct Origin {
    torch::Tensor self = {};     // keeps the address unique
    std::string weight_of = {};  // for a parameter: its module
    size_t module = 0;           // index of the last module with weights
    double error = 0;            // |16 bits - fp32| / |fp32|
    // The operation that corrupted it, and that operation's module. It becomes
    // a fault only if the corruption matters later.
    std::string suspect = {};
    size_t suspected = 0;
  };
  // An operation, and the origin of its result.
  struct Op {
    std::string name = {};
    Origin origin = {};
    bool has_weights = false;
    bool is_infinite = false;                // an argument is infinite
    torch::ScalarType type = torch::kFloat;  // of its result
  };

  // A recorded call of an operation.
  struct Call {
    size_t arguments = 0, results = 0;
    Op op = {};
    bool has_dtype = false;       // has an argument for its dtype
    torch::Tensor in_place = {};  // its output; undefined: a new tensor
    bool is_copy = false;         // a view or a conversion
    bool is_emulated = false;     // computes in fp32 and is rounded
  };

  bool emulates() const { return type_ && !type_->is_autocast; }
  size_t index_of(const std::string& module);
  Origin& origin_of(const torch::Tensor& tensor) {
    return origins_[tensor.unsafeGetTensorImpl()];
  }
  Tensors forward(LearnerParts& l);
  Op look_at(const std::string& name, const Tensors& operands);
  Call describe(
      const c10::OperatorHandle& operation,
      const torch::jit::Stack& stack);
  c10::IValue round_result(const Call& call, torch::jit::Stack& stack);
  void
  compare_result(Call& call, const c10::IValue& wide, torch::jit::Stack& stack);
  void note_fp32(const Op& op, const torch::Tensor& output);
  void note_gradient(size_t module, const torch::Tensor& gradient);
  void judge(
      const Op& op,
      const torch::Tensor& wide,
      c10::IValue& result,
      Origin& origin);

  PrecisionAudit& audit_;
  double faintest_ = std::numeric_limits<double>::infinity();
  std::map<std::string, Tensors> results_;  // in fp32, by module and operation
  std::string first_infinite_;
  // For one pass:
  const PrecisionType* type_ = nullptr;
  KeptParameters kept_;
  std::map<std::string, size_t> seen_;  // compared results, by key
  std::unordered_map<const c10::TensorImpl*, Origin> origins_;
};

}  // namespace tern
