#include "tern/vision/decode/bad_images.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "tern/data/error_text.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/sha256sums.h"
#include "tern/vision/decode/for_each_image.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/image_folder.h"

namespace tern {

void BadImageList::add(
    int64_t index,
    BadImage image,
    int64_t total,
    double max_fraction) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = images_.emplace(index, std::move(image));
  const auto count = static_cast<double>(images_.size());
  if (count > max_fraction * static_cast<double>(total)) {
    std::string list;
    constexpr size_t kNamed = 10;
    size_t named = 0;
    for (const auto& [unused, bad] : images_) {
      if (named++ < kNamed) {
        list += "\n  " + bad.reason;
      }
    }
    throw DataError(
        at->second.path,
        fmt::format(
            "is one of {} bad images among {}, more than the share of {} that "
            "may be skipped. Repair or remove them (verify_images lists all), "
            "or raise max_fraction.{}{}",
            images_.size(),
            total,
            max_fraction,
            list,
            named > kNamed ? "\n  ..." : ""));
  }
  if (is_new) {
    message(at->second.reason + " Skipped.");
  }
}

std::vector<BadImage> BadImageList::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<BadImage> images;
  for (const auto& [unused, image] : images_) {
    images.push_back(image);
  }
  return images;
}

ImageReport verify_images(
    const std::vector<std::string>& paths,
    const VerifyImagesOptions& options) {
  std::vector<std::string> reasons(paths.size());
  for_each_image(
      static_cast<int64_t>(paths.size()),
      [&](int64_t index) {
        static thread_local ScratchBuffer file, pixels;
        const std::string& path = paths[static_cast<size_t>(index)];
        try {
          const EncodedImage image(
              read_image_file(path, file),
              path,
              options.decode);
          const ImageSize size = image.size();
          image.decode(
              size,
              pixels.get(static_cast<size_t>(
                  size.height * size.width * options.decode.channels)));
        } catch (const DataError& error) {
          reasons[static_cast<size_t>(index)] = error.what();
        }
      },
      "verify",
      options.sink,
      options.workers);
  ImageReport report{.checked = static_cast<int64_t>(paths.size())};
  for (size_t i = 0; i < paths.size(); ++i) {
    if (reasons[i].empty()) {
      continue;
    }
    report.bad.push_back({paths[i], reasons[i]});
    if (options.remove) {
      if (::unlink(paths[i].c_str()) != 0 && errno != ENOENT) {
        throw IoError(paths[i], "remove the bad image", errno);
      }
      ++report.removed;
    }
  }
  return report;
}

ImageReport verify_images(
    const std::filesystem::path& folder,
    const VerifyImagesOptions& options) {
  return verify_images(find_image_files(folder), options);
}

namespace {

namespace fs = std::filesystem;

std::vector<std::string> hashes_of(const std::vector<std::string>& paths) {
  std::vector<std::string> hashes(paths.size());
  for_each_image(
      static_cast<int64_t>(paths.size()),
      [&](int64_t index) {
        const auto i = static_cast<size_t>(index);
        hashes[i] = sha256_file(paths[i]);
      },
      "hash");
  return hashes;
}

std::string relative_to(const fs::path& folder, const std::string& path) {
  return fs::path(path).lexically_relative(folder).string();
}

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

int64_t write_image_manifest(const fs::path& folder, const fs::path& manifest) {
  const std::vector<std::string> paths = find_image_files(folder);
  const std::vector<std::string> hashes = hashes_of(paths);
  Sha256Sums sums;
  for (size_t i = 0; i < paths.size(); ++i) {
    sums[relative_to(folder, paths[i])] = hashes[i];
  }
  AtomicFile file(manifest);
  file.write(to_text(sums));
  file.commit();
  return static_cast<int64_t>(paths.size());
}

std::vector<BadImage> check_image_manifest(
    const fs::path& folder,
    const fs::path& manifest) {
  Sha256Sums expected = read_sha256sums(manifest, SumNames::paths);
  const std::vector<std::string> paths = find_image_files(folder);
  const std::vector<std::string> hashes = hashes_of(paths);
  std::vector<BadImage> bad;
  for (size_t i = 0; i < paths.size(); ++i) {
    const auto listed = expected.find(relative_to(folder, paths[i]));
    if (listed == expected.end()) {
      bad.push_back({paths[i], "is not in the manifest"});
      continue;
    }
    if (listed->second != hashes[i]) {
      bad.push_back(
          {paths[i], "has other bytes than when the manifest was written"});
    }
    expected.erase(listed);
  }
  for (const auto& [name, hash] : expected) {
    bad.push_back({(folder / name).string(), "is missing"});
  }
  std::sort(bad.begin(), bad.end(), [](const auto& a, const auto& b) {
    return a.path < b.path;
  });
  return bad;
}

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
