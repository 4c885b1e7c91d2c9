#include "tern/learner/host_memory.h"

#include <cstdlib>
#include <mutex>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tern {

void keep_freed_memory() {
#ifdef __GLIBC__
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* name :
         {"MALLOC_TRIM_THRESHOLD_",
          "MALLOC_MMAP_THRESHOLD_",
          "GLIBC_TUNABLES"}) {
      if (std::getenv(name)) return;
    }
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that glibc takes
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
  });
#endif
}

}  // namespace tern
