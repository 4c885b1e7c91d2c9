#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <torch/types.h>

#include "tern/learner/distributed/process_group.h"

namespace tern {

/// The defaults are those of torch.nn.parallel.DistributedDataParallel.
struct GradientReducerOptions {
  /// Gradients travel in buckets of this size, while backward still computes
  /// the next one.
  int64_t bucket_megabytes = 25;
  /// Set it when some parameters take no part in some steps, such as those of a
  /// branch that not every batch takes: each step then finds out which, which
  /// costs a walk through its graph and a message. Without it such a step ends
  /// with an error that names them.
  bool find_unused_parameters = false;
  /// Gradients travel, and are added up, in 16 bits; unset: in their own type.
  /// kHalf: what does not fit becomes infinite on all ranks, which a GradScaler
  /// sees, so use it with one. kBFloat16 has the range of fp32 and 8 bits.
  std::optional<torch::ScalarType> compress_to = {};
};

/// How long gradients travelled in a step, on average, by the Reducer's own
/// clocks; those of the first 10 steps and of every 100th.
struct CommunicationTimes {
  double backward = 0;       // seconds that backward computed
  double communication = 0;  // from the first message to the last answer
  double hidden = 0;         // part of it during which backward still computed
};

/// Averages gradients over all ranks during backward, with PyTorch's own
/// `c10d::Reducer`, whose interface is known nowhere else.
///
///   GradientReducer reducer(group, model->parameters());
///   reducer.before_forward();
///   auto outputs = model->forward(inputs);
///   reducer.before_backward({outputs});
///   loss.backward();          // the gradients are averages now
///   reducer.after_backward();
///
/// Without these calls backward leaves each rank its own gradients, as
/// accumulation wants it. A rank that calls them while another does not waits
/// for it until the group's timeout.
class GradientReducer {
 public:
  /// \param parameters  Those that require a gradient, in the same order on
  ///                    all ranks. Their values become those of rank 0.
  /// \throws DistributedError if ranks have other shapes or types;
  ///         c10::ValueError if there is none, one requires no gradient, or an
  ///         option is out of its range.
  GradientReducer(
      std::shared_ptr<ProcessGroup> group,
      const Tensors& parameters,
      const GradientReducerOptions& options = {});
  /// Backward is on its own again.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;

  void before_forward();
  void before_backward(const Tensors& outputs);
  /// Says at once if this rank's gradients are not complete, for which another
  /// rank would wait.
  /// \param name_of  The name of the parameter with that index, for the error.
  /// \throws c10::Error if a parameter got no gradient and
  ///         find_unused_parameters is not set.
  void after_backward(const std::function<std::string(size_t)>& name_of = {});

  /// Of the steps so far; zeros before the second.
  CommunicationTimes times() const;

 private:
  struct Impl;
  void backward_of_zeros(const Tensors& parameters);

  std::shared_ptr<ProcessGroup> group_;
  bool find_unused_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern
