#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tern/data/formats/error.h"

namespace tern {

/// A file could not be downloaded.
class DownloadError final : public DataError {
 public:
  enum class Kind {
    /// No response: no network, an unknown host, a broken connection.
    unreachable,
    /// The server rejected the request or has no such file.
    refused,
    /// The content differs from the requested file.
    wrong_content,
  };

  DownloadError(Kind kind, const std::string& url, const std::string& reason)
      : DataError(url, reason), kind_(kind) {}
  Kind kind() const { return kind_; }

  /// Returns the same error with "; or " and further advice appended.
  DownloadError or_else(const std::string& advice) const;

 private:
  Kind kind_;
};

struct DownloadOptions {
  // ---- The expected file ----

  /// Expected SHA-256: all 64 lower-case digits, or at least the first 8.
  /// Empty: the content is not checked, and an interrupted download starts
  /// over.
  std::string sha256 = {};
  /// Expected size in bytes; 0: unknown.
  int64_t bytes = 0;

  // ---- The transfer ----

  /// Called with the bytes downloaded and their total, 0 if unknown. An
  /// exception stops the download; a later call resumes it.
  std::function<void(int64_t done, int64_t total)> progress = nullptr;
  /// Number of retries after a transient failure.
  int retries = 3;
  /// Pause before the first retry; doubles each time.
  double retry_seconds = 0.5;
};

/// Downloads `url` to `file`, which appears only when it is complete and
/// verified. Until then the data is in `file` + ".part", from which the next
/// call resumes. Does nothing if `file` already has the expected SHA-256.
///
/// Accepts https, file, and http on localhost; redirects must lead to https. An
/// attempt fails after 20 seconds without a connection or data. Reads proxies
/// from the environment (`https_proxy`). Safe for several threads and
/// processes: one downloads, the others wait. Installs no signal handler.
///
/// \throws DownloadError saying what failed and what to do; IoError if the
///         file cannot be written.
void download(
    const std::string& url,
    const std::filesystem::path& file,
    const DownloadOptions& options = {});

}  // namespace tern
