#pragma once

#include <cstdint>
#include <string>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// The processes that train together, as the core sees them; ProcessGroup of
/// learner/distributed/ is one. Every call is made by all ranks in the same
/// order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  /// Replaces the tensor by the sum over ranks, in place, with the same bits on
  /// all of them. A CPU tensor never touches the device.
  virtual void all_reduce(const torch::Tensor& tensor) = 0;
  /// All ranks' tensors become those of rank `root`, in place.
  virtual void broadcast(const Tensors& tensors, int64_t root = 0) = 0;
  /// Throws, on all ranks, unless all gave the same value; says who has what.
  virtual void check_equal(
      const std::string& what,
      const std::string& value) = 0;
};

}  // namespace tern
