#pragma once

#include <barrier>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/learner/metric.h"

namespace tern::testing_support {

/// Simulates ranks by threads; all-reduces sum their tensors.
class RankThreads {
 public:
  explicit RankThreads(int64_t count)
      : count_(count), barrier_(count, AddedUp{this}) {}

  /// Syncs metrics or other objects with `sync`. No rank waits for a rank that
  /// throws or returns early.
  template <class Counted>
  void sync(std::vector<Counted>& metrics) {
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < count_; ++rank) {
      threads.emplace_back([this, &metric = metrics[rank], rank] {
        try {
          metric.sync(all_reduce(rank));
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << message_of(error);
        }
        barrier_.arrive_and_drop();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  struct AddedUp {
    RankThreads* ranks;
    void operator()() const noexcept {
      ranks->all_ = std::exchange(ranks->sum_, {});
    }
  };

  AllReduce all_reduce(int64_t rank) {
    return {
        [this](const torch::Tensor& tensor) {
          add(tensor);
          barrier_.arrive_and_wait();
          tensor.copy_(all_);
        },
        rank,
        count_};
  }

  void add(const torch::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    if (!sum_.defined()) {
      sum_ = tensor.clone();
      return;
    }
    // NCCL does not check this.
    TORCH_CHECK(
        sum_.sizes() == tensor.sizes() && sum_.dtype() == tensor.dtype());
    sum_ += tensor;
  }

  int64_t count_;
  std::mutex mutex_;
  torch::Tensor sum_, all_;
  std::barrier<AddedUp> barrier_;
};

}  // namespace tern::testing_support
