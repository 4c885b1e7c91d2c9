#pragma once

namespace tern {

/// Opens and closes a range of this thread that NVIDIA's tools show. Without
/// such a tool a call costs some nanoseconds; in a build without CUDA it does
/// nothing.
void nvtx_push(const char* name);
void nvtx_pop();

}  // namespace tern
