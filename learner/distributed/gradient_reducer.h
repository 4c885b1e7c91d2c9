#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <torch/types.h>

#include "tern/learner/distributed/process_group.h"

namespace tern {

/// The defaults match torch.nn.parallel.DistributedDataParallel.
struct GradientReducerOptions {
  /// Bucket size of the all-reduce. A bucket is sent while the backward pass
  /// still computes the next one.
  int64_t bucket_megabytes = 25;
  /// Set this if some parameters are unused in some steps, for example in a
  /// branch that not every batch takes. Each step then determines the unused
  /// parameters, which costs a traversal of its graph and a message. Without
  /// this option, such a step fails with an error that names the parameters.
  bool find_unused_parameters = false;
  /// Send and sum gradients in 16 bits; unset: in their own dtype. With kHalf,
  /// values that overflow become infinite on all ranks; use a GradScaler, which
  /// detects this. kBFloat16 has the range of fp32 and 8 bits of precision.
  std::optional<torch::ScalarType> compress_to = {};
};

/// Average times of a step in seconds, as measured by c10d::Reducer: over the
/// first 10 steps and every 100th.
struct CommunicationTimes {
  double backward = 0;       // the backward computation
  double communication = 0;  // from the first message to the last result
  double hidden = 0;         // part that overlaps with the backward computation
};

/// Averages gradients over all ranks during the backward pass, with PyTorch's
/// `c10d::Reducer`, whose interface is used only in this class.
///
///   GradientReducer reducer(group, model->parameters());
///   reducer.before_forward();
///   auto outputs = model->forward(inputs);
///   reducer.before_backward({outputs});
///   loss.backward();          // the gradients are averages now
///   reducer.after_backward();
///
/// Without these calls, each rank keeps its own gradients after backward, as
/// needed for accumulation. If only some ranks make these calls, those ranks
/// wait for the others until the group's timeout.
class GradientReducer {
 public:
  /// \param parameters  Parameters that require a gradient, in the same order
  ///                    on all ranks. Their values are set to rank 0's values.
  /// \throws DistributedError if shapes or dtypes differ between ranks;
  ///         c10::ValueError if there are no parameters, a parameter requires
  ///         no gradient, or an option is out of range.
  GradientReducer(
      std::shared_ptr<ProcessGroup> group,
      const Tensors& parameters,
      const GradientReducerOptions& options = {});
  /// Detaches from the backward pass.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;

  void before_forward();
  void before_backward(const Tensors& outputs);
  /// Throws at once if gradients of this rank are missing; otherwise the other
  /// ranks would wait for them.
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
