#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <torch/types.h>

namespace tern {

/// Whether LibTorch or C++ said so that a device or the host had no more
/// memory to give.
bool is_out_of_memory(const std::exception& error);

/// Gives the system, or CUDA, what the allocator keeps and nobody uses: on a
/// CPU what `keep_freed_memory` kept.
void give_back_unused_memory(torch::Device device);

/// Bytes that tensors on `device` may still take: what is free on the GPU, and
/// what its allocator keeps unused; on a CPU what the machine, or the memory
/// cgroup of this process, has left. The largest number where nobody knows, as
/// for a GPU with LibTorch 2.9.
/// \throws c10::ValueError for a CUDA device that this machine does not have.
int64_t available_memory(torch::Device device);

/// Has Linux keep these bytes and their neighbors in pages of 2 MB, unless it
/// is set to never do so: what is read whole at every call is found faster.
/// Moves what is there already; before Linux 6.1, and elsewhere, nothing.
void use_huge_pages(const void* data, size_t bytes);

/// That a tensor takes; of a sparse one, its indices and values.
int64_t tensor_bytes(const torch::Tensor& tensor);

/// "1.5 kB", "2.00 GB".
std::string bytes_text(int64_t bytes);

/// Has the C library keep the memory that training on a CPU frees and wants
/// again at every step. By default glibc returns large blocks to the system and
/// requests them again, page by page, which costs a small net a third of its
/// time and one with large activations two thirds.
///
/// Once a process, by the first Learner on a CPU. From then on freed memory
/// stays with the process, also when blocks no longer fit together; the end of
/// a Learner gives back what nobody uses. Does nothing where the environment
/// sets a MALLOC_ variable or GLIBC_TUNABLES, or where the C library is
/// another.
void keep_freed_memory();

}  // namespace tern
