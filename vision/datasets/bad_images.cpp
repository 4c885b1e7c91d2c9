#include "tern/vision/datasets/bad_images.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <ranges>
#include <set>
#include <unistd.h>
#include <utility>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/image_folder.h"
#include "tern/vision/decode/image_file.h"

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
    int64_t named = 0;
    constexpr int64_t kNamed = 9;
    for (const auto& [other, bad] : images_) {
      if (other == at->first) continue;
      list += named < kNamed ? "\n  " + bad.reason : "\n  ...";
      if (named++ == kNamed) break;
    }
    const auto& [path, told] = at->second;
    std::string reason =
        told.starts_with(path + ": ") ? told.substr(path.size() + 2) : told;
    if (reason.ends_with('.')) reason.pop_back();
    throw_data_error(
        path,
        "{}; it is one of {} bad images among {}, more than the fraction of {} "
        "that may be skipped. Repair or remove them (verify_images lists all), "
        "or raise max_fraction.{}{}",
        reason,
        images_.size(),
        total,
        max_fraction,
        list.empty() ? "" : " The other bad images:",
        list);
  }
  if (is_new) sink_.or_terminal()->warning(at->second.reason + " Skipped.");
}

std::vector<BadImage> BadImageList::all() const {
  const std::lock_guard lock(mutex_);
  const auto images = std::views::values(images_);
  return {images.begin(), images.end()};
}

ImageReport verify_images(
    const std::vector<std::string>& paths,
    const VerifyImagesOptions& options) {
  std::vector<std::string> reasons(paths.size());
  for_each_image(
      std::ssize(paths),
      [&](int64_t index) {
        static thread_local ScratchBuffer file, pixels;
        const std::string& path = paths[index];
        try {
          const auto bytes = read_image_file(path, file);
          const EncodedImage image(bytes, path, options.decode);
          const ImageSize size = image.size();
          const int64_t channels = options.decode.channels;
          image.decode(size, pixels.get(size.height * size.width * channels));
        } catch (const DataError& error) {
          reasons[index] = error.what();
        }
      },
      "verify",
      options.sink,
      options.workers);
  ImageReport report{.checked = std::ssize(paths)};
  for (size_t i = 0; i < paths.size(); ++i) {
    if (reasons[i].empty()) continue;
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

/// Returns the SHA-256 of each file with `wanted(i)`, and "" for the others.
template <class Wanted>
std::vector<std::string> hashes_of(
    const std::vector<std::string>& paths,
    const Wanted& wanted) {
  std::vector<std::string> hashes(paths.size());
  for_each_image(
      std::ssize(paths),
      [&](int64_t index) {
        const auto i = static_cast<size_t>(index);
        if (wanted(i)) hashes[i] = sha256_file(paths[i]);
      },
      "hash");
  return hashes;
}

/// Returns the hashes of the images below a folder, by their relative paths.
Sha256Sums sums_of(const fs::path& folder) {
  const std::vector<std::string> paths = find_image_files(folder);
  const auto hashes = hashes_of(paths, [](size_t) { return true; });
  Sha256Sums sums;
  for (size_t i = 0; i < paths.size(); ++i) {
    sums[fs::path(paths[i]).lexically_relative(folder).string()] = hashes[i];
  }
  return sums;
}

/// Returns the hashes of the files that have the same size as one of `others`,
/// and "" for the other files.
std::vector<std::string> hashes_if_alike(
    const std::vector<std::string>& paths,
    const std::vector<std::string>& others) {
  const auto size_of = [](const std::string& path) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error) throw IoError(path, "look at the image", error.value());
    return size;
  };
  std::set<uintmax_t> sizes;
  for (const std::string& path : others) sizes.insert(size_of(path));
  return hashes_of(paths, [&](size_t i) {
    return sizes.contains(size_of(paths[i]));
  });
}

}  // namespace

int64_t write_image_manifest(const fs::path& folder, const fs::path& manifest) {
  const Sha256Sums sums = sums_of(folder);
  AtomicFile file(manifest);
  file.write(to_text(sums));
  file.commit();
  return std::ssize(sums);
}

std::vector<BadImage> check_image_manifest(
    const fs::path& folder,
    const fs::path& manifest) {
  const Sha256Sums expected = read_sha256sums(manifest, SumNames::paths);
  const Sha256Sums found = sums_of(folder);
  std::vector<BadImage> bad;
  const auto add = [&](const std::string& name, const char* reason) {
    bad.push_back({(folder / name).string(), reason});
  };
  for (const auto& [name, hash] : found) {
    const auto listed = expected.find(name);
    if (listed == expected.end()) {
      add(name, "is not in the manifest");
    } else if (listed->second != hash) {
      add(name, "has changed since the manifest was written");
    }
  }
  for (const auto& [name, hash] : expected) {
    if (!found.contains(name)) add(name, "is missing");
  }
  std::ranges::sort(bad, {}, &BadImage::path);
  return bad;
}

std::vector<DuplicateImage> duplicate_images(
    const std::vector<std::string>& train,
    const std::vector<std::string>& valid) {
  const auto train_hashes = hashes_if_alike(train, valid);
  const auto valid_hashes = hashes_if_alike(valid, train);
  std::map<std::string, size_t> by_hash;
  for (size_t i = 0; i < train.size(); ++i) {
    if (!train_hashes[i].empty()) by_hash.emplace(train_hashes[i], i);
  }
  std::vector<DuplicateImage> duplicates;
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto same = by_hash.find(valid_hashes[i]);
    if (same == by_hash.end()) continue;
    const std::string& twin = train[same->second];
    std::error_code ignored;
    const bool is_link = fs::equivalent(valid[i], twin, ignored);
    duplicates.push_back({valid[i], twin, is_link});
  }
  return duplicates;
}

}  // namespace tern
