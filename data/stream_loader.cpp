#include "tern/data/stream_loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/utils.h>

namespace tern {

namespace {

StreamLoaderOptions checked(
    StreamLoaderOptions options,
    const StreamDataset* dataset) {
  TORCH_CHECK_VALUE(
      dataset != nullptr,
      "[StreamLoader] the data set is null; give a data set.");
  TORCH_CHECK_VALUE(
      options.batch_size > 0 && options.lanes > 0 && options.prefetch > 0,
      fmt::format(
          "[StreamLoader] batch_size is {}, lanes {} and prefetch {}; expected "
          "1 or more of each.",
          options.batch_size,
          options.lanes,
          options.prefetch));
  TORCH_CHECK_VALUE(
      options.workers >= -1 && options.batches >= 0,
      fmt::format(
          "[StreamLoader] workers is {} and batches {}; expected 0 or more, or "
          "-1 workers for a number that suits the machine.",
          options.workers,
          options.batches));
  TORCH_CHECK_VALUE(
      options.rank >= 0 && options.rank < options.world_size,
      fmt::format(
          "[StreamLoader] rank {} of {}; expected a rank in 0..world_size - 1.",
          options.rank,
          options.world_size));
  TORCH_CHECK_VALUE(
      options.batches > 0 || !dataset->is_endless(),
      "[StreamLoader] the stream has no end and `batches` is 0; set it to the "
      "batches that an epoch shall have.");
  if (options.workers == -1) {
    const int64_t cores = std::thread::hardware_concurrency();
    options.workers = std::max<int64_t>(cores - 1, 1);
  }
  options.workers = std::min(options.workers, options.lanes);
  return options;
}

}  // namespace

// The lanes of an epoch. Each is read by one worker into a queue of its own;
// `next` takes one sample of each in turn, so that the workers' speed decides
// on nothing but the time.
struct StreamLoader::Epoch::Lanes {
  struct Lane {
    std::unique_ptr<StreamDataset::Pass> pass;
    std::deque<Batch> samples;  // made ahead
    std::exception_ptr error;   // comes after them
    bool is_over = false;       // nothing comes after them
  };

  StreamLoaderOptions options;
  std::vector<Lane> lanes;
  size_t turn = 0;  // the lane whose sample is next
  int64_t batches_left = 0;

  std::mutex mutex;
  std::condition_variable sample_ready, room_free;
  bool stop = false;
  std::vector<std::thread> threads;

  ~Lanes() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    room_free.notify_all();
    for (Lane& lane : lanes) {
      if (lane.pass) lane.pass->give_up();
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Lets the lanes take turns; `take(lane)` is false at a lane's end.
  template <class Take>
  bool take_turn(const Take& take) {
    for (size_t tried = 0; tried < lanes.size(); ++tried) {
      Lane& lane = lanes[turn];
      turn = (turn + 1) % lanes.size();
      if (take(lane)) return true;
    }
    return false;
  }

  bool skip_sample() {
    return take_turn([](Lane& lane) { return lane.pass->skip(); });
  }

  void start() {
    for (int64_t worker = 0; worker < options.workers; ++worker) {
      threads.emplace_back([this, worker] { work(worker); });
    }
  }

  // A lane of this worker's with room, or null when all have come to their end
  // or the pass is given up.
  Lane* wait_for_room(std::unique_lock<std::mutex>& lock, size_t worker) {
    for (;;) {
      bool is_over = true;
      for (size_t i = worker; i < lanes.size() && !stop; i += threads_count()) {
        Lane& lane = lanes[i];
        if (lane.is_over) continue;
        is_over = false;
        if (static_cast<int64_t>(lane.samples.size()) < options.prefetch) {
          return &lane;
        }
      }
      if (is_over || stop) return nullptr;
      room_free.wait(lock);
    }
  }

  size_t threads_count() const { return static_cast<size_t>(options.workers); }

  void work(size_t worker) {
    const torch::NoGradGuard no_grad;
    std::unique_lock lock(mutex);
    while (Lane* const lane = wait_for_room(lock, worker)) {
      lock.unlock();
      std::optional<Batch> sample;
      std::exception_ptr error;
      try {
        sample = lane->pass->next();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      lane->is_over = !sample;
      lane->error = error;
      if (sample) lane->samples.push_back(std::move(*sample));
      sample_ready.notify_one();
    }
  }

  std::optional<Batch> take_made(Lane& lane) {
    std::unique_lock lock(mutex);
    sample_ready.wait(lock, [&] {
      return !lane.samples.empty() || lane.is_over;
    });
    if (lane.samples.empty()) {
      if (lane.error) std::rethrow_exception(lane.error);
      return std::nullopt;
    }
    std::optional<Batch> sample = std::move(lane.samples.front());
    lane.samples.pop_front();
    lock.unlock();
    room_free.notify_all();
    return sample;
  }

  std::optional<Batch> next() {
    const torch::NoGradGuard no_grad;
    if (batches_left == 0) return std::nullopt;
    const int64_t left = std::exchange(batches_left, 0);  // if it throws
    std::vector<Batch> samples;
    const auto take = [&](Lane& lane) {
      auto sample = threads.empty() ? lane.pass->next() : take_made(lane);
      if (sample) samples.push_back(std::move(*sample));
      return sample.has_value();
    };
    const auto size = static_cast<size_t>(options.batch_size);
    while (samples.size() < size && take_turn(take)) {
    }
    const bool is_short = samples.size() < size;
    if (samples.empty() || (is_short && options.drop_last)) return std::nullopt;
    batches_left = is_short ? 0 : left - 1;
    return collate(samples);
  }
};

StreamLoader::Epoch::Epoch(std::unique_ptr<Lanes> lanes)
    : lanes_(std::move(lanes)) {}
StreamLoader::Epoch::Epoch(Epoch&&) noexcept = default;
StreamLoader::Epoch::~Epoch() = default;

std::optional<Batch> StreamLoader::Epoch::next() {
  return lanes_->next();
}

StreamLoader::StreamLoader(
    std::shared_ptr<const StreamDataset> dataset,
    StreamLoaderOptions options)
    : dataset_(std::move(dataset)),
      options_(checked(options, dataset_.get())) {}

StreamLoader::Epoch StreamLoader::epoch(int64_t epoch, int64_t first_batch)
    const {
  TORCH_CHECK_VALUE(
      epoch >= 0 && first_batch >= 0,
      fmt::format(
          "[StreamLoader::epoch] epoch is {} and first_batch is {}; expected 0 "
          "or more.",
          epoch,
          first_batch));
  auto lanes = std::make_unique<Epoch::Lanes>();
  lanes->options = options_;
  for (int64_t lane = 0; lane < options_.lanes; ++lane) {
    lanes->lanes.emplace_back().pass = dataset_->pass(
        {.seed = options_.seed,
         .epoch = epoch,
         .training = options_.training,
         .rank = options_.rank,
         .world_size = options_.world_size,
         .lane = lane,
         .lanes = options_.lanes});
  }
  constexpr int64_t kNoLimit = INT64_MAX;
  const int64_t batches = options_.batches > 0 ? options_.batches : kNoLimit;
  lanes->batches_left = std::max<int64_t>(batches - first_batch, 0);
  for (int64_t i = 0; i < first_batch * options_.batch_size; ++i) {
    if (!lanes->skip_sample()) break;
  }
  lanes->start();
  return Epoch(std::move(lanes));
}

}  // namespace tern
