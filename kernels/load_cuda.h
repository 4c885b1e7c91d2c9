#pragma once

#include <c10/core/Device.h>

namespace tern {

/// Makes CUDA devices usable if the machine has any.
///
/// \return torch::cuda::is_available().
///
/// A program of Tern starts with LibTorch's CPU library only, because the CUDA
/// libraries take a second and 2 GB to load. When there is an NVIDIA driver and
/// CUDA_VISIBLE_DEVICES does not hide every GPU, this loads them, once.
/// LibTorch remembers its first answer about CUDA, so that has to happen before
/// anybody asks for a CUDA device; a program that calls this function anywhere
/// does it before main. Safe to call from any thread.
bool load_cuda();

/// For a call that takes a device. \param cure  What to do when it is not
/// there. \throws c10::ValueError for a CUDA device that this machine does not
/// have.
void check_device_exists(
    const char* where,
    c10::Device device,
    const char* cure);

}  // namespace tern
