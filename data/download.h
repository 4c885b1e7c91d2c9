#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tern/data/formats/error.h"

namespace tern {

/// A file could not be fetched.
class DownloadError final : public DataError {
 public:
  enum class Kind {
    /// No answer: no network, an unknown host, a broken connection.
    unreachable,
    /// The server has no such file or does not give it.
    refused,
    /// What came is not the file that was asked for.
    wrong_content,
  };

  DownloadError(Kind kind, const std::string& url, const std::string& reason)
      : DataError(url, reason), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct DownloadOptions {
  // ---- What must come ----

  /// SHA-256 that the file must have, 64 lower-case digits. Empty: the content
  /// is not checked, and an earlier, interrupted download is not continued.
  std::string sha256 = {};
  /// Size that the file must have, in bytes; 0: unknown.
  int64_t bytes = 0;

  // ---- How it comes ----

  /// Told the bytes that are there and their total, 0 while that is unknown.
  /// What it throws stops the download, which a later call continues.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
  /// Further attempts after a failure that may pass by itself.
  int retries = 3;
  /// Pause before the first further attempt; each next one is twice as long.
  double retry_seconds = 0.5;
  /// Longest wait for a connection, and for the next byte on it.
  double timeout_seconds = 20;
};

/// Fetches `url` into `file`, which appears complete and checked or not at
/// all. Until then the bytes gather in `file` + ".part", which the next call
/// continues. If `file` has the wanted SHA-256 already, nothing is fetched.
///
/// Accepted are https, file, and http on this machine alone; a redirect leads
/// to https only. Proxies are taken from the environment (`https_proxy`).
/// Several threads and processes may ask for the same file: one fetches it,
/// the others wait. Installs no signal handler.
///
/// \throws DownloadError saying what failed and what to do; IoError if the
///         file cannot be written.
void download(
    const std::string& url,
    const std::filesystem::path& file,
    const DownloadOptions& options = {});

}  // namespace tern
