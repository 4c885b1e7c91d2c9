#include "tern/kernels/parallel_for.h"

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace tern::parallel_for_test {
namespace {

class ParallelFor : public testing::Test {
 protected:
  void SetUp() override {
    at::get_num_threads();  // LibTorch sets the count on first use
    before_ = at::get_num_threads();
    at::set_num_threads(2);
  }
  void TearDown() override { at::set_num_threads(before_); }

 private:
  int before_ = 1;
};

TEST_F(ParallelFor, RunsOnSeveralThreads) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_for(0, 1000, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 2u);
}

TEST_F(ParallelFor, CoversTheRangeOnce) {
  std::vector<std::atomic<int>> visits(1000);
  parallel_for(10, 1000, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[i];
  });
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(visits[i], i >= 10) << i;
}

TEST_F(ParallelFor, RethrowsAnExceptionOfAnyThread) {
  for (const int64_t bad : {0, 999}) {
    const auto run = [&] {
      parallel_for(0, 1000, 1, [&](int64_t begin, int64_t end) {
        if (begin <= bad && bad < end) throw std::out_of_range("one of them");
      });
    };
    EXPECT_THROW(run(), std::out_of_range) << bad;
  }
}

TEST_F(ParallelFor, StartsNoNestedThreads) {
  std::atomic<int> inner = 0;
  parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
    EXPECT_TRUE(at::in_parallel_region());
    EXPECT_EQ(at::get_thread_num(), begin);
    EXPECT_EQ(end, begin + 1);
    parallel_for(0, 1000, 1, [&](int64_t, int64_t) { ++inner; });
  });
  EXPECT_EQ(inner, 2);
  EXPECT_FALSE(at::in_parallel_region());
}

TEST_F(ParallelFor, KeepsShortRangesOnOneThread) {
  int calls = 0;
  parallel_for(0, 100, kElementGrain, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tern::parallel_for_test
