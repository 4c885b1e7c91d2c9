#include "tern/data/formats/staging_folder.h"

#include <cerrno>
#include <cstdio>
#include <random>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

std::string prefix(const fs::path& target) {
  std::string prefix = ".";  // `+=`, for GCC 12 warns of `"." + string`
  prefix += target.filename().string() + ".tmp-";
  return prefix;
}

std::string random_hex() {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return text;
}

}  // namespace

StagingFolder::StagingFolder(fs::path target) : target_(std::move(target)) {
  const fs::path parent = fs::absolute(target_).parent_path();
  make_folders(parent);
  do {
    path_ = parent / (prefix(target_) + random_hex());
  } while (::mkdir(path_.c_str(), 0755) != 0 && errno == EEXIST);
  if (!fs::is_directory(path_)) {
    throw IoError(path_, "create this folder", errno);
  }
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

bool StagingFolder::publish() {
  return publish(path_);
}

bool StagingFolder::publish(const fs::path& content) {
  if (::rename(content.c_str(), target_.c_str()) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY) return false;
    throw IoError(target_, "rename the finished folder to this name", errno);
  }
  return true;
}

void StagingFolder::remove_leftovers(const fs::path& target) {
  std::error_code error;
  const fs::path parent = fs::absolute(target).parent_path();
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (entry.path().filename().string().starts_with(prefix(target))) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace tern
