#pragma once

#include <cstdint>

#include <torch/types.h>

namespace tern {

/// The processes that a Learner trains with, as it sees them; ProcessGroup of
/// learner/distributed/ is one. Every call is made by all ranks in the same
/// order.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  /// The tensor becomes the sum over ranks, in place, with the same bits on
  /// all of them.
  virtual void all_reduce(const torch::Tensor& tensor) = 0;
};

}  // namespace tern
