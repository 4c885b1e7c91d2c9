#include "tern/data/shard_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tern/data/cache_folder.h"
#include "tern/data/download.h"
#include "tern/data/formats/sha256.h"

namespace tern {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxShards = 1'000'000;

// No error that anybody hears of.
struct GivenUp {};

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_good = error == std::errc() && end == text.data() + text.size();
  return is_good && value >= 0 ? std::optional(value) : std::nullopt;
}

// "000..009", with as many digits as the first number has; or "train,extra".
std::vector<std::string> choices(
    const std::string& inside,
    const std::string& pattern) {
  std::vector<std::string> result;
  if (const size_t dots = inside.find(".."); dots != inside.npos) {
    const std::string_view text = inside;
    const auto first = whole_number(text.substr(0, dots));
    const auto last = whole_number(text.substr(dots + 2));
    TORCH_CHECK_VALUE(
        first && last && *first <= *last && *last - *first < kMaxShards,
        fmt::format(
            "[expand_shards] {{{}}} in {} is no range; expected two numbers, "
            "such as {{000..009}}.",
            inside,
            pattern));
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
    TORCH_CHECK_VALUE(
        static_cast<int64_t>(shards.size()) < kMaxShards,
        fmt::format(
            "[expand_shards] {} and those before it are more than {} shards; "
            "expected fewer, larger ones.",
            pattern,
            kMaxShards));
    shards.push_back(done + rest);
    return;
  }
  const size_t close = rest.find('}', open);
  TORCH_CHECK_VALUE(
      close != rest.npos,
      fmt::format(
          "[expand_shards] {} has a brace without an end; expected a range "
          "such as {{000..009}}.",
          pattern));
  const std::string inside = rest.substr(open + 1, close - open - 1);
  for (const std::string& choice : choices(inside, pattern)) {
    expand(
        done + rest.substr(0, open) + choice,
        rest.substr(close + 1),
        pattern,
        shards);
  }
}

// Shards of one name may come from several places.
fs::path kept_as(const std::string& url, const std::string& name) {
  const std::span bytes(
      reinterpret_cast<const uint8_t*>(url.data()),
      url.size());
  return fs::path("shards") / sha256(bytes).substr(0, 16) / name;
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
      "[expand_shards] there is no shard; expected patterns such as "
      "\"train-{000..009}.tar\".");
  return shards;
}

fs::path fetch_shard(
    const std::string& shard,
    const ShardSetOptions& options,
    const std::atomic<bool>* is_given_up) {
  if (shard.find("://") == shard.npos) return shard;
  std::string name = shard.substr(shard.rfind('/') + 1);
  name = name.substr(0, name.find_first_of("?#"));
  const fs::path file =
      cache_folder(options.cache) / kept_as(shard, name.empty() ? "tar" : name);
  DownloadOptions fetching;
  fetching.retries = options.retries;
  fetching.progress = [is_given_up](int64_t, int64_t) {
    if (is_given_up != nullptr && *is_given_up) throw GivenUp();
  };
  if (!options.checksums.empty()) {
    const auto sum = options.checksums.find(name);
    if (sum == options.checksums.end()) {
      throw DataError(
          shard,
          "is not in the list of checksums; expected a line for " + name +
              ". Fetch the list that belongs to these shards");
    }
    fetching.sha256 = sum->second;
  }
  std::error_code ignored;
  const bool is_kept = fs::is_regular_file(file, ignored);
  if (!is_kept || !fetching.sha256.empty()) download(shard, file, fetching);
  return file;
}

}  // namespace tern
