#include "tern/data/download/untar_data.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "tern/data/download/byte_progress.h"
#include "tern/data/download/cache_folder.h"
#include "tern/data/download/download.h"
#include "tern/data/formats/archives/gzip.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

fs::path data_folder(const UntarOptions& options) {
  fs::path folder = options.data;
  const char* const named = std::getenv("TERN_DATA");
  if (folder.empty() && named != nullptr) folder = named;
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    throw DataError(
        folder,
        "is not a folder; expected the folder with datasets, since TERN_DATA "
        "or UntarOptions::data names it.");
  }
  return folder;
}

bool has_content(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && !fs::is_empty(folder, error);
}

// Returns the archives of a dataset in `folder`; empty unless all exist.
std::vector<fs::path> archives_in(
    const fs::path& folder,
    const DatasetUrl& dataset) {
  std::vector<fs::path> archives;
  for (const DatasetFile& file : dataset.files) {
    const fs::path path = folder / file.name();
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return {};
    archives.push_back(path);
  }
  return archives;
}

// A description of the archives that is cheap to compute and changes with them.
std::string identity(const std::vector<fs::path>& archives) {
  std::string text;
  for (const fs::path& path : archives) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) throw IoError(path, "inspect", errno);
    text += "archive " + path.filename().string() + ", " +
            std::to_string(info.st_size) + " bytes, changed at " +
            std::to_string(info.st_mtim.tv_sec) + "." +
            std::to_string(info.st_mtim.tv_nsec) + "\n";
  }
  return text;
}

bool is_tar(const std::string& name) {
  return name.ends_with(".tar") || name.ends_with(".tgz") ||
         name.ends_with(".tar.gz");
}

