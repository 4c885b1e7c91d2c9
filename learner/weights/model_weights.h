#pragma once

#include <vector>

#include "tern/data/batch.h"
#include "tern/learner/interfaces.h"
#include "tern/learner/model.h"
#include "tern/learner/state_dict.h"

/// A Learner's weights in the form that files contain: fp32, by Python's names.
/// Private to Tern.
namespace tern {

class Learner;

/// The assignments of a state dict to a model's tensors, checked but not yet
/// carried out.
struct LoadPlan {
  Tensors targets, values;  // pairs of the same dtype and device
  LoadReport report;

  void apply() const;
};

/// \throws the errors of Model::load_state_dict.
LoadPlan plan_load(
    const std::vector<ModelTensor>& model,
    const StateDict& state,
    const LoadOptions& options);

/// Returns parameters (the fp32 master weights of a 16-bit model) and buffers.
/// Tensors that are 16-bit in the model are returned in full precision, and
/// such buffers are copies. All other tensors share the model's memory.
std::vector<ModelTensor> fp32_tensors(const Learner& learner);

/// Returns the tensors into which a state dict is loaded, like `fp32_tensors`
/// but without copies.
std::vector<ModelTensor> load_targets(const Learner& learner);

/// Copies the values to their targets, then rounds master weights and buffers
/// into the 16-bit model.
void apply(const LoadPlan& plan, Learner& learner);

/// Gives each rank all master weights for the lifetime of this object. All
/// ranks must create one together.
class WholeMasters {
 public:
  explicit WholeMasters(const Learner& learner);
  ~WholeMasters();
  WholeMasters(const WholeMasters&) = delete;

 private:
  TrainingShard* shard_ = nullptr;
};

}  // namespace tern
