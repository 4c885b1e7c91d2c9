#include "tern/callbacks/gradient_accumulation.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/only_one.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

void multiply_gradients(Learner& learn, double factor) {
  Tensors gradients;
  for (const ModelTensor& parameter : learn.model().parameters()) {
    if (parameter.tensor.grad().defined()) {
      gradients.push_back(parameter.tensor.grad());
    }
  }
  const torch::NoGradGuard no_grad;
  if (!gradients.empty()) at::_foreach_mul_(gradients, factor);
}

}  // namespace

GradientAccumulation::GradientAccumulation(Options options)
    : options_(options) {
  TORCH_CHECK_VALUE(
      (options.batches >= 1 && options.samples == 0) ||
          (options.samples >= 1 && options.batches == 0),
      fmt::format(
          "[GradientAccumulation] batches is {} and samples is {}; expected "
          "one of them >= 1 and the other unset.",
          options.batches,
          options.samples));
}

void GradientAccumulation::on_add(const Learner& learn) {
  check_only_one<GradientAccumulation>(learn, *this, "both gather gradients");
}

void GradientAccumulation::on_epoch_begin(Learner& learn) {
  gathered_ = batches_ = 0;
  full_ = options_.batches
              ? options_.batches *
                    learn.data().loader(Split::train).options().batch_size
              : options_.samples;
}

void GradientAccumulation::on_backward_begin(Learner& learn) {
  TrainState& state = learn.state();
  const int64_t samples = state.batch_data.size();
  state.loss_grad = state.loss_grad *
                    (static_cast<double>(samples) / static_cast<double>(full_));
  gathered_ += samples;
  ++batches_;
  const bool is_full =
      options_.batches ? batches_ >= options_.batches : gathered_ >= full_;
  const bool is_last = state.batch + 1 == state.batches || state.stop_epoch ||
                       state.stop_training;
  // Before backward, so that Distributed knows when gradients are complete.
  is_complete_ = is_full || is_last;
  if (!is_complete_) state.skip_step = state.skip_zero_grad = true;
}

void GradientAccumulation::on_backward_end(Learner& learn) {
  if (!is_complete_) return;
  if (gathered_ != full_) {
    multiply_gradients(
        learn,
        static_cast<double>(full_) / static_cast<double>(gathered_));
  }
  gathered_ = batches_ = 0;
}

StateDict GradientAccumulation::state_dict() const {
  StateDict state;
  state.insert("gathered", torch::scalar_tensor(gathered_, torch::kLong));
  state.insert("batches", torch::scalar_tensor(batches_, torch::kLong));
  return state;
}

void GradientAccumulation::load_state_dict(const StateDict& state) {
  TORCH_CHECK_VALUE(
      state.contains("gathered") && state.contains("batches"),
      "[GradientAccumulation] the state says not what is gathered; expected "
      "that of a GradientAccumulation.");
  gathered_ = state["gathered"].item<int64_t>();
  batches_ = state["batches"].item<int64_t>();
}

}  // namespace tern
