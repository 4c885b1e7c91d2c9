// libtern_nccl.so; backends.cpp opens it.

#include <cstdlib>
#include <type_traits>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "tern/learner/distributed/backends.h"

extern "C" void tern_make_nccl_group(
    const tern::Member& member,
    c10::intrusive_ptr<c10d::Backend>& result) {
  // By default its watchdog, and who watches that, end the whole program when a
  // rank has gone. So operations are given up instead; Distributed learns of it
  // from Gloo.
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
