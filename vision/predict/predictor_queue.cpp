#include "tern/vision/predict/predictor_queue.h"

#include <exception>
#include <utility>

#include "tern/kernels/check.h"

namespace tern {

PredictorQueue::PredictorQueue(
    Predictor predictor,
    const PredictorQueueOptions& options)
    : predictor_(std::move(predictor)), options_(options) {
  TERN_CHECK_VALUE(
      options.max_batch > 0 && options.max_waiting > 0 &&
          options.max_latency.count() >= 0,
      "[PredictorQueue] max_batch is {}, max_waiting {} and max_latency {} "
      "us; expected at least 1, 1 and 0.",
      options.max_batch,
      options.max_waiting,
      options.max_latency.count());
  worker_ = std::thread([this] {
    for (auto items = next_batch(); !items.empty(); items = next_batch()) {
      predict(items);
    }
  });
}

PredictorQueue::~PredictorQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  arrived_.notify_all();
  worker_.join();
}

int64_t PredictorQueue::batches() const {
  const std::lock_guard lock(mutex_);
  return batches_;
}

std::future<Prediction> PredictorQueue::enqueue(
    c10::function_ref<PreparedSample()> prepare) {
  Item item;
  std::future<Prediction> prediction = item.promise.get_future();
  try {
    item.sample = prepare();
  } catch (...) {
    item.promise.set_exception(std::current_exception());
    return prediction;
  }
  std::unique_lock lock(mutex_);
  const auto limit = static_cast<size_t>(options_.max_waiting);
  room_.wait(lock, [&] { return waiting_.size() < limit; });
  item.deadline = Clock::now() + options_.max_latency;
  waiting_.push_back(std::move(item));
  lock.unlock();
  arrived_.notify_one();
  return prediction;
}

// Waits for a full batch, or until the first sample reaches its deadline.
// Returns an empty batch if the queue is closing and no samples are left.
std::vector<PredictorQueue::Item> PredictorQueue::next_batch() {
  std::unique_lock lock(mutex_);
  const auto full = static_cast<size_t>(options_.max_batch);
  arrived_.wait(lock, [&] { return is_closing_ || !waiting_.empty(); });
  if (!waiting_.empty()) {
    arrived_.wait_until(lock, waiting_.front().deadline, [&] {
      return is_closing_ || waiting_.size() >= full;
    });
  }
  std::vector<Item> items;
  while (!waiting_.empty() && items.size() < full) {
    items.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  if (!items.empty()) ++batches_;
  lock.unlock();
  room_.notify_all();
  return items;
}

void PredictorQueue::predict(std::vector<Item>& items) {
  std::vector<PreparedSample> samples;
  for (const Item& item : items) samples.push_back(item.sample);
  std::vector<Prediction> predictions;
  try {
    predictions = predictor_.predict_prepared(samples);
  } catch (...) {
    if (items.size() == 1) {
      items[0].promise.set_exception(std::current_exception());
      return;
    }
    // One sample causes the error, or the sizes differ, so each sample is
    // predicted alone.
    for (Item& item : items) {
      std::vector<Item> alone;
      alone.push_back(std::move(item));
      predict(alone);
    }
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].promise.set_value(std::move(predictions[i]));
  }
}

}  // namespace tern
