#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

class Learner;

/// Thrown if another process exited, timed out, reported an error, or made a
/// different call.
class DistributedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The processes that train together: ProcessGroup of learner/distributed/, or
/// this process alone. All ranks must make every call in the same order, except
/// `rank`, `world_size` and `is_main_process`.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  /// Replaces the tensor with its sum over ranks, in place, bit-identical on
  /// all ranks. For a CPU tensor, the GPU is not used.
  virtual void all_reduce(const torch::Tensor& tensor) = 0;
  /// Replaces the tensors of all ranks with rank `root`'s tensors, in place.
  virtual void broadcast(const Tensors& tensors, int64_t root = 0) = 0;
  /// Throws on all ranks, with the values of the ranks, unless all ranks passed
  /// the same value.
  /// \param what  Name of the value, for the error message.
  virtual void check_equal(
      const std::string& what,
      const std::string& value) = 0;

  /// True for the process that prints and writes files: rank 0.
  bool is_main_process() const { return rank() == 0; }
  /// Returns the mean of `value` over all ranks; for callbacks that base
  /// decisions on a number that differs between ranks.
  double mean(double value);
};

/// Returns the Communicator of this Learner's processes; in a single process, a
/// Communicator of this process alone.
Communicator& communicator(const Learner& learn);

}  // namespace tern
