#include "tern/data/support/memory.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <vector>

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"

namespace tern::host_memory_test {
namespace {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Allocates and frees three blocks, as a step does with its activations.
int64_t faults_of_ten_steps(size_t bytes) {
  const int64_t before = page_faults();
  for (int step = 0; step < 10; ++step) {
    void* blocks[3];
    for (void*& block : blocks) {
      block = std::malloc(bytes);
      std::memset(block, step, bytes);
    }
    for (void* block : blocks) std::free(block);
  }
  return page_faults() - before;
}

int64_t resident_pages() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

class KeepFreedMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("MALLOC_TRIM_THRESHOLD_") ||
        std::getenv("GLIBC_TUNABLES")) {
      GTEST_SKIP() << "the environment configures malloc";
    }
    if (std::getenv("TERN_EMULATOR")) {
      GTEST_SKIP() << "page counts would include those of the emulator";
    }
#ifdef TERN_SANITIZED
    GTEST_SKIP() << "the sanitizer replaces the allocator";
#endif
    keep_freed_memory();
  }
};

TEST_F(KeepFreedMemory, StepsInSteadyStateRequestNoPagesFromTheSystem) {
  for (const size_t megabytes : {2, 48}) {
    faults_of_ten_steps(megabytes << 20);
    // The steps write at least 15,000 pages.
    EXPECT_LT(faults_of_ten_steps(megabytes << 20), 100) << megabytes;
  }
}

TEST_F(KeepFreedMemory, ReturnsUnusedMemoryOnRequest) {
  faults_of_ten_steps(size_t{48} << 20);
  const int64_t before = resident_pages();
  give_back_unused_memory(torch::kCPU);
  EXPECT_LT(resident_pages(), before - 3 * (40 << 20) / 4096);
}

int64_t huge_kibibytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string name; file >> name;) {
    int64_t kibibytes = 0;
    if (name == "AnonHugePages:" && file >> kibibytes) return kibibytes;
  }
  return 0;
}

TEST(UseHugePages, MovesExistingPages) {
  constexpr size_t kPage = size_t{2} << 20;
  constexpr int kCollapse = 25;
  const auto bytes = static_cast<char*>(std::aligned_alloc(kPage, 9 * kPage));
  std::memset(bytes, 1, 9 * kPage);
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(file, modes);
  if (modes.empty() || modes.find("[never]") != std::string::npos ||
      madvise(bytes, kPage, kCollapse) != 0) {
    std::free(bytes);
    GTEST_SKIP() << "this system does not support moving memory to huge pages";
  }
  const int64_t before = huge_kibibytes();
  use_huge_pages(bytes + kPage, 8 * kPage);
  const int64_t moved = huge_kibibytes() - before;
  std::free(bytes);
  // At least half of the 16 MB, unless they already were huge pages or memory
  // is fragmented.
  EXPECT_TRUE(moved >= 8 << 10 || before >= 16 << 10) << moved;
}

TEST(UseHugePages, DoesNotChangeBytesOrTheirNeighbors) {
  std::vector<uint8_t> bytes(5 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = i % 251;
  const std::vector<uint8_t> before = bytes;
  use_huge_pages(bytes.data() + 1000, bytes.size() - 2000);
  use_huge_pages(bytes.data(), 0);
  EXPECT_EQ(bytes, before);
}

TEST(AvailableMemory, RejectsADeviceThatDoesNotExist) {
  expect_error<c10::ValueError>(
      [] { available_memory(torch::Device(torch::kCUDA, 99)); },
      {"[available_memory] the device is cuda:99", "usable CUDA devices"});
}

}  // namespace
}  // namespace tern::host_memory_test
