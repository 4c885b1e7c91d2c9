#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include <torch/types.h>

namespace tern {

/// True if the error says that a device or the host is out of memory.
bool is_out_of_memory(const std::exception& error);

/// Returns the allocator's unused memory to the system or to CUDA; on a CPU,
/// the memory kept by `keep_freed_memory`.
void give_back_unused_memory(torch::Device device);

/// Returns the bytes that tensors on `device` can still use: on a GPU the free
/// memory plus the unused memory of its allocator; on a CPU the available
/// memory of the machine or of this process's memory cgroup, whichever is less.
/// If unknown, as for a GPU with LibTorch 2.9, returns the largest int64_t.
/// \throws c10::ValueError for a CUDA device that this machine does not have.
int64_t available_memory(torch::Device device);

/// Makes Linux keep these bytes and their neighbors in 2 MB pages, unless the
/// system disables such pages. This speeds up access to data that is read in
/// full at every call. Linux 6.1 and later also moves existing data to these
/// pages. Does nothing on other systems.
void use_huge_pages(const void* data, size_t bytes);

/// Returns the number of bytes of a tensor; for a sparse one, of its indices
/// and values.
int64_t tensor_bytes(const torch::Tensor& tensor);

/// Formats bytes as "1.5 kB" or "2.00 GB".
std::string bytes_text(int64_t bytes);

/// Makes the C library keep the memory that training on a CPU frees and
/// allocates again at every step. By default glibc returns large blocks to the
/// system and requests them again, page by page. This takes a third of the
/// training time of a small network, and two thirds of the training time of a
/// network with large activations.
///
/// Called once per process, by the first Learner on a CPU. From then on freed
/// memory stays with the process, even if it is fragmented; the destructor of a
/// Learner returns unused memory. Does nothing if the environment sets a
/// MALLOC_ variable or GLIBC_TUNABLES, or with a different C library.
void keep_freed_memory();

}  // namespace tern
