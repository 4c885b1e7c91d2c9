#include "tern/data/data_loader.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/error.h"
#include "tern/data/support/error_text.h"
#include "tern/data/support/mentions.h"
#include "tern/data/support/occurrences.h"
#include "tern/kernels/check.h"
#include "tern/kernels/load_cuda.h"
#include "tern/kernels/parallel_for.h"

namespace tern {

namespace {

// Checked because user samplers may return bad indices, and datasets need not
// check their indices.
void check_order(
    const std::vector<int64_t>& order,
    int64_t expected,
    int64_t samples) {
  TERN_CHECK_VALUE(
      static_cast<int64_t>(order.size()) == expected,
      "[DataLoader] the sampler returned {} indices, but its size() is {}; "
      "expected the same number.",
      order.size(),
      expected);
  const auto wrong = std::find_if(order.begin(), order.end(), [&](int64_t i) {
    return i < 0 || i >= samples;
  });
  TORCH_CHECK_INDEX(
      wrong == order.end(),
      fmt::format(
          "[DataLoader] the sampler returned sample {} of a dataset of {}; "
          "expected 0 to {}.",
          wrong == order.end() ? 0 : *wrong,
          samples,
          samples - 1));
}

DataLoaderOptions checked(DataLoaderOptions options) {
  TERN_CHECK_VALUE(
      options.batch_size > 0,
      "[DataLoader] batch_size is {}; expected 1 or more.",
      options.batch_size);
  TERN_CHECK_VALUE(
      options.workers >= -1,
      "[DataLoader] workers is {}; expected a number of threads, 0 for the "
      "calling thread or -1 for a number that suits the machine.",
      options.workers);
  TERN_CHECK_VALUE(
      options.prefetch > 0,
      "[DataLoader] prefetch is {}; expected 1 batch or more for each worker.",
      options.prefetch);
  TERN_CHECK_VALUE(
      options.timeout.count() >= 0,
      "[DataLoader] timeout is {} ms; expected 0 (no timeout) or more.",
      options.timeout.count());
  if (options.workers == -1) {
    const int64_t cores = std::thread::hardware_concurrency();
    options.workers = std::clamp<int64_t>(cores - 1, 1, 16);
  }
  return options;
}

// Returns the message of the exception that is being handled.
std::string current_message() {
  try {
    throw;
  } catch (const std::exception& error) {
    return message_of(error);
  } catch (...) {
    return "the dataset threw an object that is not a std::exception";
  }
}

// Returns "sample 4, picture_4.png", or just the description if it includes the
// number.
std::string place_of(const Dataset& dataset, int64_t index) {
  const std::string number = fmt::format("sample {}", index);
  const std::string described = dataset.describe(index);
  return mentions(described, number) ? described
                                     : fmt::format("{}, {}", number, described);
}

// Rethrows an exception of a dataset as a DataError that names the sample once,
// with the original exception nested in it. `indices` failed together; reading
// each sample alone finds the faulty one. Must be called in an exception
// handler.
[[noreturn]] void rethrow_with_sample(
    const Dataset& dataset,
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) {
  const std::string original = current_message();
  // The first sample that, read alone, fails with a different message from the
  // batch. This may be the same failure in other words, or a consequence of it,
  // since a stream may have discarded its samples.
  std::string alone;
  const auto blame = [&](int64_t index, bool has_path) {
    const std::string message = current_message();
    if (message == original) {
      std::string path = has_path ? "" : dataset.describe(index);
      if (mentions(message, path)) path.clear();
      const std::string number = fmt::format("sample {}", index);
      const bool is_said = mentions(message, number) || mentions(path, number);
      std::throw_with_nested(DataError(
          path,
          is_said ? message
          : message.ends_with('.')
              ? fmt::format("{} This is {} of the dataset.", message, number)
              : fmt::format("{} ({} of the dataset)", message, number)));
    }
    if (!alone.empty()) return;
    alone =
        fmt::format(" Alone, {}, fails: {}", place_of(dataset, index), message);
  };
  for (int64_t row = 0; row < std::ssize(indices); ++row) {
    const int64_t index = indices[row];
    try {
      dataset.get_batch(index, context.of_rows(row, 1));
    } catch (const DataError& error) {
      blame(index, !error.path().empty());
    } catch (...) {
      blame(index, false);
    }
  }
  // The samples do not fit together, the fault was transient, or it has a
  // different message when the sample is read alone.
  std::throw_with_nested(DataError(
      "",
      fmt::format(
          "{}{} In a batch of {} samples, the first is {}.{}",
          original,
          original.ends_with('.') ? "" : ".",
          indices.size(),
          place_of(dataset, indices[0]),
          alone)));
}

// \param rows  Ascending.
std::vector<int64_t> without_rows(
    c10::ArrayRef<int64_t> indices,
    const std::vector<int64_t>& rows) {
  if (rows.empty()) return indices.vec();
  std::vector<int64_t> kept;
  kept.reserve(indices.size());
  for (int64_t row = 0; row < std::ssize(indices); ++row) {
    if (!std::ranges::binary_search(rows, row)) kept.push_back(indices[row]);
  }
  return kept;
}

// Returns the order of an epoch and the occurrences in it, which count over all
// ranks.
std::pair<std::vector<int64_t>, std::vector<int64_t>> order_of(
    const Sampler& sampler,
    uint64_t seed,
    int64_t epoch,
    int64_t samples) {
  const auto* const sharded = dynamic_cast<const ShardedSampler*>(&sampler);
  const Sampler& whole = sharded ? sharded->whole() : sampler;
  std::vector<int64_t> order = whole.indices(seed, epoch);
  check_order(order, whole.size(), samples);
  // A RandomSampler lists each sample once.
  std::vector<int64_t> occurrences;
  if (!dynamic_cast<const RandomSampler*>(&whole)) {
    occurrences = occurrences_in(order);
  }
  if (!sharded) return {std::move(order), std::move(occurrences)};
  std::vector<int64_t> mine = sharded->places(), own_occurrences;
  for (int64_t& place : mine) {
    if (!occurrences.empty()) own_occurrences.push_back(occurrences.at(place));
    place = order.at(place);
  }
  return {std::move(mine), std::move(own_occurrences)};
}

}  // namespace

// The batches of one epoch. Workers claim batch numbers in order and put each
// batch into its slot of a ring; `next` takes them out in order, so that a slow
// batch causes a delay but no reordering. A worker runs ahead by at most the
// size of the ring.
struct DataLoader::Epoch::Workers {
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<BufferPool> buffers;
  DataLoaderOptions options;
  BatchContext context;
  std::vector<int64_t> order;
  std::vector<int64_t> occurrences;  // of the samples in `order`, or empty
  int64_t batches = 0;

