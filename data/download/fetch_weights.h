#pragma once

#include <filesystem>
#include <string>

#include "tern/data/support/sink.h"

namespace tern {

/// A file of weights that its authors publish.
struct PublishedWeights {
  /// https. The part after the last slash is the file's name. Hexadecimal
  /// digits at the end of that name, as in "resnet18-f37072fd.pth", are the
  /// first of its SHA-256.
  std::string url;

  std::string file_name() const { return url.substr(url.rfind('/') + 1); }
};

struct FetchWeightsOptions {
  /// Folder with files of weights, for a machine without a network: nothing is
  /// downloaded then. Empty: TERN_WEIGHTS from the environment, or none.
  std::filesystem::path folder = {};
  /// Folder where downloads are kept, in "weights". Empty: TERN_CACHE, else
  /// XDG_CACHE_HOME/tern/data, else ~/.cache/tern/data.
  std::filesystem::path cache = {};
  /// Receives messages and the progress of the download; empty: `terminal()`.
  /// What its `progress` throws stops the download, and a later call resumes
  /// it.
  Sink sink = {};
};

/// Returns the path of published weights: in the folder that the options or
/// TERN_WEIGHTS name, else in the cache, where they are downloaded to once,
/// resumed if interrupted. Each call verifies the file's SHA-256.
///
///   auto file = fetch_weights({"https://.../resnet18-f37072fd.pth"});
///   // ~/.cache/tern/data/weights/resnet18-f37072fd.pth
///
/// Where the name has only the first digits, the first download writes all of
/// them into a file beside it, `FILE.sha256`, which `sha256sum -c` reads; a
/// later download has to agree.
///
/// \throws DataError if the folder lacks the file or its SHA-256 is wrong;
///         DownloadError as `download`; IoError. They say what to do.
std::filesystem::path fetch_weights(
    const PublishedWeights& weights,
    const FetchWeightsOptions& options = {});

/// Downloads published weights into a folder, unless it has them already.
/// \return  The file's path.
/// \throws as fetch_weights.
std::filesystem::path download_weights(
    const PublishedWeights& weights,
    const std::filesystem::path& folder,
    const FetchWeightsOptions& options = {});

/// Where `fetch_weights` looks: the folder or the cache. The file need not be
/// there.
std::filesystem::path weights_path(
    const PublishedWeights& weights,
    const FetchWeightsOptions& options = {});

/// Verifies a file against what its name and `FILE.sha256` say.
/// \return  Its SHA-256.
/// \throws DataError if it differs, IoError if the file cannot be read.
std::string verify_weights(const std::filesystem::path& file);

}  // namespace tern
