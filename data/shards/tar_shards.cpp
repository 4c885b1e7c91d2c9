#include "tern/data/shards/tar_shards.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <iterator>
#include <optional>
#include <utility>

#include <c10/util/Exception.h>

#include "tern/data/download/cache_folder.h"
#include "tern/data/download/download.h"
#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxShards = 1'000'000;

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_good = error == std::errc() && end == text.data() + text.size();
  return is_good && value >= 0 ? std::optional(value) : std::nullopt;
}

// Expands "000..009", with as many digits as the first number, or
// "train,extra".
std::vector<std::string> choices(
    const std::string& inside,
    const std::string& pattern) {
  std::vector<std::string> result;
  if (const size_t dots = inside.find(".."); dots != inside.npos) {
    const std::string_view text = inside;
    const auto first = whole_number(text.substr(0, dots));
    const auto last = whole_number(text.substr(dots + 2));
    TERN_CHECK_VALUE(
        first && last && *first <= *last && *last - *first < kMaxShards,
        "[expand_shards] {{{}}} in {} is not a range; expected two numbers, "
        "such as {{000..009}}.",
        inside,
        pattern);
    for (int64_t i = *first; i <= *last; ++i) {
      result.push_back(fmt::format("{:0{}}", i, dots));
    }
    return result;
  }
  for (size_t begin = 0; begin <= inside.size();) {
    const size_t end = std::min(inside.find(',', begin), inside.size());
    result.push_back(inside.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

void expand(
    const std::string& done,
    const std::string& rest,
    const std::string& pattern,
    std::vector<std::string>& shards) {
  const size_t open = rest.find('{');
  if (open == rest.npos) {
    TERN_CHECK_VALUE(
        static_cast<int64_t>(shards.size()) < kMaxShards,
        "[expand_shards] {} and the patterns before it expand to more than {} "
        "shards; expected fewer and larger shards.",
        pattern,
        kMaxShards);
    shards.push_back(done + rest);
    return;
  }
  const size_t close = rest.find('}', open);
  TERN_CHECK_VALUE(
      close != rest.npos,
      "[expand_shards] {} has a brace that is not closed; expected a range "
      "such as {{000..009}}.",
      pattern);
  const std::string inside = rest.substr(open + 1, close - open - 1);
  for (const std::string& choice : choices(inside, pattern)) {
    expand(
        fmt::format("{}{}{}", done, rest.substr(0, open), choice),
        rest.substr(close + 1),
        pattern,
        shards);
  }
}

// Shards with the same name may come from different URLs.
fs::path kept_as(const std::string& url, const std::string& name) {
  return fs::path("shards") / sha256(as_bytes(url)).substr(0, 16) / name;
}

// Far below the default limit of 1024 open files per process.
constexpr size_t kOpenShards = 128;

void check_fields(
    const std::shared_ptr<const TarShard>& shard,
    const std::vector<std::string>& fields) {
  for (int64_t i = 0; i < std::ssize(shard->samples()); ++i) {
    const TarSample sample(shard, i);
    for (const std::string& field : fields) sample.member(field);
  }
}

// A shard; for a bad shard that is skipped, null and the reason.
struct OpenedShard {
  std::shared_ptr<const TarShard> shard = nullptr;
  std::string problem = {};
};

bool is_url(const std::string& shard) {
  return shard.find("://") != shard.npos;
}

fs::path fetch(
    const std::string& shard,
    const ShardSetOptions& options,
    bool is_refreshed);

OpenedShard open_shard(
    const std::string& shard,
    const ShardSetOptions& options) {
  try {
    std::shared_ptr<const TarShard> opened;
    try {
      opened = std::make_shared<TarShard>(fetch_shard(shard, options));
    } catch (const DataError&) {
      if (!is_url(shard) || !options.checksums.empty()) throw;
      // If a server sends no length, a broken download may have been stored as
      // complete and would stay damaged.
      opened = std::make_shared<TarShard>(
          fetch(shard, options, /*is_refreshed=*/true));
    }
    check_fields(opened, options.fields);
    opened->close();
    return {.shard = std::move(opened)};
  } catch (const DataError& error) {
    if (!options.skip_bad_shards) throw;
    return {.problem = error.what()};
  }
}

}  // namespace

std::vector<std::string> expand_shards(
    const std::vector<std::string>& patterns) {
  std::vector<std::string> shards;
  for (const std::string& pattern : patterns) {
    expand("", pattern, pattern, shards);
  }
  TORCH_CHECK_VALUE(
      !shards.empty(),
      "[expand_shards] no shard was given; expected patterns such as "
      "\"train-{000..009}.tar\".");
  return shards;
}

fs::path fetch_shard(const std::string& shard, const ShardSetOptions& options) {
  return fetch(shard, options, /*is_refreshed=*/false);
}

namespace {

// \param is_refreshed  Downloads the shard again and replaces the file in the
//                      cache.
fs::path fetch(
    const std::string& shard,
    const ShardSetOptions& options,
    bool is_refreshed) {
  std::string name = shard.substr(shard.rfind('/') + 1);
  if (is_url(shard)) name = name.substr(0, name.find_first_of("?#"));
  DownloadOptions fetching;
  fetching.retries = options.retries;
  if (!options.checksums.empty()) {
    const auto sum = options.checksums.find(name);
    if (sum == options.checksums.end()) {
      throw DataError(
          shard,
          "is not in the list of checksums; expected a line for " + name +
              ". Download the list that belongs to these shards.");
    }
    fetching.sha256 = sum->second;
  }
  if (!is_url(shard)) {
    if (!fetching.sha256.empty()) check_sha256_file(shard, fetching.sha256);
    return shard;
  }
  fs::path file =
      cache_folder(options.cache) / kept_as(shard, name.empty() ? "tar" : name);
  std::error_code ignored;
  const bool is_kept = fs::is_regular_file(file, ignored);
  if (!is_kept || is_refreshed || !fetching.sha256.empty()) {
    download(shard, file, fetching);
  }
  return file;
}

}  // namespace

std::shared_ptr<const TarShards> TarShards::open(
    const std::vector<std::string>& patterns,
    const ShardSetOptions& options) {
  const std::vector<std::string> names = expand_shards(patterns);
  std::vector<OpenedShard> found(names.size());
  const auto open_one = [&](size_t i) {
    found[i] = open_shard(names[i], options);
  };
  // Two at a time, to avoid overloading a web server.
  for (size_t i = 0; i < names.size(); i += 2) {
    std::future<void> second;
    if (i + 1 < names.size()) {
      second = std::async(std::launch::async, open_one, i + 1);
    }
    open_one(i);
    if (second.valid()) second.get();
  }
  const std::shared_ptr<TarShards> shards(new TarShards);
  int64_t end = 0;
  for (auto& [shard, problem] : found) {
    if (!shard) {
      options.sink.or_terminal()->warning("a shard was skipped: " + problem);
      continue;
    }
    shards->ends_.push_back(end += std::ssize(shard->samples()));
    shards->shards_.push_back(std::move(shard));
  }
  if (shards->shards_.empty()) {
    throw DataError(
        names.front(),
        fmt::format(
            "and all other shards, {} in total, are damaged or missing. "
            "Download them again.",
            names.size()));
  }
  return shards;
}

void TarShards::keep_open(size_t shard) const {
  const std::lock_guard lock(mutex_);
  if (std::find(open_.begin(), open_.end(), shard) != open_.end()) return;
  open_.push_back(shard);
  if (open_.size() > kOpenShards) {
    shards_[open_.front()]->close();
    open_.pop_front();
  }
}

TarSample TarShards::sample(int64_t index) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  TORCH_CHECK_INDEX(
      index >= 0 && end != ends_.end(),
      fmt::format(
          "[TarShards::sample] index {} is out of range; expected 0 to {}.",
          index,
          size() - 1));
  const auto shard = static_cast<size_t>(end - ends_.begin());
  keep_open(shard);
  return {shards_[shard], index - (shard > 0 ? ends_[shard - 1] : 0)};
}

std::vector<int64_t> TarShards::shard_sizes() const {
  std::vector<int64_t> sizes;
  sizes.reserve(shards_.size());
  for (const auto& shard : shards_)
    sizes.push_back(std::ssize(shard->samples()));
  return sizes;
}

TarDecoder decode_fields(
    std::vector<std::string> inputs,
    std::vector<std::string> targets) {
  return [inputs = std::move(inputs), targets = std::move(targets)](
             const TarSample& sample,
             const BatchContext&,
             SampleRng) {
    Batch batch;
    for (const std::string& field : inputs) {
      batch.inputs.push_back(sample.tensor(field));
    }
    for (const std::string& field : targets) {
      batch.targets.push_back(sample.tensor(field));
    }
    return batch;
  };
}

TarDataset::TarDataset(
    std::shared_ptr<const TarShards> shards,
    TarDecoder decode)
    : shards_(std::move(shards)), decode_(std::move(decode)) {}

std::shared_ptr<const TarDataset> TarDataset::from(
    const std::vector<std::string>& shards,
    TarDatasetOptions options) {
  return std::shared_ptr<const TarDataset>(new TarDataset(
      TarShards::open(shards, options.shards),
      std::move(options.decode)));
}

Batch TarDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  static const TarDecoder by_default = decode_fields({"npy"}, {"cls"});
  const TarDecoder& decode = decode_ ? decode_ : by_default;
  std::vector<Batch> samples;
  samples.reserve(indices.size());
  for (int64_t row = 0; row < std::ssize(indices); ++row) {
    const int64_t index = indices[row];
    const BatchContext of_row = context.of_row(row);
    samples.push_back(
        decode(shards_->sample(index), of_row, of_row.rng(index)));
  }
  return collate(samples, context);
}

std::string TarDataset::describe(int64_t index) const {
  return shards_->sample(index).describe();
}

std::string TarDataset::why_no_folds(const Dataset& other) const {
  const auto* const shards = dynamic_cast<const TarDataset*>(&other);
  const bool may_differ =
      shards && shards != this && (decode_ || shards->decode_);
  return may_differ ? "two TarDatasets are given, at least one with a `decode` "
                      "function, and functions cannot be compared; expected "
                      "one TarDataset. "
                      "Give all shards to one TarDataset, whose `decode` can "
                      "read BatchContext::training"
                    : "";
}

}  // namespace tern
