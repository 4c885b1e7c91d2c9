#pragma once

#include <vector>

#include "tern/data/batch.h"
#include "tern/learner/interfaces.h"
#include "tern/learner/model.h"
#include "tern/learner/state_dict.h"

/// A Learner's weights as files hold them: fp32, by Python's names. Private to
/// Tern.
namespace tern {

class Learner;

/// What of a state dict goes where, checked and not done yet.
struct LoadPlan {
  Tensors targets, values;  // of one type and device each
  LoadReport report;

  void apply() const;
};

/// \throws c10::ValueError as Model::load_state_dict.
LoadPlan plan_load(
    const std::vector<ModelTensor>& model,
    const StateDict& state,
    const LoadOptions& options);

/// Parameters (the fp32 masters of a 16-bit model) and buffers; those that are
/// 16-bit as they are before rounding, in copies, all else in the model's own
/// memory.
std::vector<ModelTensor> fp32_tensors(const Learner& learner);

/// Where a state dict is copied to: the same without copies.
std::vector<ModelTensor> load_targets(const Learner& learner);

/// Copies it there, and what is before rounding into the 16-bit model.
void apply(const LoadPlan& plan, Learner& learner);

/// While it lives each rank has all master weights. All ranks make one.
class WholeMasters {
 public:
  explicit WholeMasters(const Learner& learner);
  ~WholeMasters();
  WholeMasters(const WholeMasters&) = delete;

 private:
  TrainingShard* shard_ = nullptr;
};

}  // namespace tern
