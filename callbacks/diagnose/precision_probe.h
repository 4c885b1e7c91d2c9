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

/// A way to compute that an audit tries, and where it says what comes of it.
struct PrecisionType {
  torch::ScalarType dtype;
  ModuleAudit::InType ModuleAudit::*in_module;
  TypeAudit PrecisionAudit::*in_model;
  bool is_autocast = false;

  double smallest_normal() const {
    return dtype == torch::kHalf ? 0x1p-14 : 0x1p-126;
  }
};

/// A flat kDouble tensor for each module: of its weights, or their gradients.
using ByModule = std::map<std::string, torch::Tensor>;
ByModule by_module(const LearnerParts& l, bool of_gradients);

/// Compares numbers with those of fp32; shares are of what is not 0 in fp32.
/// \param smallest_normal  What is smaller in fp32 is tiny.
ModuleAudit::Change change_of(
    const torch::Tensor& own,
    const torch::Tensor& fp32,
    double smallest_normal);
/// NaN is worst.
void take_worst(double& worst, double other);
void take_worst(ModuleAudit::Change& worst, const ModuleAudit::Change& other);

/// Forward and backward passes over one batch of which each operation is
/// watched and compared with fp32. For fp16 and bf16 the model is converted as
/// for training, and an operation on 16-bit tensors computes as a GPU does, on
/// any device: in fp32, rounded once. Autocast is PyTorch's own.
class PrecisionProbe {
 public:
  explicit PrecisionProbe(PrecisionAudit& audit) : audit_(audit) {}

  /// Returns the gradients of the weights, with the loss scale.
  /// \param type  Null: fp32, with which later passes are compared.
  ByModule pass(LearnerParts& l, const PrecisionType* type);

  /// The least root mean square of a gradient in fp32, zeros left out.
  double faintest_gradient() const { return faintest_; }

  /// Puts the module on the list of those to keep in fp32, of the last pass's
  /// type.
  void blame(ModuleAudit& module, const std::string& fault);

  /// For LibTorch's dispatcher: calls an operation, and watches it.
  void call(
      const c10::OperatorHandle& operation,
      c10::DispatchKeySet keys,
      torch::jit::Stack& stack);

 private:
  // Where a tensor comes from.
  struct Origin {
    torch::Tensor self = {};     // so that no address comes twice
    std::string weight_of = {};  // of a parameter: its module
    size_t module = 0;           // whose weights came last
    double error = 0;            // |16 bits - fp32| / |fp32|
    // What spoiled it, and in which module: a fault if it matters.
    std::string suspect = {};
    size_t suspected = 0;
  };
  // An operation, and the origin of what it returns.
  struct Op {
    std::string name = {};
    Origin origin = {};
    bool has_weights = false;
    bool is_infinite = false;                // something that it is given
    torch::ScalarType type = torch::kFloat;  // of its result
  };

  // A call of an operation that is watched.
  struct Call {
    size_t arguments = 0, results = 0;
    Op op = {};
    bool has_dtype = false;       // is told the type of its result
    torch::Tensor in_place = {};  // what it writes; undefined: a new tensor
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
  // Of a pass:
  const PrecisionType* type_ = nullptr;
  KeptParameters kept_;
  std::map<std::string, size_t> seen_;  // of results_
  std::unordered_map<const c10::TensorImpl*, Origin> origins_;
};

}  // namespace tern
