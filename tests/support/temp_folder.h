#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "tern/data/formats/file_io.h"

namespace tern {

/// A new, empty folder for one test, removed with its content at the end.
///
///   TempFolder temp;
///   write_file(temp / "a.txt", "hello");
class TempFolder {
 public:
  TempFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tern-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("cannot create " + pattern);
    }
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const {
    return path_ / name;
  }

  /// Number of files and folders in it, at any depth.
  int64_t entries() const {
    const std::filesystem::recursive_directory_iterator begin(path_), end;
    return std::distance(begin, end);
  }

 private:
  std::filesystem::path path_;
};

/// All files in a folder, at any depth, with their bytes.
inline std::map<std::filesystem::path, std::vector<uint8_t>> files_of(
    const std::filesystem::path& folder) {
  std::map<std::filesystem::path, std::vector<uint8_t>> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path()] = read_file(entry.path());
  }
  return files;
}

}  // namespace tern