  std::mutex mutex;
  std::condition_variable batch_ready, slot_free;
  std::vector<Slot> ring;
  int64_t claimed = 0;   // first batch that no worker has claimed
  int64_t consumed = 0;  // first batch that `next` has not returned
  bool stop = false;
  bool can_end_early = false;  // Dataset::can_end_early, in training
  bool has_ended_early = false;
  int64_t working = 0;  // threads that have not finished
  std::vector<std::thread> threads;

  // A thread that hangs in the dataset, for example on a dead disk, is detached
  // and keeps this object alive; waiting for it would hang the program too.
  void finish() {
    constexpr std::chrono::seconds kPatience(10);
    bool is_stuck = false;
    {
      std::unique_lock lock(mutex);
      stop = true;
      slot_free.notify_all();
      is_stuck =
          !batch_ready.wait_for(lock, kPatience, [&] { return working == 0; });
    }
    for (std::thread& thread : threads) {
      if (is_stuck) {
        thread.detach();
      } else {
        thread.join();
      }
    }
  }

  Batch make(int64_t batch) const {
    // Without workers this runs in the caller's thread, where a guard may be
    // active.
    const torch::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    const int64_t begin = batch * options.batch_size;
    const int64_t end = std::min<int64_t>(
        begin + options.batch_size,
        static_cast<int64_t>(order.size()));
    const c10::ArrayRef<int64_t> indices(
        order.data() + begin,
        order.data() + end);
    BatchContext of_batch = context;
    if (!occurrences.empty()) {
      of_batch.occurrences = {occurrences.data() + begin, indices.size()};
    }
    Batch made;
    try {
      made = dataset->get_batch(indices, of_batch);
    } catch (...) {
      rethrow_with_sample(*dataset, indices, of_batch);
    }
    if (made.size() + std::ssize(made.left_out) != std::ssize(indices)) {
      throw DataError(
          place_of(*dataset, indices.front()),
          fmt::format(
              "get_batch was called with {} indices, starting with this "
              "sample, and returned inputs with {} rows; expected one row per "
              "index, except for the rows listed in Batch::left_out, which has "
              "{}.",
              indices.size(),
              made.size(),
              made.left_out.size()));
    }
    made.indices = without_rows(indices, made.left_out);
    return made;
  }

