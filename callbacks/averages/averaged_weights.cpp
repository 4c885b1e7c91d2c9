#include "tern/callbacks/averages/averaged_weights.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/kernels/check.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/interfaces.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

constexpr const char* kAverage = "average.";
constexpr const char* kOwn = "own.";
constexpr const char* kOwnCopy = "own_copy.";  // of the optimizer

// The tensors that training changes: parameters, and the floating buffers of
// the model's state, without the frozen weights of add_lora.
std::vector<ModelTensor> model_tensors(Learner& learn) {
  std::vector<ModelTensor> tensors = learn.model().parameters();
  std::unordered_set<c10::TensorImpl*> state;
  for (const ModelTensor& item : learn.model().state()) {
    state.insert(item.tensor.unsafeGetTensorImpl());
  }
  for (ModelTensor& buffer : learn.model().buffers()) {
    if (buffer.tensor.is_floating_point() &&
        state.contains(buffer.tensor.unsafeGetTensorImpl())) {
      tensors.push_back(std::move(buffer));
    }
  }
  return tensors;
}

// The same tensors; in 16-bit training, the fp32 master weights in place of the
// model's weights.
std::vector<ModelTensor> trained_tensors(Learner& learn) {
  std::vector<ModelTensor> tensors = model_tensors(learn);
  if (const auto masters = master_weights(learn)) {
    for (ModelTensor& t : tensors) t.tensor = masters->exact(t.tensor);
  }
  return tensors;
}

// The optimizer's copies of weights, such as Lookahead's.
CopiesWeights* copies_of(Learner& learn) {
  return dynamic_cast<CopiesWeights*>(parts_of(learn).optimizer.get());
}

// Also updates the weights of a 16-bit model.
void write(Learner& learn, const Tensors& values) {
  const torch::NoGradGuard no_grad;
  const auto tensors = trained_tensors(learn);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].tensor.copy_(values[i]);
  }
  if (const auto masters = master_weights(learn)) {
    masters->copy_to_model();
  }
}

torch::ScalarType type_of_average(const torch::Tensor& tensor) {
  return torch::promote_types(tensor.scalar_type(), torch::kFloat);
}

}  // namespace

// Keeps `names_`, since the next averages have the same names, set by `follow`.
void WeightAverage::clear_averages() {
  averages_.clear();
  own_.clear();
  own_copies_.clear();
  replaced_.clear();  // keeps weights that were loaded in the meantime
}

void WeightAverage::check_are_of(
    const std::vector<ModelTensor>& tensors) const {
  bool fits = averages_.size() == tensors.size();
  for (size_t i = 0; fits && i < tensors.size(); ++i) {
    fits = names_[i] == tensors[i].name &&
           averages_[i].sizes() == tensors[i].tensor.sizes();
  }
  TERN_CHECK_VALUE(
      fits,
      "[WeightAverage] the averaged weights ({} tensors) belong to a different "
      "model; expected the names and shapes of this model's {} tensors. Load "
      "the state that was saved with this model.",
      averages_.size(),
      tensors.size());
}

void WeightAverage::follow(Learner& learn) {
  const auto tensors = trained_tensors(learn);
  if (has_averages()) check_are_of(tensors);
  names_.clear();
  followed_.clear();
  for (const ModelTensor& t : tensors) {
    names_.push_back(t.name);
    followed_.push_back(t.tensor.detach());
  }
  move_to_weights();
}

// Averages from a checkpoint are on the CPU.
void WeightAverage::move_to_weights() {
  if (averages_.size() != followed_.size()) return;
  for (size_t i = 0; i < averages_.size(); ++i) {
    averages_[i] = averages_[i].to(followed_[i].device());
  }
}

// On the first call, copies the weights to initialize the averages.
Tensors WeightAverage::next_weights() {
  Tensors weights;
  for (const torch::Tensor& t : followed_) {
    weights.push_back(
        t.to(type_of_average(t), false, /*copy=*/!has_averages()));
  }
  if (!has_averages()) averages_ = std::exchange(weights, {});
  return weights;
}

void WeightAverage::move_towards_weights(double share) {
  const torch::NoGradGuard no_grad;
  const Tensors weights = next_weights();
  if (!weights.empty()) at::_foreach_lerp_(averages_, weights, share);
}

