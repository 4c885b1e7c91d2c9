#pragma once

#include <filesystem>
#include <string>

#include "tern/data/support/sink.h"

namespace tern {

/// A file of pretrained weights published by its authors.
struct PublishedWeights {
  /// An https URL. The part after the last slash is the file name. Hexadecimal
  /// digits at the end of that name, as in "resnet18-f37072fd.pth", are the
  /// first digits of its SHA-256.
  std::string url;

  std::string file_name() const { return url.substr(url.rfind('/') + 1); }
};

struct FetchWeightsOptions {
  /// Folder with weight files, for a machine without internet access; if set,
  /// nothing is downloaded. Empty: TERN_WEIGHTS from the environment, or none.
  std::filesystem::path folder = {};
  /// Folder for downloads, which go to its subfolder "weights". Empty:
  /// TERN_CACHE if set, else XDG_CACHE_HOME/tern/data if set, else
  /// ~/.cache/tern/data.
  std::filesystem::path cache = {};
  /// Receives messages and download progress; empty: `terminal()`. An exception
  /// from its `progress` stops the download; a later call resumes it.
  Sink sink = {};
};

/// Returns the path of pretrained weights: in the folder given by the options
/// or TERN_WEIGHTS, or else in the cache. Files missing from the cache are
/// downloaded, resuming an interrupted download. Each call verifies the file's
/// SHA-256.
///
///   auto file = fetch_weights({"https://.../resnet18-f37072fd.pth"});
///   // ~/.cache/tern/data/weights/resnet18-f37072fd.pth
///
/// If the name has only the first digits, the first download writes all digits
/// to `FILE.sha256` beside the file, in the format of `sha256sum -c`; later
/// downloads must match it.
///
/// \throws DataError if the folder lacks the file or its SHA-256 is wrong; the
///         errors of `download`; IoError. The messages say what to do.
std::filesystem::path fetch_weights(
    const PublishedWeights& weights,
    const FetchWeightsOptions& options = {});

/// Downloads pretrained weights into a folder, unless the folder already
/// contains them.
/// \return The file's path.
/// \throws the errors of `fetch_weights`.
std::filesystem::path download_weights(
    const PublishedWeights& weights,
    const std::filesystem::path& folder,
    const FetchWeightsOptions& options = {});

/// Returns the path that `fetch_weights` uses, in the folder or the cache. The
/// file need not exist.
std::filesystem::path weights_path(
    const PublishedWeights& weights,
    const FetchWeightsOptions& options = {});

/// Verifies a file against the digits in its name and `FILE.sha256`.
/// \return Its SHA-256.
/// \throws DataError if it differs, IoError if the file cannot be read.
std::string verify_weights(const std::filesystem::path& file);

}  // namespace tern
