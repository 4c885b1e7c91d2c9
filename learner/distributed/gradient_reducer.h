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
  /// Bucket size of the all-reduce. A bucket is sent while the backward pass
  /// still computes the next one.
  int64_t bucket_megabytes = 25;
  /// Set this if some parameters do not take part in some steps, such as those
  /// of a branch that not every batch takes. Each step then determines the
  /// unused parameters, which costs a traversal of its graph and a message.
  /// Without this option, such a step fails with an error that names the
  /// parameters.
  bool find_unused_parameters = false;
  /// Send and sum gradients in 16 bits; unset: in their own type. With kHalf,
  /// values that overflow become infinite on all ranks, which a GradScaler
  /// detects, so use it with one. kBFloat16 has the range of fp32 and 8 bits of
  /// precision.
  std::optional<torch::ScalarType> compress_to = {};
};

/// Average times of a step in seconds, as measured by c10d::Reducer: over the
/// first 10 steps and every 100th.
struct CommunicationTimes {
  double backward = 0;       // the backward computation
  double communication = 0;  // from the first message to the last result
  double hidden = 0;  // part of it that overlaps with the backward computation
};

/// Averages gradients over all ranks during the backward pass, with PyTorch's
/// `c10d::Reducer`, whose interface is used in this class only.
///
///   GradientReducer reducer(group, model->parameters());
///   reducer.before_forward();
///   auto outputs = model->forward(inputs);
///   reducer.before_backward({outputs});
///   loss.backward();          // the gradients are averages now
///   reducer.after_backward();
///
/// Without these calls, backward leaves each rank its own gradients, as needed
/// for accumulation. If only some ranks make these calls, they wait for the
/// others until the group's timeout.
class GradientReducer {
 public:
  /// \param parameters  Parameters that require a gradient, in the same order
  ///                    on all ranks. Their values are set to those of rank 0.
  /// \throws DistributedError if shapes or types differ between ranks;
  ///         c10::ValueError if there are no parameters, one requires no
  ///         gradient, or an option is out of range.
  GradientReducer(
      std::shared_ptr<ProcessGroup> group,
      const Tensors& parameters,
      const GradientReducerOptions& options = {});
  /// Detaches from the backward pass.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;

  void before_forward();
  void before_backward(const Tensors& outputs);
  /// Throws at once if gradients of this rank are missing, for which the other
  /// ranks would wait.
  /// \param name_of  Returns the name of the parameter with that index, for the
  ///                 error message.
  /// \throws c10::Error if a parameter got no gradient and
  ///         find_unused_parameters is not set.
  void after_backward(const std::function<std::string(size_t)>& name_of = {});

  /// Returns the times of the steps so far; zeros before the second step.
  CommunicationTimes times() const;

 private:
  struct Impl;
  void backward_of_zeros(const Tensors& parameters);

  std::shared_ptr<ProcessGroup> group_;
  bool find_unused_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern
