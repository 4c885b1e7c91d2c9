#pragma once

#include <chrono>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace tern {

/// PyTorch's Gloo group over all ranks of a store, for CPU tensors, in which
/// every operation ends with an error soon after a rank's process has ended.
/// Gloo alone tells only those that exchange data with that rank, and not even
/// them if it ends while the first bytes of a message to it are written; they
/// wait for the timeout.
///
/// It has the operations that Tern and c10d::Reducer use: broadcast, allreduce,
/// allgather and barrier. One that has ended with an error may still write into
/// its tensors. `abort()` ends those under way, on all ranks; the destructor
/// lets the others finish, for whom Gloo's own rules hold from then on. A Gloo
/// thread that is stuck is left behind, with the store, until the timeout.
///
/// \param master_address  A loopback address: listens to this machine alone.
/// \throws what Gloo throws when the others do not come within the timeout.
c10::intrusive_ptr<c10d::Backend> make_gloo_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    std::chrono::milliseconds timeout,
    const std::string& master_address);

}  // namespace tern
