#include "tern/learner/host_memory.h"

#include <atomic>
#include <cstdlib>
#include <mutex>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tern {

namespace {

std::atomic<bool> keeps = false;

}  // namespace

void keep_freed_memory() {
#ifdef __GLIBC__
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* name :
         {"MALLOC_TRIM_THRESHOLD_",
          "MALLOC_MMAP_THRESHOLD_",
          "MALLOC_MMAP_MAX_",
          "MALLOC_TOP_PAD_",
          "GLIBC_TUNABLES"}) {
      if (std::getenv(name)) return;
    }
    // No block has a mapping of its own, which would end with it; and the heap
    // never shrinks by itself.
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
    keeps = true;
  });
#endif
}

void give_back_freed_memory() {
#ifdef __GLIBC__
  if (keeps) malloc_trim(0);
#endif
}

}  // namespace tern
