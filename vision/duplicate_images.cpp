#include "tern/vision/duplicate_images.h"

#include <cerrno>
#include <map>
#include <set>
#include <sys/stat.h>
#include <utility>

#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/vision/for_each_image.h"

namespace tern {
namespace {

struct FileIdentity {
  std::pair<dev_t, ino_t> file;
  int64_t size = 0;
  std::string hash;  // where it was needed
};

std::vector<FileIdentity> identities_of(const std::vector<std::string>& paths) {
  std::vector<FileIdentity> files;
  for (const std::string& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      throw IoError(path, "look at the image", errno);
    }
    files.push_back({{info.st_dev, info.st_ino}, info.st_size, {}});
  }
  return files;
}

std::set<int64_t> sizes_of(const std::vector<FileIdentity>& files) {
  std::set<int64_t> sizes;
  for (const FileIdentity& file : files) sizes.insert(file.size);
  return sizes;
}

void hash_those_of(
    const std::set<int64_t>& sizes,
    const std::vector<std::string>& paths,
    std::vector<FileIdentity>& files) {
  for_each_image(
      static_cast<int64_t>(paths.size()),
      [&](int64_t i) {
        const auto index = static_cast<size_t>(i);
        if (sizes.count(files[index].size) != 0) {
          files[index].hash = sha256_file(paths[index]);
        }
      },
      "compare");
}

}  // namespace

std::vector<DuplicateImage> duplicate_images(
    const std::vector<std::string>& train,
    const std::vector<std::string>& valid) {
  std::vector<FileIdentity> to_learn = identities_of(train);
  std::vector<FileIdentity> to_check = identities_of(valid);
  hash_those_of(sizes_of(to_check), train, to_learn);
  hash_those_of(sizes_of(to_learn), valid, to_check);
  std::map<std::string, size_t> by_hash;
  std::set<std::pair<dev_t, ino_t>> known;
  for (size_t i = 0; i < to_learn.size(); ++i) {
    known.insert(to_learn[i].file);
    if (!to_learn[i].hash.empty()) by_hash.emplace(to_learn[i].hash, i);
  }
  std::vector<DuplicateImage> duplicates;
  for (size_t i = 0; i < to_check.size(); ++i) {
    const auto same = by_hash.find(to_check[i].hash);
    if (same != by_hash.end()) {
      duplicates.push_back(
          {valid[i], train[same->second], known.count(to_check[i].file) != 0});
    }
  }
  return duplicates;
}

}  // namespace tern