void WeightAverage::move_towards_weights(const torch::Tensor& share) {
  const torch::NoGradGuard no_grad;
  const Tensors weights = next_weights();
  if (weights.empty()) return;
  Tensors moves = at::_foreach_sub(weights, averages_);
  at::_foreach_mul_(moves, share.to(torch::kFloat));
  at::_foreach_add_(averages_, moves);
}

void WeightAverage::apply(Learner& learn) {
  if (!has_averages() || is_swapped_in()) return;
  const auto tensors = trained_tensors(learn);
  check_are_of(tensors);
  for (const ModelTensor& t : tensors) {
    own_.push_back(t.tensor.detach().clone());
  }
  write(learn, averages_);
  CopiesWeights* const optimizer = copies_of(learn);
  if (!optimizer) return;
  for (const torch::Tensor& copy : optimizer->weight_copies()) {
    own_copies_.push_back(copy.clone());
  }
  optimizer->weights_replaced();
}

void WeightAverage::restore(Learner& learn) {
  if (!is_swapped_in()) return;
  write(learn, own_);
  own_.clear();
  const Tensors own_copies = std::exchange(own_copies_, {});
  CopiesWeights* const optimizer = copies_of(learn);
  if (own_copies.empty() || !optimizer) return;
  const torch::NoGradGuard no_grad;
  const Tensors copies = optimizer->weight_copies();
  // `copies` is empty if the optimizer's state was cleared.
  for (size_t i = 0; i < std::min(copies.size(), own_copies.size()); ++i) {
    torch::Tensor(copies[i]).copy_(own_copies[i]);
  }
}

void WeightAverage::stand_in(Learner& learn) {
  if (!has_averages() || is_swapped_in() || !replaced_.empty()) return;
  const auto exact = trained_tensors(learn);
  check_are_of(exact);
  const auto replace = [this](torch::Tensor tensor, const torch::Tensor& by) {
    replaced_.emplace_back(tensor, tensor.variable_data());
    tensor.set_data(
        by.to(tensor.options(), /*non_blocking=*/false, /*copy=*/true));
  };
  const auto of_model = model_tensors(learn);
  for (size_t i = 0; i < exact.size(); ++i) {
    replace(exact[i].tensor, averages_[i]);
    // In 16 bits the model does not compute with the master weight itself.
    if (of_model[i].tensor.is_same(exact[i].tensor)) continue;
    replace(of_model[i].tensor, averages_[i]);
  }
}

void WeightAverage::step_back() {
  for (auto& [tensor, own] : replaced_) tensor.set_data(own);
  replaced_.clear();
}

void WeightAverage::forget_own() {
  own_.clear();
  own_copies_.clear();
}

bool WeightAverage::are_untouched(Learner& learn) const {
  const auto tensors = trained_tensors(learn);
  check_are_of(tensors);
  // Without the buffers, since they differ between ranks.
  const size_t parameters = learn.model().parameters().size();
  for (size_t i = 0; i < parameters; ++i) {
    const torch::Tensor& now = tensors[i].tensor;
    if (!torch::equal(now, averages_[i].to(now.options()))) return false;
  }
  return true;
}

void WeightAverage::save_averages(StateDict& state) const {
  for (size_t i = 0; i < averages_.size(); ++i) {
    state.insert(kAverage + names_[i], averages_[i].clone());
  }
  for (size_t i = 0; i < own_.size(); ++i) {
    state.insert(kOwn + names_[i], own_[i].clone());
  }
  for (size_t i = 0; i < own_copies_.size(); ++i) {
    state.insert(kOwnCopy + std::to_string(i), own_copies_[i].clone());
  }
}

void WeightAverage::load_averages(const StateDict& state) {
  clear_averages();
  std::vector<std::string> names;
  for (const auto& item : state) {
    if (item.key().starts_with(kAverage)) {
      names.push_back(item.key().substr(std::string(kAverage).size()));
      averages_.push_back(item.value().clone());
    } else if (item.key().starts_with(kOwn)) {
      own_.push_back(item.value().clone());
    } else if (item.key().starts_with(kOwnCopy)) {
      own_copies_.push_back(item.value().clone());
    }
  }
  if (!has_averages()) return;
  names_ = std::move(names);
  move_to_weights();
}

void WeightAverage::on_add(Learner& learn) {
  check_only_one(
      learn.find<WeightAverage>(),
      *this,
      "both load their averages into the model");
}

}  // namespace tern
