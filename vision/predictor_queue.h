#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "tern/vision/predictor.h"

namespace tern {

struct PredictorQueueOptions {
  /// Samples in one forward pass, at most.
  int64_t max_batch = 32;
  /// How long a sample waits for others to come, at most. The pass that is
  /// running, and those of samples before it, come on top.
  std::chrono::microseconds max_latency = std::chrono::milliseconds(5);
  /// Samples that wait, at most; `submit` then waits for room.
  int64_t max_waiting = 1024;
};

/// Answers the questions of many threads in batches, which a GPU answers nearly
/// as fast as one.
///
///   PredictorQueue queue(predictor, {.max_batch = 16});
///   std::future<Prediction> answer = queue.submit("cat.jpg");  // any thread
///   fmt::print("{}\n", answer.get().label);
///
/// What is wrong with a sample reaches its own future alone. The destructor
/// answers what was submitted and then returns.
class PredictorQueue {
 public:
  /// \throws c10::ValueError for an option out of its range.
  explicit PredictorQueue(
      Predictor predictor,
      const PredictorQueueOptions& options = {});
  ~PredictorQueue();
  PredictorQueue(const PredictorQueue&) = delete;

  /// The image is decoded by the calling thread.
  std::future<Prediction> submit(const std::filesystem::path& image);
  std::future<Prediction> submit(const cv::Mat& image);
  std::future<Prediction> submit(const torch::Tensor& sample);

  /// Forward passes so far.
  int64_t batches() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    torch::Tensor sample;
    std::promise<Prediction> promise;
    Clock::time_point deadline;
  };

  template <class Sample>
  std::future<Prediction> enqueue(const Sample& sample);
  std::vector<Item> next_batch();
  void answer(std::vector<Item>& items);
  void run();

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
