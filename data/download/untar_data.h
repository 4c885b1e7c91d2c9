#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "tern/data/support/sink.h"

namespace tern {

/// A file of a dataset. `.tar`, `.tgz` and `.tar.gz` files are extracted, other
/// `.gz` files are decompressed, and all others are kept unchanged.
struct DatasetFile {
  /// An https URL. The part after the last slash is the file name.
  std::string_view url;
  /// Size in bytes and SHA-256 of the file. Both are required, since every
  /// download is verified.
  int64_t bytes = 0;
  std::string_view sha256;

  constexpr std::string_view name() const {
    return url.substr(url.rfind('/') + 1);
  }
};

/// A dataset for `untar_data`.
struct DatasetUrl {
  /// Name of its folder.
  std::string_view name;
  std::span<const DatasetFile> files;
};

namespace urls {

namespace detail {

// Size and SHA-256 from FastAI.jl's registry of the same URLs; fastai's
// checks.txt has the same size.
inline constexpr DatasetFile kMnistSample[] = {
    {"https://s3.amazonaws.com/fast-ai-sample/mnist_sample.tgz",
     3214948,
     "b373a14f282298aeba0f7dd56b7cdb6c2401063d4f118c39c54982907760bd38"},
};

// torchvision's mirror, with the checksums of the original files.
inline constexpr DatasetFile kMnist[] = {
    {"https://ossci-datasets.s3.amazonaws.com/mnist/"
     "train-images-idx3-ubyte.gz",
     9912422,
     "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
    {"https://ossci-datasets.s3.amazonaws.com/mnist/"
     "train-labels-idx1-ubyte.gz",
     28881,
     "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
    {"https://ossci-datasets.s3.amazonaws.com/mnist/"
     "t10k-images-idx3-ubyte.gz",
     1648877,
     "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
    {"https://ossci-datasets.s3.amazonaws.com/mnist/"
     "t10k-labels-idx1-ubyte.gz",
     4542,
     "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
};

}  // namespace detail

/// MNIST's digits 3 and 7 as packed by fastai: `{train,valid}/{3,7}/*.png`,
/// 28x28 gray, 12,396 + 2,038 images; `labels.csv`.
inline constexpr DatasetUrl mnist_sample{"mnist_sample", detail::kMnistSample};

/// The whole MNIST in its own format, for `mnist_dataset`: 60,000 + 10,000
/// images.
inline constexpr DatasetUrl mnist{"mnist", detail::kMnist};

}  // namespace urls

struct UntarOptions {
  /// Folder with existing data; read-only. Empty: TERN_DATA from the
  /// environment, or none.
  std::filesystem::path data = {};
  /// Folder where datasets are stored. Empty: TERN_CACHE if set, else
  /// XDG_CACHE_HOME/tern/data if set, else ~/.cache/tern/data.
  std::filesystem::path cache = {};
  /// Downloads a dataset that is in neither folder.
  bool allow_download = true;
  /// Receives messages, and the progress of download and extraction; empty:
  /// `terminal()`. An exception from its `progress` stops the download; a later
  /// call resumes it.
  Sink sink = {};
};

/// Returns the folder of a dataset, downloaded and extracted if necessary, from
/// the first of these places that has it:
///
///   1. `data`: its folder, or its archives in `data` or in its folder there,
///      extracted into the cache. Their checksums are not verified.
///   2. `cache`, which takes 0.03 ms.
///   3. Its URLs: downloaded, resumed if interrupted, verified by SHA-256.
///
/// A folder appears in the cache only when it is complete. Safe for several
/// processes.
///
///   auto path = untar_data(urls::mnist_sample);   // .../mnist_sample
///
/// \throws DownloadError, a DataError, if the dataset is in neither folder and
///         cannot be downloaded; it names the URL, the expected file and
///         TERN_DATA. DataError if `data` is not a folder or an archive is
///         damaged; IoError.
std::filesystem::path untar_data(
    const DatasetUrl& dataset,
    const UntarOptions& options = {});

}  // namespace tern
