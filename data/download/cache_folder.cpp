#include "tern/data/download/cache_folder.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

constexpr char kName[] = ".tern-source";
constexpr char kTitle[] = "tern dataset 1\n";
constexpr char kBoot[] = "boot ";
constexpr char kHolds[] = "holds ";

// Returns an identifier that changes at each boot of the machine; empty if
// there is none.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Returns "3 files, 1200 bytes" for `path`, a folder or a file.
std::string content_of(const fs::path& path) {
  int64_t files = 0;
  uintmax_t bytes = 0;
  const auto count = [&](const fs::directory_entry& entry) {
    if (!entry.is_regular_file()) return;
    ++files;
    bytes += entry.file_size();
  };
  if (const fs::directory_entry entry(path); entry.is_directory()) {
    for (const auto& inner : fs::recursive_directory_iterator(path)) {
      count(inner);
    }
  } else {
    count(entry);
  }
  return std::to_string(files) + " files, " + std::to_string(bytes) + " bytes";
}

// Returns "holds 3 files, 1200 bytes in train" for each name at the top level.
std::string holdings(const fs::path& folder) {
  std::string text;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kName)) continue;
    text += kHolds + content_of(entry.path()) + " in " + name + "\n";
  }
  return text;
}

bool still_holds(const fs::path& folder, const std::string& line, bool count) {
  const size_t in = line.find(" in ");
  if (in == line.npos) return false;
  const fs::path path = folder / line.substr(in + 4);
  std::error_code error;
  if (!count) return fs::exists(path, error);
  const size_t start = sizeof kHolds - 1;
  try {
    return content_of(path) == line.substr(start, in - start);
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

}  // namespace

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

fs::path cache_folder(const fs::path& given) {
  if (!given.empty()) return given;
  if (const auto path = environment("TERN_CACHE"); !path.empty()) return path;
  if (const auto path = environment("XDG_CACHE_HOME"); !path.empty()) {
    return fs::path(path) / "tern/data";
  }
  if (const auto path = environment("HOME"); !path.empty()) {
    return fs::path(path) / ".cache/tern/data";
  }
  throw DataError(
      "",
      "[cache_folder] there is no folder for downloaded data, since neither "
      "TERN_CACHE nor HOME is set; set TERN_CACHE to a folder.");
}

void write_source_marker(const fs::path& folder, const std::string& source) {
  write_file(
      folder / kName,
      kTitle + source + holdings(folder) + kBoot + boot_id() + "\n");
}

bool is_whole_data(const fs::path& folder, const std::string& source) {
  std::error_code error;
  if (!fs::exists(folder / kName, error)) {
    return fs::is_directory(folder, error) && !fs::is_empty(folder, error);
  }
  std::string marker;
  try {
    const auto bytes = read_file(folder / kName, 1 << 20);
    marker.assign(bytes.begin(), bytes.end());
  } catch (const DataError&) {
    return false;
  }
  if (!marker.starts_with(kTitle + source)) return false;

  const size_t boot = marker.rfind(std::string("\n") + kBoot);
  if (boot == marker.npos) return false;
  const std::string now = kBoot + boot_id() + "\n";
  const bool is_new_start = marker.substr(boot + 1) != now;
  std::istringstream lines(marker.substr(0, boot));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kHolds) && !still_holds(folder, line, is_new_start)) {
      return false;
    }
  }
  if (is_new_start) {
    try {
      // Written atomically, so that another process never reads half a marker.
      AtomicFile file(folder / kName);
      file.write(marker.substr(0, boot + 1) + now);
      file.commit(/*durable=*/false);
    } catch (const std::exception&) {
      // If the cache is read-only, the files are counted at each call.
    }
  }
  return true;
}

}  // namespace tern
