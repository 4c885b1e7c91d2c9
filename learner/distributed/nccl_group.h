#pragma once

#include <chrono>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace tern {

/// PyTorch's NCCL group over all ranks of a store, for tensors on this
/// process's current GPU. An operation that another rank does not join within
/// the timeout is given up; NCCL never ends the program.
///
/// It is part of LibTorch's CUDA library, which a program of Tern starts
/// without, so it comes from libtern_nccl.so: from the file that the variable
/// TERN_NCCL_LIBRARY names, from where the dynamic loader looks, or from where
/// Tern was built or installed.
/// \throws c10::Error if there is no such library; what NCCL throws.
c10::intrusive_ptr<c10d::Backend> make_nccl_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    std::chrono::milliseconds timeout);

/// The one function of libtern_nccl.so.
constexpr const char* kMakeNcclGroup = "tern_make_nccl_group";
using MakeNcclGroup = void (*)(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    std::chrono::milliseconds timeout,
    c10::intrusive_ptr<c10d::Backend>& result);

}  // namespace tern
