#pragma once

#include <c10/core/Device.h>

namespace tern {

/// Loads LibTorch's CUDA libraries if the machine has a usable GPU.
///
/// \return torch::cuda::is_available().
///
/// A program that uses Tern starts with LibTorch's CPU library only, because
/// the CUDA libraries take a second and 2 GB to load. If there is an NVIDIA
/// driver and CUDA_VISIBLE_DEVICES does not hide every GPU, this loads them,
/// once. LibTorch caches whether CUDA is available, so this must happen before
/// its first use; a program that calls this function anywhere loads them before
/// main. Thread-safe.
///
/// Loading initializes nothing. This call, DataBunch::default_device() and, in
/// LibTorch, torch::manual_seed, backward() and every CUDA tensor initialize
/// the driver; processes that are forked later cannot use a GPU.
bool load_cuda();

/// Whether this process has memory on a GPU. Initializes nothing. Not to be
/// called while another thread may be initializing CUDA.
bool is_cuda_in_use();

/// Checks that a device exists. \param cure  What to do if it does not.
/// \throws c10::ValueError for a CUDA device that this machine does not have.
void check_device_exists(
    const char* where,
    c10::Device device,
    const char* cure);

/// A function of one of Tern's libraries that link LibTorch's CUDA library,
/// which a program of Tern starts without: from the file that the environment
/// variable `named_by` names, from where the dynamic loader looks, or from
/// where Tern was built or installed. It stays open.
/// \param what  What needs it, for the error: "a CUDA graph".
/// \throws c10::Error if there is no such library.
void* open_module(
    const char* library,
    const char* named_by,
    const char* what,
    const char* function);

}  // namespace tern
