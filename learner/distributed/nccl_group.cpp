#include "tern/learner/distributed/nccl_group.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tern/kernels/open_module.h"

namespace tern {

c10::intrusive_ptr<c10d::Backend> make_nccl_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    std::chrono::milliseconds timeout) {
  static const auto make = reinterpret_cast<MakeNcclGroup>(open_module(
      "libtern_nccl.so",
      "TERN_NCCL_LIBRARY",
      "training on several GPUs",
      kMakeNcclGroup));
  c10::intrusive_ptr<c10d::Backend> group;
  make(store, rank, world_size, timeout, group);
  return group;
}

}  // namespace tern