  void work() {
    use_one_thread();
    std::unique_lock lock(mutex);
    for (;;) {
      slot_free.wait(lock, [&] {
        return stop || claimed - consumed < static_cast<int64_t>(ring.size()) ||
               claimed >= batches;
      });
      if (stop || claimed >= batches) {
        --working;
        batch_ready.notify_all();
        return;
      }
      const int64_t batch = claimed++;
      lock.unlock();
      Slot made;
      try {
        made.batch = make(batch);
      } catch (...) {
        made.error = std::current_exception();
      }
      made.ready = true;
      lock.lock();
      ring[batch % ring.size()] = std::move(made);
      batch_ready.notify_all();
    }
  }

  // Waits for the next batch; returns false on a stop request.
  bool wait(
      std::unique_lock<std::mutex>& lock,
      const Slot& slot,
      const std::atomic<bool>* is_stopped) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kLook(50);
    const auto begin = Clock::now();
    while (!batch_ready.wait_for(lock, kLook, [&] { return slot.ready; })) {
      if (is_stopped && *is_stopped) return false;
      if (options.timeout.count() > 0 &&
          Clock::now() - begin >= options.timeout) {
        throw DataError(
            dataset->describe(order[consumed * options.batch_size]),
            fmt::format(
                "batch {}, which begins with this sample, was not ready after "
                "{} ms. The dataset is slow or stuck; raise "
                "DataLoaderOptions::timeout if it is slow.",
                consumed,
                options.timeout.count()));
      }
    }
    return true;
  }

  std::optional<Batch> next(const std::atomic<bool>* is_stopped) {
    if (consumed >= batches) return std::nullopt;
    if (threads.empty()) {
      const int64_t batch = std::exchange(consumed, batches);  // if it throws
      Batch made = make(batch);
      consumed = batch + 1;
      return made;
    }
    std::unique_lock lock(mutex);
    Slot& slot = ring[consumed % ring.size()];
    if (!wait(lock, slot, is_stopped)) return std::nullopt;
    Slot taken = std::exchange(slot, Slot{});
    ++consumed;
    if (taken.error) {
      consumed = batches;
      stop = true;
    }
    lock.unlock();
    slot_free.notify_all();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(taken.batch);
  }

  // For data that can end early.
  std::optional<Batch> next_until_end(const std::atomic<bool>* is_stopped) {
    std::optional<Batch> batch = next(is_stopped);
    if (!batch || batch->left_out.empty()) return batch;
    {
      const std::lock_guard lock(mutex);
      has_ended_early = stop = true;
      consumed = batches;
      slot_free.notify_all();
    }
    batch->left_out.clear();
    if (options.drop_last || batch->size() == 0) batch.reset();
    return batch;
  }
};

DataLoader::Epoch::Epoch(std::shared_ptr<Workers> workers)
    : workers_(std::move(workers)) {}
DataLoader::Epoch::Epoch(Epoch&&) noexcept = default;

DataLoader::Epoch::~Epoch() {
  if (workers_) workers_->finish();
}

