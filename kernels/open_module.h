#pragma once

namespace tern {

/// A function of one of Tern's libraries that link LibTorch's CUDA library,
/// which a program of Tern starts without: from the file that the environment
/// variable `named_by` names, from where the dynamic loader looks, or from
/// where Tern was built or installed. It stays open. \param what  What needs
/// it, for the error: "a CUDA graph". \throws c10::Error if there is no such
/// library.
void* open_module(
    const char* library,
    const char* named_by,
    const char* what,
    const char* function);

}  // namespace tern
