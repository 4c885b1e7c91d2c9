#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <torch/types.h>

#include "tern/learner/cuda_graph/device_graph.h"
#include "tern/learner/interfaces.h"

namespace tern {

struct CudaGraphOptions {
  /// Number of steps that a fit runs eagerly before it records one, >= 1.
  /// Libraries choose their kernels during these steps.
  int64_t warm_up_steps = 3;
};

/// Runs a Learner's training step as one graph launch. Everything between
/// on_batch_begin and on_batch_end (model, loss, loss scale, backward, overflow
/// check, clipping, optimizer) is recorded once per fit and then replayed for
/// each batch. Learning rates and momentum are copied to the device before each
/// replay, so schedules keep working. Step counts, the loss scale and the state
/// of dropout's random numbers are always on the device.
///
/// A step that cannot be replayed runs eagerly, with the same result, and the
/// reason is logged once per fit. Reasons are a batch of a different shape, a
/// custom loss set by a callback (MixUp), a callback within the step whose
/// `Callback::can_be_replayed` is false, an optimizer outside tern::optim,
/// several devices or processes, and an operation that synchronizes with the
/// device.
///
/// Decisions on the host, such as an `if` in the model's C++ code, are fixed
/// when the step is recorded. After a replay `state().outputs` refers to memory
/// that the next replay overwrites; `state().loss` is a copy.
class StepGraph final : public StepRunner {
 public:
  /// \throws c10::ValueError if an option is out of range.
  StepGraph(
      const CudaGraphOptions& options,
      torch::Device device,
      MakeDeviceGraph make);

  void begin(Learner& learn) override;
  void end(Learner& learn) override;
  void step(Learner& learn) override;
  /// Discards the recording. The next steps run eagerly, as warm-up, before one
  /// is recorded again.
  void forget() override;

  /// Number of replayed steps in the running or the last fit.
  int64_t replayed() const { return replayed_; }

 private:
  std::string obstacle(Learner& learn) const;
  Batch put_in_place(Batch& batch) const;
  bool record(Learner& learn);
  bool begins_replay(Learner& learn);
  bool counts_nothing(Learner& learn);
  void replay(Learner& learn);
  void abandon_step(Learner& learn);
  void give_up(Learner& learn, const std::string& why);
  void say(Learner& learn, const std::string& text);

  CudaGraphOptions options_;
  torch::Device device_;
  MakeDeviceGraph make_;
  std::unique_ptr<DeviceGraph> graph_;  // null: no graph in this fit
  Batch batch_;               // read by the recorded step; empty before
  Tensors results_;           // written by it: the loss, then outputs
  torch::Tensor overflowed_;  // its TrainState::step_overflowed
  int64_t warm_steps_ = 0, replayed_ = 0;
  std::set<std::string> said_;  // logged in this fit
};

/// Returns a Learner's graph, or null.
std::shared_ptr<StepGraph> step_graph(const Learner& learn);

/// Sets the graph that runs a Learner's step; null: steps run eagerly. Call it
/// between fits only.
void set_step_graph(Learner& learn, std::shared_ptr<StepGraph> graph);

}  // namespace tern
