#include "tern/data/formats/staging_folder.h"

#include <cerrno>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {

namespace fs = std::filesystem;

StagingFolder::StagingFolder(fs::path target) : target_(std::move(target)) {
  make_folders(fs::absolute(target_).parent_path());
  int error = EEXIST;
  while (error == EEXIST) {
    path_ = temp_name_beside(target_);
    error = ::mkdir(path_.c_str(), 0755) == 0 ? 0 : errno;
  }
  if (error != 0) throw IoError(path_, "create this folder", error);
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
    if (entry.path().filename().string().starts_with(temp_prefix(target))) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace tern
