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
  /// Training steps of a fit that are made one operation after the other before
  /// one is recorded, >= 1: libraries choose their kernels in them.
  int64_t warm_up_steps = 3;
};

/// The training step of a Learner as one launch: what happens between
/// on_batch_begin and on_batch_end (model, loss, loss scale, backward, overflow
/// check, clipping, optimizer) is recorded once in a fit and then replayed on
/// each batch. Rates and momenta reach the device before each replay, so
/// schedules go on working; step counts, loss scale and dropout's random
/// numbers are on the device anyway.
///
/// A step that cannot be replayed runs eagerly, with the same result; the
/// reason is logged once per fit: a batch of another shape, a loss that a
/// callback has replaced (MixUp), a callback that acts within the step and is
/// no `Callback::can_be_replayed`, an optimizer that is none of tern::optim,
/// several devices or processes, an operation that waits for the device.
///
/// What the model's C++ code decides by other things than tensors is decided
/// when the step is recorded. After a replay `state().outputs` is memory that
/// the next one writes; `state().loss` is a copy.
class StepGraph final : public StepRunner {
 public:
  /// \throws c10::ValueError if an option is out of its range.
  StepGraph(
      const CudaGraphOptions& options,
      torch::Device device,
      MakeDeviceGraph make);

  void begin(Learner& learn) override;
  void end(Learner& learn) override;
  void step(Learner& learn) override;
  /// The next step runs eagerly and is recorded again.
  void forget() override;

  /// Steps of the running or last fit that were replayed.
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
  std::unique_ptr<DeviceGraph> graph_;  // null: not in this fit
  Batch batch_;               // what the recorded step reads; empty before
  Tensors results_;           // what it writes: the loss, then the outputs
  torch::Tensor overflowed_;  // and TrainState::step_overflowed
  int64_t warm_steps_ = 0, replayed_ = 0;
  std::set<std::string> said_;  // in this fit
};

/// That of a Learner, or null.
std::shared_ptr<StepGraph> step_graph(const Learner& learn);

/// The step becomes a graph, or none: null. Between fits.
void set_step_graph(Learner& learn, std::shared_ptr<StepGraph> graph);

}  // namespace tern
