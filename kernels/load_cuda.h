#pragma once

#include <c10/core/Device.h>

namespace tern {

/// Loads LibTorch's CUDA libraries if the machine has a usable GPU.
///
/// \return torch::cuda::is_available().
///
/// A program that uses Tern starts with only LibTorch's CPU library, because
/// the CUDA libraries take a second and 2 GB to load. If there is an NVIDIA
/// driver and CUDA_VISIBLE_DEVICES does not hide every GPU, this function loads
/// them, once. LibTorch caches whether CUDA is available, so this must happen
/// before its first use; a program that calls this function anywhere loads them
/// before main. Thread-safe.
///
/// Loading initializes nothing. This call, DataBunch::default_device() and, in
/// LibTorch, torch::manual_seed, backward() and every CUDA tensor initialize
/// the driver; processes forked after that cannot use a GPU.
bool load_cuda();

/// True if this process has memory on a GPU. Initializes nothing. Must not be
/// called while another thread may be initializing CUDA.
bool is_cuda_in_use();

/// \param cure  What to do if `device` does not exist, for the message.
/// \throws c10::ValueError for a CUDA device that this machine does not have.
void check_device_exists(
    const char* where,
    c10::Device device,
    const char* cure);

/// Loads a function from one of Tern's CUDA libraries. A program does not load
/// them at startup, because they link LibTorch's CUDA library. Opens the file
/// named by the environment variable `named_by`. If it is not set, opens
/// `library` where the dynamic loader searches, which includes the folder where
/// Tern was built or installed. The library stays loaded.
/// \param what  What needs the function, for the error: "a CUDA graph".
/// \throws c10::Error if the library or the function is not found.
void* open_module(
    const char* library,
    const char* named_by,
    const char* what,
    const char* function);

}  // namespace tern