void inflate_file(const fs::path& source, const fs::path& target) {
  GzipReader reader{ByteFile(source)};
  const FileHandle file =
      open_file(target, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  std::vector<uint8_t> buffer(size_t{1} << 18);
  while (const size_t n = reader.read(buffer)) {
    write_all(file, std::span(buffer).first(n), target);
  }
}

void unpack(const fs::path& archive, const fs::path& folder, const Sink& sink) {
  const std::string name = archive.filename().string();
  if (is_tar(name)) {
    extract_tar(
        archive,
        folder,
        {.progress = show_bytes(sink, "MB extracted")});
  } else if (name.ends_with(".gz")) {
    inflate_file(archive, folder / name.substr(0, name.size() - 3));
  } else {
    fs::copy_file(archive, folder / name);
  }
}

// A dataset in a folder that is being filled.
struct Filled {
  std::string source;  // for the marker
  fs::path root;
};

// Finds the dataset in the content of its archives: most contain only a single
// folder.
fs::path root_of(const fs::path& folder) {
  std::vector<fs::path> held;
  for (const auto& entry : fs::directory_iterator(folder)) {
    held.push_back(entry.path());
  }
  return held.size() == 1 && fs::is_directory(held[0]) ? held[0] : folder;
}

class Untar {
 public:
  Untar(const DatasetUrl& dataset, const UntarOptions& options)
      : dataset_(dataset),
        options_(options),
        sink_(options.sink.or_terminal()),
        name_(dataset.name),
        data_(data_folder(options)),
        cache_(cache_folder(options.cache)) {
    if (name_.empty() || dataset.files.empty()) {
      throw DataError(
          "",
          "[untar_data] the dataset has no name or no files; expected "
          "one such as urls::mnist_sample.");
    }
  }

  fs::path find() {
    if (!data_.empty()) {
      for (const fs::path& folder : {data_, data_ / name_}) {
        const auto archives = archives_in(folder, dataset_);
        if (!archives.empty()) return from_archives(archives);
      }
      if (has_content(data_ / name_)) return data_ / name_;
    }
    fs::path target = cache_ / name_;
    if (is_whole_data(target)) return target;
    try {
      return make(target, "", [&](const fs::path& folder) {
        return download_into(folder);
      });
    } catch (const DownloadError& error) {
      throw error.or_else(advice());
    }
  }

 private:
  fs::path from_archives(const std::vector<fs::path>& archives) {
    const std::string source = identity(archives);
    fs::path target = cache_ / name_;
    if (is_whole_data(target, source)) return target;
    if (has_content(target)) {
      // Another program may be reading data from another source there, so it is
      // kept.
      target += "-";
      target += sha256(as_bytes(source)).substr(0, 8);
      if (is_whole_data(target, source)) return target;
    }
    return make(target, source, [&](const fs::path& folder) {
      for (const fs::path& archive : archives) {
        unpack(archive, folder, sink_);
      }
      return Filled{source, root_of(folder)};
    });
  }

  Filled download_into(const fs::path& folder) {
    std::string source;
    for (const DatasetFile& file : dataset_.files) {
      const std::string url(file.url);
      const auto refuse = [&](const std::string& reason) {
        throw DownloadError(DownloadError::Kind::refused, url, reason);
      };
      if (!options_.allow_download) {
        refuse(
            "is not downloaded, since UntarOptions::allow_download is false. "
            "Set it to true");
      }
      if (file.sha256.empty() || file.bytes <= 0) {
        refuse("is not downloaded, since its size and SHA-256 are unknown");
      }
      const fs::path archive = cache_ / "archives" / file.name();
      sink_->line(name_ + ": downloading " + url);
      download(
          url,
          archive,
          {.sha256 = std::string(file.sha256),
           .bytes = file.bytes,
           .progress = show_bytes(sink_, "MB downloaded")});
      unpack(archive, folder, sink_);
      source +=
          "downloaded " + url + ", SHA-256 " + std::string(file.sha256) + "\n";
    }
    for (const DatasetFile& file : dataset_.files) {
      std::error_code ignored;
      fs::remove(cache_ / "archives" / file.name(), ignored);
    }
    return {source, root_of(folder)};
  }

  // Calls `fill` on a new folder and renames it to `target`.
  template <class Fill>
  fs::path make(const fs::path& target, const std::string& source, Fill fill) {
    make_folders(target.parent_path());
    // `+=`, because GCC 12 warns about `"." + string` (its bug 105651).
    std::string lock_name = ".";
    lock_name += target.filename().string() + ".lock";
    // Held while the dataset is created, so that it is created only once. On a
    // file system without locks each process creates it, which is slower but
    // harmless.
    const FileHandle lock = open_file(
        target.parent_path() / lock_name,
        O_RDWR | O_CREAT | O_NOFOLLOW);
    const bool is_locked = lock_file(lock);
    if (is_whole_data(target, source)) return target;  // created while waiting
    if (is_locked) StagingFolder::remove_leftovers(target);
    StagingFolder staging(target);
    const Filled filled = fill(staging.path());
    write_source_marker(filled.root, filled.source);
    if (has_content(target) && !is_whole_data(target)) set_aside(target);
    staging.publish(filled.root);
    return target;
  }

  // The folder may contain the user's own files, so it is kept.
  void set_aside(const fs::path& folder) const {
    fs::path aside = folder;
    for (int i = 1; fs::exists(aside); ++i) {
      aside = folder.string() + ".incomplete-" + std::to_string(i);
    }
    fs::rename(folder, aside);
    sink_->warning(
        name_ + ": " + folder.string() +
        " has lost some of its files and is extracted again; the remaining "
        "files are in " +
        aside.string());
  }

  std::string advice() const {
    const size_t others = dataset_.files.size() - 1;
    return "set TERN_DATA to a folder that holds " +
           std::string(dataset_.files[0].name()) +
           (others > 0 ? " and the " + std::to_string(others) + " others" : "");
  }

  const DatasetUrl& dataset_;
  const UntarOptions& options_;
  Sink sink_;
  std::string name_;
  fs::path data_, cache_;
};

}  // namespace

fs::path untar_data(const DatasetUrl& dataset, const UntarOptions& options) {
  return Untar(dataset, options).find();
}

}  // namespace tern
