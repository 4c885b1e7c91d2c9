#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace tern {

/// What a rank needs to join a group.
struct Member {
  c10::intrusive_ptr<c10d::Store> store;
  int rank, world_size;
  std::chrono::milliseconds timeout;
};

/// Creates a PyTorch Gloo group over all ranks of a store, for CPU tensors, in
/// which every operation fails soon after the process of a rank has exited.
/// Plain Gloo reports the exit only to ranks that exchange data with that rank,
/// and may miss it even there if the first bytes of a message to the rank are
/// being written at that moment. All other ranks wait until the timeout.
///
/// The group supports the operations that Tern and c10d::Reducer use:
/// broadcast, allreduce and barrier. An operation that failed may still write
/// into its tensors. `abort()` ends running operations on all ranks. The
/// destructor lets the other ranks finish their operations; after that these
/// ranks have only Gloo's own error detection. A Gloo thread that is stuck is
/// detached and keeps the store alive until the timeout.
///
/// \param master_address  If it is a loopback address, listens only on this
///                        machine.
/// \throws Gloo's errors if the other ranks do not connect within the timeout.
c10::intrusive_ptr<c10d::Backend> make_gloo_group(
    const Member& member,
    const std::string& master_address);

/// Creates a PyTorch NCCL group over all ranks of a store, for tensors on this
/// process's current GPU. An operation that another rank does not join within
/// the timeout is aborted; NCCL never terminates the program.
///
/// NCCL support is part of LibTorch's CUDA library, which Tern programs do not
/// load at start, so it is in libtern_nccl.so. Tern loads this library from the
/// path in the environment variable TERN_NCCL_LIBRARY if it is set, else from
/// the dynamic loader's search path, else from the folder in which Tern was
/// built or installed.
/// \throws c10::Error if this library cannot be found; errors of NCCL.
c10::intrusive_ptr<c10d::Backend> make_nccl_group(const Member& member);

/// The only function of libtern_nccl.so.
constexpr const char* kMakeNcclGroup = "tern_make_nccl_group";
using MakeNcclGroup =
    void (*)(const Member& member, c10::intrusive_ptr<c10d::Backend>& result);

/// Returns the result of `f`; unset if `f` throws or takes longer than
/// `patience`. On a timeout, `f` keeps running in a detached thread and its
/// result is discarded. For calls that may wait for another machine forever.
/// `f` must own everything that it uses.
template <class F>
auto within(std::chrono::milliseconds patience, F f) noexcept
    -> std::optional<std::invoke_result_t<F&>> {
  try {
    std::promise<std::invoke_result_t<F&>> promise;
    auto result = promise.get_future();
    std::thread([f = std::move(f), promise = std::move(promise)]() mutable {
      try {
        promise.set_value(f());
      } catch (...) {  // NOLINT: the broken promise reports it
      }
    }).detach();
    if (result.wait_for(patience) != std::future_status::ready) return {};
    return result.get();
  } catch (...) {  // NOLINT: as above, or no thread could be started
    return {};
  }
}

}  // namespace tern