std::optional<Batch> DataLoader::Epoch::next(const std::atomic<bool>* stop) {
  return workers_->can_end_early ? workers_->next_until_end(stop)
                                 : workers_->next(stop);
}

bool DataLoader::Epoch::has_ended_early() const {
  return workers_->has_ended_early;
}

DataLoader::DataLoader(
    std::shared_ptr<const Dataset> dataset,
    DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(checked(std::move(options))) {
  TORCH_CHECK_VALUE(
      dataset_,
      "[DataLoader] the dataset is null; expected a dataset.");
  sampler_ = options_.sampler;
  if (!sampler_ && options_.shuffle) {
    sampler_ = std::make_shared<RandomSampler>(dataset_->size());
  } else if (!sampler_) {
    sampler_ = std::make_shared<SequentialSampler>(dataset_->size());
  }
  if (auto other = sampler_->for_batches_of(options_.batch_size)) {
    sampler_ = std::move(other);
  }
  buffers_ = std::make_shared<BufferPool>(options_.pin_memory.value_or(false));
}

DataLoader DataLoader::in_order(bool augments) const {
  DataLoaderOptions options = options_;
  options.shuffle = options.drop_last = false;
  options.sampler = nullptr;
  options.training = augments;
  return DataLoader(dataset_, options);
}

DataLoader
DataLoader::shard(int64_t rank, int64_t world_size, bool equal_batches) const {
  DataLoaderOptions options = options_;
  options.sampler = std::make_shared<ShardedSampler>(
      sampler_,
      ShardOptions{
          .rank = rank,
          .world_size = world_size,
          .batch_size = options_.batch_size,
          .drop_last = options_.drop_last,
          .equal_batches = equal_batches});
  return DataLoader(dataset_, options);
}

int64_t DataLoader::size() const {
  const int64_t samples = sampler_->size();
  return options_.drop_last
             ? samples / options_.batch_size
             : (samples + options_.batch_size - 1) / options_.batch_size;
}

DataLoader::Epoch DataLoader::epoch(int64_t epoch, int64_t first_batch) const {
  TERN_CHECK_VALUE(
      epoch >= 0 && first_batch >= 0,
      "[DataLoader::epoch] epoch is {} and first_batch is {}; expected 0 "
      "or more.",
      epoch,
      first_batch);
  if (!options_.pin_memory) buffers_->set_pin_memory(is_cuda_in_use());
  auto workers = std::make_shared<Epoch::Workers>();
  workers->dataset = dataset_;
  workers->buffers = buffers_;
  workers->options = options_;
  workers->context = {options_.seed, epoch, options_.training, buffers_.get()};
  std::tie(workers->order, workers->occurrences) =
      order_of(*sampler_, options_.seed, epoch, dataset_->size());
  // If a stream ends early, all its later samples are missing, so the order
  // must be sorted.
  workers->can_end_early = options_.training && dataset_->can_end_early();
  TORCH_CHECK_VALUE(
      !workers->can_end_early || std::ranges::is_sorted(workers->order),
      "[DataLoader] the data can end early (a stream that cannot restart), but "
      "the sampler shuffles; expected samples in order. Use a "
      "SequentialSampler, and shuffle within the stream.");
  workers->batches = size();
  const auto wanted = c10::ArrayRef(workers->order)
                          .slice(std::min<size_t>(
                              first_batch * options_.batch_size,
                              workers->order.size()));
  if (auto opened = dataset_->begin_epoch(wanted, workers->context)) {
    workers->dataset = std::move(opened);
  }
  workers->claimed = workers->consumed = first_batch;
  const int64_t threads =
      std::clamp<int64_t>(workers->batches - first_batch, 0, options_.workers);
  workers->ring.resize(threads * options_.prefetch);
  Epoch pass(workers);  // joins started threads if one fails to start
  for (int64_t i = 0; i < threads; ++i) {
    workers->threads.emplace_back([workers] { workers->work(); });
    const std::lock_guard lock(workers->mutex);
    ++workers->working;
  }
  return pass;
}

}  // namespace tern
