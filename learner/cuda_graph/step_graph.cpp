#include "tern/learner/cuda_graph/step_graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include <c10/util/ScopeExit.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/kernels/load_cuda.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/fused_optimizer.h"

namespace tern {

namespace {

// Events within the recorded part of the loop.
constexpr std::array kRecorded = {
    Event::loss_begin,
    Event::backward_begin,
    Event::backward_end,
    Event::step,
    Event::step_end};

bool are_alike(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(
      a,
      b,
      [](const torch::Tensor& x, const torch::Tensor& y) {
        return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
               x.device() == y.device();
      });
}

Tensors clones(const Tensors& tensors) {
  Tensors result;
  for (const torch::Tensor& tensor : tensors) result.push_back(tensor.clone());
  return result;
}

void copy(const Tensors& from, const Tensors& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    to[i].copy_(from[i], /*non_blocking=*/true);
  }
}

// Null if the optimizer computes with learning rates on the host.
optim::FusedOptimizer* fused(Learner& learn) {
  return dynamic_cast<optim::FusedOptimizer*>(&learn.optimizer());
}

}  // namespace

std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device) {
  static const auto make = reinterpret_cast<NewCudaGraph>(open_module(
      "libtern_cuda_graph.so",
      "TERN_CUDA_GRAPH_LIBRARY",
      "a CUDA graph",
      kNewCudaGraph));
  return std::unique_ptr<DeviceGraph>(make(device));
}

StepGraph::StepGraph(
    const CudaGraphOptions& options,
    torch::Device device,
    MakeDeviceGraph make)
    : options_(options), device_(device), make_(std::move(make)) {
  TERN_CHECK_VALUE(
      options.warm_up_steps >= 1,
      "[Learner::to_cuda_graph] warm_up_steps is {}; expected 1 or more.",
      options.warm_up_steps);
}

void StepGraph::begin(Learner& learn) {
  said_.clear();
  replayed_ = 0;
  forget();
  graph_ = make_(device_);
  if (auto* const optimizer = fused(learn)) optimizer->rates_on_device(true);
}

void StepGraph::give_up(Learner& learn, const std::string& why) {
  say(learn, "this fit runs without a CUDA graph: " + why);
  end(learn);
}

void StepGraph::end(Learner& learn) {
  forget();
  graph_.reset();
  if (!parts_of(learn).optimizer) return;
  if (auto* const optimizer = fused(learn)) optimizer->rates_on_device(false);
}

void StepGraph::forget() {
  batch_ = {};
  results_.clear();
  overflowed_.reset();
  warm_steps_ = 0;
}

std::string StepGraph::obstacle(Learner& learn) const {
  if (!fused(learn)) {
    return "the optimizer reads its learning rate on the host; use an "
           "optimizer of tern::optim";
  }
  if (parts_of(learn).ranks.communicator)
    return "several processes train together";
  if (parts_of(learn).step.is_parallel)
    return "several devices compute each batch";
  for (const Event event : kRecorded) {
    for (const CallbackHandle& callback : learn.callbacks()) {
      if (loop::receives(parts_of(learn), callback, event) &&
          !callback->can_be_replayed()) {
        return fmt::format(
            "{} runs inside the step; move its work to on_batch_begin or "
            "on_batch_end, or override can_be_replayed if it launches the same "
            "kernels in every step",
            callback->name());
      }
    }
  }
  return {};
}

void StepGraph::say(Learner& learn, const std::string& text) {
  if (said_.insert(text).second) {
    learn.options().sink->line("to_cuda_graph: " + text + ".");
  }
}

void StepGraph::step(Learner& learn) {
  TrainState& state = parts_of(learn).state;
  if (!graph_) return loop::train_step(parts_of(learn));
  std::string why = results_.empty() ? obstacle(learn) : "";
  if (why.empty() && (state.skip_step || state.skip_zero_grad)) {
    why = "a callback skips the optimizer's step for some batches";
  }
  if (!why.empty()) {
    give_up(learn, why);
    return loop::train_step(parts_of(learn));
  }
  if (!fused(learn)->write_rates() && !results_.empty()) forget();
  if (state.batch_loss) {
    say(learn,
        "a callback has replaced the loss, so this step is not replayed");
    return loop::train_step(parts_of(learn));
  }
  const bool has_shape = are_alike(state.batch_data.inputs, batch_.inputs) &&
                         are_alike(state.batch_data.targets, batch_.targets);
  if (!results_.empty() && !has_shape) {
    say(learn,
        "batches whose shape differs from the recorded one are not replayed; "
        "set drop_last to omit the short last batch");
    return loop::train_step(parts_of(learn));
  }
  if (!results_.empty()) {
    return begins_replay(learn) ? replay(learn)
                                : loop::train_step(parts_of(learn));
  }
  if (warm_steps_ < options_.warm_up_steps) {
    // Only batches of the first batch's shape are recorded.
    if (warm_steps_++ == 0) {
      batch_ = {
          clones(state.batch_data.inputs),
          clones(state.batch_data.targets)};
    }
    return graph_->warm_up([&] { loop::train_step(parts_of(learn)); });
  }
  if (!has_shape || !record(learn) || !begins_replay(learn))
    return loop::train_step(parts_of(learn));
  replay(learn);
}

