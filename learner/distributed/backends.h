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

/// One rank of a group.
struct Member {
  c10::intrusive_ptr<c10d::Store> store;
  int rank, world_size;
  std::chrono::milliseconds timeout;
};

/// PyTorch's Gloo group over all ranks of a store, for CPU tensors, in which
/// every operation ends with an error soon after a rank's process has ended.
/// Gloo alone tells only those that exchange data with that rank, and not even
/// them if it ends while the first bytes of a message to it are written; they
/// wait for the timeout.
///
/// It has the operations that Tern and c10d::Reducer use: broadcast, allreduce
/// and barrier. One that has ended with an error may still write into
/// its tensors. `abort()` ends those under way, on all ranks; the destructor
/// lets the others finish, for whom Gloo's own rules hold from then on. A Gloo
/// thread that is stuck is left behind, with the store, until the timeout.
///
/// \param master_address  A loopback address: listens to this machine alone.
/// \throws what Gloo throws when the others do not come within the timeout.
c10::intrusive_ptr<c10d::Backend> make_gloo_group(
    const Member& member,
    const std::string& master_address);

/// PyTorch's NCCL group over all ranks of a store, for tensors on this
/// process's current GPU. An operation that another rank does not join within
/// the timeout is given up; NCCL never ends the program.
///
/// It is part of LibTorch's CUDA library, which a program of Tern starts
/// without, so it comes from libtern_nccl.so: from the file that the variable
/// TERN_NCCL_LIBRARY names, from where the dynamic loader looks, or from where
/// Tern was built or installed.
/// \throws c10::Error if there is no such library; what NCCL throws.
c10::intrusive_ptr<c10d::Backend> make_nccl_group(const Member& member);

/// The one function of libtern_nccl.so.
constexpr const char* kMakeNcclGroup = "tern_make_nccl_group";
using MakeNcclGroup =
    void (*)(const Member& member, c10::intrusive_ptr<c10d::Backend>& result);

/// What `f` returns, or nothing if it throws or takes longer than `patience`:
/// on timeout it keeps running in a detached thread and its result is
/// discarded. For calls that may wait for another machine without end; `f` owns
/// all that it uses.
template <class F>
auto within(std::chrono::milliseconds patience, F f) noexcept
    -> std::optional<std::invoke_result_t<F&>> {
  try {
    std::promise<std::invoke_result_t<F&>> promise;
    auto answer = promise.get_future();
    std::thread([f = std::move(f), promise = std::move(promise)]() mutable {
      try {
        promise.set_value(f());
      } catch (...) {  // NOLINT: a promise that is not kept says it
      }
    }).detach();
    if (answer.wait_for(patience) != std::future_status::ready) return {};
    return answer.get();
  } catch (...) {  // NOLINT: as above; or there is no thread to be had
    return {};
  }
}

}  // namespace tern
