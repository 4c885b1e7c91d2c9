#pragma once

#include <cstdint>
#include <exception>

#include <torch/types.h>

namespace tern {

/// Whether LibTorch or C++ said so that a device or the host had no more
/// memory to give.
bool is_out_of_memory(const std::exception& error);

/// Gives the system, or CUDA, what the allocator keeps and nobody uses.
void give_back_unused_memory(torch::Device device);

/// Bytes that tensors on `device` may still take: what is free on the GPU, and
/// what its allocator keeps unused; on a CPU what the machine, or the memory
/// cgroup of this process, has left.
int64_t available_memory(torch::Device device);

}  // namespace tern
