#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include <c10/util/FunctionRef.h>

#include "tern/vision/predict/predictor.h"

namespace tern {

struct PredictorQueueOptions {
  /// Maximum number of samples per forward pass.
  int64_t max_batch = 32;
  /// Maximum time that a sample waits for a batch to fill. The time of earlier
  /// forward passes can add to it.
  std::chrono::microseconds max_latency = std::chrono::milliseconds(5);
  /// Maximum number of waiting samples; above it, `submit` blocks.
  int64_t max_waiting = 1024;
};

/// Collects requests from many threads into batches. A GPU predicts a batch
/// nearly as fast as one sample.
///
///   PredictorQueue queue(predictor, {.max_batch = 16});
///   std::future<Prediction> future = queue.submit("cat.jpg");  // any thread
///   fmt::print("{}\n", future.get().label);
///
/// If a sample causes an error, only that sample's future receives it. The
/// destructor waits until all submitted samples are predicted.
class PredictorQueue {
 public:
  /// \throws c10::ValueError if an option is out of range.
  explicit PredictorQueue(
      Predictor predictor,
      const PredictorQueueOptions& options = {});
  ~PredictorQueue();
  PredictorQueue(const PredictorQueue&) = delete;

  /// Submits a sample of any kind that `Predictor::predict` accepts. Decodes an
  /// image on the calling thread.
  template <class Sample>
  std::future<Prediction> submit(const Sample& sample) {
    return enqueue([&] { return predictor_.prepare_sample(sample); });
  }

  /// Number of forward passes so far.
  int64_t batches() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    PreparedSample sample;
    std::promise<Prediction> promise;
    Clock::time_point deadline;
  };

  std::future<Prediction> enqueue(c10::function_ref<PreparedSample()> prepare);
  std::vector<Item> next_batch();
  void predict(std::vector<Item>& items);

  const Predictor predictor_;
  const PredictorQueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_, room_;
  std::deque<Item> waiting_;
  int64_t batches_ = 0;
  bool is_closing_ = false;
  std::thread worker_;
};

}  // namespace tern
