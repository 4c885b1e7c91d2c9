#include "tern/callbacks/nvtx.h"

// Of headers alone: it looks for a tool to load when it is first called.
#if defined(TERN_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#define TERN_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace tern {

#ifdef TERN_WITH_NVTX
void nvtx_push(const char* name) {
  nvtxRangePushA(name);
}

void nvtx_pop() {
  nvtxRangePop();
}
#else
void nvtx_push(const char*) {}
void nvtx_pop() {}
#endif

}  // namespace tern
