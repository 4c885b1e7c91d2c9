#include "tern/data/tar_shards.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tern/data/formats/error.h"
#include "tern/data/message.h"

namespace tern {

namespace {

// Far below the 1024 files that a process may have open by default.
constexpr size_t kOpenShards = 128;

void check_fields(
    const std::shared_ptr<const TarShard>& shard,
    const std::vector<std::string>& fields) {
  for (int64_t i = 0; i < shard->samples().size(); ++i) {
    const TarSample sample(shard, i);
    for (const std::string& field : fields) sample.member(field);
  }
}

// Calls `action(i)` for 0..count-1 on some threads; throws what the first of
// them in the order of `i` threw.
template <class Action>
void for_each_in_parallel(size_t count, size_t threads, const Action& action) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next = 0;
  std::atomic<bool> has_failed = false;
  const auto work = [&] {
    for (size_t i = next++; i < count && !has_failed; i = next++) {
      try {
        action(i);
      } catch (...) {
        errors[i] = std::current_exception();
        has_failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    for (size_t i = 1; i < std::min(threads, count); ++i)
      pool.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

std::shared_ptr<const TarShard> open_shard(
    const std::string& shard,
    const ShardSetOptions& options,
    const std::atomic<bool>* is_given_up) {
  try {
    auto opened =
        std::make_shared<TarShard>(fetch_shard(shard, options, is_given_up));
    check_fields(opened, options.fields);
    return opened;
  } catch (const DataError& error) {
    if (!options.skip_bad_shards) throw;
    message(fmt::format("left out a shard: {}", error.what()));
    return nullptr;
  }
}

std::shared_ptr<const TarShards> TarShards::open(
    const std::vector<std::string>& patterns,
    const ShardSetOptions& options) {
  const std::vector<std::string> names = expand_shards(patterns);
  std::vector<std::shared_ptr<const TarShard>> found(names.size());
  constexpr size_t kThreads = 2;  // a web server is not pleased by more
  for_each_in_parallel(names.size(), kThreads, [&](size_t i) {
    found[i] = open_shard(names[i], options);
    if (found[i]) found[i]->close();
  });
  const std::shared_ptr<TarShards> shards(new TarShards);
  int64_t end = 0;
  for (auto& shard : found) {
    if (!shard) continue;
    shards->ends_.push_back(end += shard->samples().size());
    shards->shards_.push_back(std::move(shard));
  }
  if (shards->shards_.empty()) {
    throw DataError(
        names.front(),
        fmt::format(
            "and all other shards, {} in all, are damaged or gone. Fetch them "
            "again",
            names.size()));
  }
  shards->is_open_.resize(shards->shards_.size());
  return shards;
}

void TarShards::keep_open(size_t shard) const {
  const std::lock_guard lock(mutex_);
  if (is_open_[shard]) return;
  is_open_[shard] = true;
  open_.push_back(shard);
  if (open_.size() > kOpenShards) {
    shards_[open_.front()]->close();
    is_open_[open_.front()] = false;
    open_.pop_front();
  }
}

TarSample TarShards::sample(int64_t index) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  TORCH_CHECK_INDEX(
      index >= 0 && end != ends_.end(),
      fmt::format(
          "[TarShards::sample] index {} is outside; expected 0 to {}.",
          index,
          size() - 1));
  const auto shard = static_cast<size_t>(end - ends_.begin());
  keep_open(shard);
  return {shards_[shard], index - (shard > 0 ? ends_[shard - 1] : 0)};
}

std::vector<int64_t> TarShards::shard_sizes() const {
  std::vector<int64_t> sizes;
  for (const auto& shard : shards_) sizes.push_back(shard->samples().size());
  return sizes;
}

}  // namespace tern
