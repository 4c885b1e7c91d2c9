#include "tern/learner/host_memory.h"

#include <cstdlib>
#include <cstring>
#include <sys/resource.h>

#include <gtest/gtest.h>

namespace tern {
namespace {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Takes and frees three blocks of 2 MB, as a step does with its activations.
int64_t faults_of_ten_steps() {
  const int64_t before = page_faults();
  for (int step = 0; step < 10; ++step) {
    void* blocks[3];
    for (void*& block : blocks) {
      block = std::malloc(2 << 20);
      std::memset(block, step, 2 << 20);
    }
    for (void* block : blocks) std::free(block);
  }
  return page_faults() - before;
}

TEST(KeepFreedMemory, StepsInSteadyStateTakeNoPagesFromTheSystem) {
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") || std::getenv("GLIBC_TUNABLES")) {
    GTEST_SKIP() << "the environment sets what malloc keeps";
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  keep_freed_memory();
  faults_of_ten_steps();
  EXPECT_LT(faults_of_ten_steps(), 100);  // 15,000 pages are written
}

}  // namespace
}  // namespace tern
