#include "tern/data/download/fetch_weights.h"

#include <utility>

#include "tern/data/download/byte_progress.h"
#include "tern/data/download/cache_folder.h"
#include "tern/data/download/download.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

// The required beginning of a file's SHA-256.
struct ExpectedHash {
  std::string digits;  // empty: unknown
  fs::path source;     // list with all digits; empty: the file name
};

ExpectedHash expected_hash(const fs::path& file) {
  std::string sum = sum_beside(file);
  if (sum.empty()) return {sha256_in_name(file), {}};
  return {std::move(sum), sum_file(file)};
}

fs::path given_folder(const FetchWeightsOptions& options) {
  fs::path folder = options.folder;
  if (folder.empty()) folder = environment("TERN_WEIGHTS");
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    throw DataError(
        folder,
        "is not a folder; expected the folder with weight files, since "
        "TERN_WEIGHTS or FetchWeightsOptions::folder names it.");
  }
  return folder;
}

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error);
}

}  // namespace

std::string verify_weights(const fs::path& file) {
  const ExpectedHash expected = expected_hash(file);
  std::string hash = sha256_file(file);
  if (!hash.starts_with(expected.digits)) {
    const std::string source =
        expected.source.empty() ? "its name" : expected.source.string();
    throw DataError(
        file,
        "has the SHA-256 " + hash + "; " + source +
            " expects it to begin with " + expected.digits +
            ". The file is damaged or not the expected one. Remove it and "
            "download it again.");
  }
  return hash;
}

fs::path download_weights(
    const PublishedWeights& weights,
    const fs::path& folder,
    const FetchWeightsOptions& options) {
  fs::path file = folder / weights.file_name();
  const Sink sink = options.sink.or_terminal();
  const ExpectedHash expected = expected_hash(file);
  if (is_there(file)) {
    if (sha256_file(file).starts_with(expected.digits)) return file;
    sink->warning(file.string() + " is damaged, so it is downloaded again.");
  }
  sink->line("downloading " + weights.url);
  try {
    download(
        weights.url,
        file,
        {.sha256 = expected.digits,
         .progress = show_bytes(sink, "MB of weights")});
  } catch (const DownloadError& error) {
    const bool is_replaced = !expected.source.empty() &&
                             error.kind() == DownloadError::Kind::wrong_content;
    throw error.or_else(
        is_replaced
            ? "remove " + expected.source.string() +
                  " if its authors have replaced the file"
            : "set TERN_WEIGHTS to a folder that holds " + weights.file_name());
  }
  if (expected.source.empty()) {
    AtomicFile list(sum_file(file));
    list.write(to_text({{weights.file_name(), sha256_file(file)}}));
    list.commit();
  }
  return file;
}

fs::path weights_path(
    const PublishedWeights& weights,
    const FetchWeightsOptions& options) {
  const fs::path folder = given_folder(options);
  return (folder.empty() ? cache_folder(options.cache) / "weights" : folder) /
         weights.file_name();
}

fs::path fetch_weights(
    const PublishedWeights& weights,
    const FetchWeightsOptions& options) {
  fs::path file = weights_path(weights, options);
  if (given_folder(options).empty()) {
    return download_weights(weights, file.parent_path(), options);
  }
  if (!is_there(file)) {
    throw DataError(
        file,
        "there is no such file, and nothing is downloaded while TERN_WEIGHTS "
        "or FetchWeightsOptions::folder names a folder. Download " +
            weights.url + " into that folder, as `tern-weights fetch` does.");
  }
  verify_weights(file);
  return file;
}

}  // namespace tern
