// libtern_nccl.so, which backends.cpp loads.

#include <cstdlib>
#include <type_traits>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "tern/learner/distributed/backends.h"

extern "C" void tern_make_nccl_group(
    const tern::Member& member,
    c10::intrusive_ptr<c10d::Backend>& result) {
  // By default, NCCL's watchdog, and the monitor of the watchdog, terminate the
  // whole program when a rank is lost. Here operations are aborted instead, and
  // Gloo reports the lost rank to Distributed.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = member.timeout;
  result = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      member.store,
      member.rank,
      member.world_size,
      options);
}

static_assert(
    std::is_same_v<decltype(&tern_make_nccl_group), tern::MakeNcclGroup>);
