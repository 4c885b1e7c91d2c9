#include "tern/vision/datasets/image_folder.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/support/error_text.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

/// Visits each folder once and collects its images.
class Scanner {
 public:
  Scanner(const fs::path& root, const ImageFolderOptions& options)
      : options_(options),
        boundary_(
            real_path(options.boundary.empty() ? root : options.boundary)) {}

  /// Marks a folder as visited. \return False if it already was visited.
  bool visit(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) {
      throw IoError(folder, "look at the folder", errno);
    }
    return visited_.emplace(status.st_dev, status.st_ino).second;
  }

  /// Returns the names of the folders in `root` that are not hidden, sorted.
  std::vector<std::string> class_names(const fs::path& root) {
    std::vector<std::string> names;
    for_each_entry(root, [&](const fs::directory_entry& entry) {
      if (entry.is_directory()) {
        names.push_back(entry.path().filename().string());
      }
    });
    std::ranges::sort(names);
    return names;
  }

  /// Adds the images in `folder` and in all of its subfolders that were not
  /// visited before.
  void collect(const fs::path& folder, std::vector<std::string>& paths) {
    // A list instead of recursion, because the nesting depth is not limited.
    std::vector<fs::path> folders = {folder};
    while (!folders.empty()) {
      const fs::path current = std::move(folders.back());
      folders.pop_back();
      for_each_entry(current, [&](const fs::directory_entry& entry) {
        const fs::path& path = entry.path();
        if (!has_suffix(path)) {
          if (entry.is_directory() && visit(path)) folders.push_back(path);
          return;
        }
        if (!entry.is_regular_file()) {
          throw_data_error(
              path.string(),
              "is {}, but has the file name of an image. Remove or rename it.",
              entry.is_directory() ? "a folder" : "a pipe or a device");
        }
        paths.push_back(path.string());
      });
    }
  }

  std::vector<std::string> dangling_links;

 private:
  static fs::path real_path(const fs::path& path) {
    std::error_code error;
    fs::path real = fs::canonical(path, error);
    if (error) throw IoError(path, "look at the folder", error.value());
    return real;
  }

  bool has_suffix(const fs::path& path) const {
    return std::ranges::count(image_suffixes(), lower_suffix(path)) > 0;
  }

  /// Calls `use(entry)` for all entries except hidden ones and dangling links.
  /// Only links need a system call, to find their targets.
  template <class Use>
  void for_each_entry(const fs::path& folder, const Use& use) {
    std::error_code error;
    fs::directory_iterator at(folder, error);
    for (; !error && at != fs::directory_iterator(); at.increment(error)) {
      const bool is_hidden = at->path().filename().native()[0] == '.';
      if (!is_hidden && leads_somewhere(*at)) use(*at);
    }
    if (error) throw IoError(folder, "read the folder", error.value());
  }

  bool leads_somewhere(const fs::directory_entry& entry) {
    if (!entry.is_symlink()) return true;
    std::error_code error;
    if (!entry.exists(error)) {
      dangling_links.push_back(entry.path().string());
      return false;
    }
    const fs::path target = real_path(entry.path());
    const fs::path from_boundary = target.lexically_relative(boundary_);
    if (!options_.links_outside && *from_boundary.begin() == "..") {
      throw_data_error(
          entry.path().string(),
          "is a link to {}, outside of {}. Pass the whole folder of the "
          "dataset (to items_from_folder as its boundary), set links_outside "
          "to follow all links, or remove the link.",
          target.string(),
          boundary_.string());
    }
    return true;
  }

  const ImageFolderOptions& options_;
  fs::path boundary_;
  std::set<std::pair<dev_t, ino_t>> visited_;
};

/// Returns the label of each class folder found.
std::map<std::string, int64_t> labels_of(
    const fs::path& root,
    const std::vector<std::string>& found,
    const std::vector<std::string>& classes) {
  std::map<std::string, int64_t> labels;
  for (size_t i = 0; i < classes.size(); ++i) {
    labels.emplace(classes[i], static_cast<int64_t>(i));
  }
  for (const std::string& name : found) {
    if (!labels.contains(name)) {
      throw_data_error(
          (root / name).string(),
          "is a class that the training images do not have ({}). Add "
          "training images of it, or remove the folder.",
          fmt::join(classes, ", "));
    }
  }
  return labels;
}

/// \param content  The expected content, for error messages.
void check_is_folder(const fs::path& root, const char* content) {
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    throw DataError(
        root.string(),
        fs::exists(root, error)
            ? fmt::format(
                  "is not a folder; expected a folder with {}.",
                  content)
            : fmt::format(
                  "there is no such folder; expected a folder with {}. Check "
                  "the path.",
                  content));
  }
}

}  // namespace

const std::vector<std::string>& image_suffixes() {
  static const std::vector<std::string> suffixes = {
      ".jpg",
      ".jpeg",
      ".png",
      ".ppm",
      ".bmp",
      ".pgm",
      ".tif",
      ".tiff",
      ".webp"};
  return suffixes;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  }
  return text;
}

std::string lower_suffix(const fs::path& path) {
  return lower_case(path.extension().string());
}

ImageFolder scan_image_folder(
    const fs::path& root,
    const ImageFolderOptions& options) {
  check_is_folder(root, "a folder of images for each class");
  Scanner scanner(root, options);
  const std::vector<std::string> found = scanner.class_names(root);
  if (found.empty()) {
    throw DataError(
        root.string(),
        "contains no folders; expected one folder per class, as in " +
            (root / "cat/1.jpg").string() + ".");
  }
  ImageFolder images;
  images.classes = options.classes.empty() ? found : options.classes;
  const auto labels = labels_of(root, found, images.classes);

  // Marks all class folders before scanning any of them. Otherwise a link from
  // one class to another would label the other's images with the wrong class.
  scanner.visit(root);
  for (const std::string& name : found) {
    if (!scanner.visit(root / name)) {
      throw DataError(
          (root / name).string(),
          "is a link to a folder that is already a class, or to the folder of "
          "all classes. Remove the link.");
    }
  }
  for (const std::string& name : found) {
    const int64_t first = std::ssize(images.paths);
    scanner.collect(root / name, images.paths);
    if (std::ssize(images.paths) == first && !options.allow_empty) {
      throw_data_error(
          (root / name).string(),
          "has no images ({}). Add images, remove the folder, or set "
          "allow_empty.",
          fmt::join(image_suffixes(), ", "));
    }
    std::sort(images.paths.begin() + first, images.paths.end());
    images.labels.resize(images.paths.size(), labels.at(name));
  }
  images.dangling_links = std::move(scanner.dangling_links);
  return images;
}

std::vector<std::string> find_image_files(
    const fs::path& root,
    const ImageFolderOptions& options) {
  check_is_folder(root, "images");
  Scanner scanner(root, options);
  std::vector<std::string> paths;
  scanner.visit(root);
  scanner.collect(root, paths);
  std::ranges::sort(paths);
  return paths;
}

}  // namespace tern