// Does the part of compute_loss that uses the targets on the host, before
// anything changes.
// \return false if no element of the batch counts, so that its loss is computed
//         differently.
bool StepGraph::begins_replay(Learner& learn) {
  LearnerParts& l = parts_of(learn);
  l.state.outputs.assign(results_.begin() + 1, results_.end());
  const Loss& loss = l.options.loss;
  loss.check_class_indices(l.state.outputs, l.step.host_targets);
  l.step.loss_count = loop::count_of_batch(l, loss);
  return !counts_nothing(learn);
}

bool StepGraph::counts_nothing(Learner& learn) {
  const LearnerParts& l = parts_of(learn);
  if (l.options.loss.counts_samples() || l.step.loss_count > 0) return false;
  say(learn, "a batch in which no sample counts in the loss is not replayed");
  return true;
}

// Copies the values of `batch` to the tensors that the recorded step reads, and
// makes `batch` refer to those tensors.
// \return the previous `batch`.
Batch StepGraph::put_in_place(Batch& batch) const {
  copy(batch.inputs, batch_.inputs);
  copy(batch.targets, batch_.targets);
  Batch in_place = batch_;
  in_place.indices = batch.indices;
  return std::exchange(batch, std::move(in_place));
}

bool StepGraph::record(Learner& learn) {
  TrainState& state = parts_of(learn).state;
  const Batch now = put_in_place(state.batch_data);
  GradScaler* const scaler = state.scaler;
  if (scaler) scaler->set_recording(true);
  const auto done = c10::make_scope_exit([&] {
    if (scaler) scaler->set_recording(false);
  });
  try {
    results_ = graph_->record([&] {
      loop::train_step(parts_of(learn));
      Tensors results = {state.loss};
      // Detached from the autograd nodes, which keep the recording's stream.
      for (const torch::Tensor& output : state.outputs) {
        results.push_back(output.detach());
      }
      return results;
    });
    overflowed_ = state.step_overflowed;
  } catch (const c10::Error& error) {
    abandon_step(learn);
    give_up(learn, "the step cannot be recorded: " + reason_of(error));
  }
  state.batch_data = now;
  if (!results_.empty() && counts_nothing(learn)) {
    // A step in which nothing counts differs from all other steps.
    abandon_step(learn);
    results_.clear();
    overflowed_.reset();
  }
  return !results_.empty();
}

void StepGraph::replay(Learner& learn) {
  TrainState& state = parts_of(learn).state;
  const Batch now = put_in_place(state.batch_data);
  graph_->replay();
  if (state.scaler) state.scaler->watch_skips();
  state.batch_data = now;
  state.loss = results_[0].clone();
  // A step that ran eagerly has replaced this tensor.
  state.step_overflowed = overflowed_;
  ++replayed_;
}

// Nothing has run on the device; this reverts the changes on the host.
void StepGraph::abandon_step(Learner& learn) {
  TrainState& state = parts_of(learn).state;
  state.loss_grad.reset();
  state.outputs.clear();
  parts_of(learn).step.has_gradients = false;
  if (parts_of(learn).precision) {
    parts_of(learn).precision->abandon(learn, /*keeps_gradients=*/false);
  }
  loop::zero_grad(parts_of(learn));
}

Learner& Learner::to_cuda_graph() {
  return to_cuda_graph(CudaGraphOptions{});
}

Learner& Learner::to_cuda_graph(const CudaGraphOptions& options) {
  TERN_CHECK_VALUE(
      parts_->data.device.is_cuda(),
      "[Learner::to_cuda_graph] the data is on {}; a CUDA graph needs a CUDA "
      "device. Omit the call, or train on a GPU: data.device = torch::kCUDA.",
      parts_->data.device.str());
  make_cuda_graph(parts_->data.device);  // fails now, not in the first fit
  set_step_graph(
      *this,
      std::make_shared<StepGraph>(
          options,
          parts_->data.device,
          make_cuda_graph));
  return *this;
}

std::shared_ptr<StepGraph> step_graph(const Learner& learn) {
  return std::dynamic_pointer_cast<StepGraph>(parts_of(learn).step.runner);
}

void set_step_graph(Learner& learn, std::shared_ptr<StepGraph> graph) {
  TORCH_CHECK(
      !learn.state().is_fitting,
      "[Learner] to_cuda_graph cannot be called while fit is running; call it "
      "before or after.");
  TORCH_CHECK_VALUE(
      !parts_of(learn).step.runner || step_graph(learn),
      "[Learner] to_cuda_graph cannot record the steps of MultiOptimizer; omit "
      "one of the two.");
  parts_of(learn).step.runner = std::move(graph);
}

}  // namespace tern
