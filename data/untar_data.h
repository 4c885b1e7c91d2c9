#pragma once

#include <filesystem>

#include "tern/data/formats/tar_extract.h"
#include "tern/data/message.h"
#include "tern/data/urls.h"

namespace tern {

struct UntarOptions {
  /// Folder with data that is there already; only read. Empty: TERN_DATA from
  /// the environment, or none.
  std::filesystem::path data = {};
  /// Folder in which data sets are kept. Empty: TERN_CACHE, else
  /// XDG_CACHE_HOME/tern/data, else ~/.cache/tern/data.
  std::filesystem::path cache = {};
  /// Whether a data set that is in neither folder is downloaded.
  bool allow_download = true;
  /// Takes what the user should know. Null: `tern::message`.
  MessageHandler say = nullptr;
  /// Told the bytes of a download or of an extraction, and their total.
  ByteProgress progress = nullptr;
};

/// The folder of a data set, fetched and extracted if it is not there yet.
/// It comes from the first of these places that has it:
///
///   1. `data`: its folder as it is, or its archives, in `data` itself or in
///      its folder there, extracted into the cache. They are trusted: their
///      checksums are not compared with those of the download.
///   2. `cache`, at once: in 0.03 ms.
///   3. Its URLs: downloaded, continued if interrupted, checked by SHA-256.
///
/// A folder appears in the cache complete or not at all; several processes may
/// ask for the same one.
///
///   auto path = untar_data(urls::mnist_sample);   // .../mnist_sample
///
/// \throws DownloadError, a DataError, if the data set is in neither folder and
///         cannot be downloaded; it names the URL, the file that was looked for
///         and TERN_DATA. DataError if `data` is no folder or an archive is
///         damaged; IoError.
std::filesystem::path untar_data(
    const DatasetUrl& dataset,
    const UntarOptions& options = {});

}  // namespace tern
