#include "tern/data/tar_stream.h"

#include <atomic>
#include <exception>
#include <future>
#include <optional>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tern/data/error_text.h"
#include "tern/data/formats/error.h"
#include "tern/data/sampler.h"
#include "tern/data/shuffle_buffer.h"

namespace tern {

namespace {

// Sample numbers that no stream has: keys of a lane's draws.
int64_t lane_key(const StreamContext& context, int64_t what) {
  return -10 - what - 2 * (context.lane * context.world_size + context.rank);
}

}  // namespace

// The shards of one lane, one after the other.
class TarStream::ShardPass final : public StreamDataset::Pass {
 public:
  ShardPass(
      std::vector<std::string> shards,
      std::shared_ptr<const TarStreamOptions> options,
      const StreamContext& context)
      : shards_(std::move(shards)),
        options_(std::move(options)),
        context_(context),
        draws_(context.seed, context.epoch, lane_key(context, 0)),
        buffer_(
            static_cast<size_t>(
                options_->shuffle ? options_->shuffle_buffer : 1),
            SampleRng(context.seed, context.epoch, lane_key(context, 1))) {}

  // The download of a shard that nobody wants any more ends soon.
  ~ShardPass() override { is_given_up_ = true; }
  void give_up() override { is_given_up_ = true; }

  std::optional<Batch> next() override {
    const std::optional<TarSample> sample = draw();
    if (!sample) return std::nullopt;
    const BatchContext batch = {
        context_.seed,
        context_.epoch,
        context_.training};
    // Unlike in any other lane.
    const int64_t number =
        ((given_ - 1) * context_.lanes + context_.lane) * context_.world_size +
        context_.rank;
    try {
      return options_->decode(*sample, batch, batch.rng(number));
    } catch (const DataError&) {
      throw;
    } catch (const std::exception& error) {
      std::throw_with_nested(DataError(sample->describe(), message_of(error)));
    }
  }

  bool skip() override { return draw().has_value(); }

 private:
  // The samples wait in the buffer unread: it holds no bytes of them.
  std::optional<TarSample> draw() {
    auto sample = buffer_.next([&] { return next_in_order(); });
    if (sample) ++given_;
    return sample;
  }

  std::optional<TarSample> next_in_order() {
    while (!shard_ || place_ == shard_->samples().size()) {
      if (!open_next()) return std::nullopt;
    }
    return TarSample(shard_, place_++);
  }

  // False at the end; else `shard_` may still be null, when it is left out.
  bool open_next() {
    if (!coming_.valid()) ask_for_next();
    if (!coming_.valid()) {
      shard_ = nullptr;
      return false;
    }
    place_ = 0;
    shard_ = coming_.get();
    left_out_ = shard_ ? 0 : left_out_ + 1;
    if (options_->resample && left_out_ > shards_.size() + 100) {
      throw DataError(
          shards_.front(),
          "and all other shards that were drawn are damaged or gone. Fetch "
          "them again");
    }
    ask_for_next();
    return true;
  }

  // One from the web is fetched while the one before it is read.
  void ask_for_next() {
    const std::string* const name = next_name();
    if (name == nullptr) return;
    const bool is_fetched = name->find("://") != name->npos;
    coming_ = std::async(
        is_fetched ? std::launch::async : std::launch::deferred,
        [this, name] {
          return open_shard(*name, options_->shards, &is_given_up_);
        });
  }

  const std::string* next_name() {
    if (options_->resample) return &shards_[draws_.below(shards_.size())];
    return next_shard_ < shards_.size() ? &shards_[next_shard_++] : nullptr;
  }

  std::vector<std::string> shards_;
  std::shared_ptr<const TarStreamOptions> options_;
  StreamContext context_;
  SampleRng draws_;
  ShuffleBuffer<TarSample> buffer_;
  size_t next_shard_ = 0, left_out_ = 0;
  std::shared_ptr<const TarShard> shard_;
  int64_t place_ = 0;  // in it
  int64_t given_ = 0;
  std::atomic<bool> is_given_up_ = false;
  std::future<std::shared_ptr<const TarShard>> coming_;  // waits when it goes
};

TarStream::TarStream(std::vector<std::string> shards, TarStreamOptions options)
    : shards_(std::move(shards)),
      options_(std::make_shared<TarStreamOptions>(std::move(options))) {}

std::shared_ptr<const TarStream> TarStream::from(
    const std::vector<std::string>& shards,
    TarStreamOptions options) {
  TORCH_CHECK_VALUE(
      options.shuffle_buffer >= 1,
      fmt::format(
          "[TarStream] shuffle_buffer is {}; expected 1 or more samples.",
          options.shuffle_buffer));
  if (!options.decode) options.decode = decode_fields({"npy"}, {"cls"});
  return std::shared_ptr<const TarStream>(
      new TarStream(expand_shards(shards), std::move(options)));
}

std::unique_ptr<StreamDataset::Pass> TarStream::pass(
    const StreamContext& context) const {
  const auto count = static_cast<int64_t>(shards_.size());
  if (options_->resample) {
    return std::make_unique<ShardPass>(shards_, options_, context);
  }
  TORCH_CHECK_VALUE(
      count >= context.world_size,
      fmt::format(
          "[TarStream] there are {} shards for {} processes, so that {} of "
          "them would have none; write more, smaller shards, or set resample.",
          count,
          context.world_size,
          context.world_size - count));
  std::vector<int64_t> order = SequentialSampler(count).indices(0, 0);
  if (options_->shuffle) {
    order = RandomSampler(count).indices(context.seed, context.epoch);
  }
  // Over ranks first: none has two more than another.
  const int64_t parts = context.lanes * context.world_size;
  std::vector<std::string> mine;
  for (int64_t i = context.lane * context.world_size + context.rank; i < count;
       i += parts) {
    mine.push_back(shards_[static_cast<size_t>(order[i])]);
  }
  return std::make_unique<ShardPass>(std::move(mine), options_, context);
}

}  // namespace tern
