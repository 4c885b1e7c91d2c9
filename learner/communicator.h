#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

class Learner;

/// Another process has gone, does not answer, has told of an error or does
/// something else.
class DistributedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The processes that train together: ProcessGroup of learner/distributed/, or
/// this process alone. Every call but `rank`, `world_size` and
/// `is_main_process` is made by all ranks in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  /// Replaces the tensor by the sum over ranks, in place, with the same bits on
  /// all of them. A CPU tensor never touches the device.
  virtual void all_reduce(const torch::Tensor& tensor) = 0;
  /// Replaces the tensors of all ranks by those of rank `root`, in place.
  virtual void broadcast(const Tensors& tensors, int64_t root = 0) = 0;
  /// Throws on all ranks, saying who has what, unless all gave the same value.
  virtual void check_equal(
      const std::string& what,
      const std::string& value) = 0;

  /// True for the process that prints and writes files: rank 0.
  bool is_main_process() const { return rank() == 0; }
  /// Returns the mean over all ranks of a number that each has; for callbacks
  /// that decide by a number of their own.
  double mean(double value);
};

/// Returns the processes that train together with this Learner's, or a
/// Communicator of this process alone.
Communicator& communicator(const Learner& learn);

}  // namespace tern
