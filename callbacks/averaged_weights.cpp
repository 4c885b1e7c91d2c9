#include "tern/callbacks/averaged_weights.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/learner.h"
#include "tern/learner/master_weights.h"

namespace tern {

namespace {

constexpr const char* kAverage = "average.";
constexpr const char* kOwn = "own.";

// What training moves: masters where there are, parameters, floating buffers.
std::vector<ModelTensor> trained_tensors(Learner& learn) {
  std::vector<ModelTensor> tensors = learn.model().parameters();
  if (learn.masters()) {
    for (ModelTensor& p : tensors) p.tensor = learn.masters()->of(p.tensor);
  }
  for (ModelTensor& buffer : learn.model().buffers()) {
    if (buffer.tensor.is_floating_point()) tensors.push_back(std::move(buffer));
  }
  return tensors;
}

// The half weights follow their masters.
void write(Learner& learn, const Tensors& values) {
  const torch::NoGradGuard no_grad;
  const auto tensors = trained_tensors(learn);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].tensor.copy_(values[i]);
  }
  if (learn.masters()) learn.masters()->copy_masters_to_weights();
}

}  // namespace

void AveragedWeights::clear() {
  names_.clear();
  averages_.clear();
  own_.clear();
}

void AveragedWeights::move_towards(Learner& learn, double share) {
  const torch::NoGradGuard no_grad;
  const auto tensors = trained_tensors(learn);
  if (is_empty()) {
    for (const ModelTensor& t : tensors) {
      names_.push_back(t.name);
      averages_.push_back(
          t.tensor.detach().to(torch::kFloat, false, /*copy=*/true));
    }
    return;
  }
  Tensors weights;
  for (const ModelTensor& t : tensors) {
    weights.push_back(t.tensor.detach().to(torch::kFloat));
  }
  at::_foreach_lerp_(averages_, weights, share);
}

void AveragedWeights::stand_in(Learner& learn) {
  if (is_empty() || stands_in()) return;
  for (const ModelTensor& t : trained_tensors(learn)) {
    own_.push_back(t.tensor.detach().clone());
  }
  write(learn, averages_);
}

void AveragedWeights::stand_down(Learner& learn) {
  if (!stands_in()) return;
  write(learn, own_);
  own_.clear();
}

bool AveragedWeights::are_untouched(Learner& learn) const {
  const auto tensors = trained_tensors(learn);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor& now = tensors[i].tensor;
    if (!torch::equal(now, averages_[i].to(now.scalar_type()))) return false;
  }
  return true;
}

void AveragedWeights::save(StateDict& state) const {
  for (size_t i = 0; i < averages_.size(); ++i) {
    state.insert(kAverage + names_[i], averages_[i].clone());
  }
  for (size_t i = 0; i < own_.size(); ++i) {
    state.insert(kOwn + names_[i], own_[i].clone());
  }
}

void AveragedWeights::load(const StateDict& state) {
  clear();
  for (const auto& item : state) {
    if (item.key().starts_with(kAverage)) {
      names_.push_back(item.key().substr(std::string(kAverage).size()));
      averages_.push_back(item.value().clone());
    } else if (item.key().starts_with(kOwn)) {
      own_.push_back(item.value().clone());
    }
  }
}

void WeightAverage::on_add(const Learner& learn) {
  const auto other = learn.find<WeightAverage>();
  TORCH_CHECK_VALUE(
      !other,
      fmt::format(
          "[Learner::add] {} and {} would both put their averages into the "
          "model; remove one of them.",
          other ? other->name() : "",
          name()));
}

}  // namespace tern
