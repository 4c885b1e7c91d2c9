#include "tern/vision/image_folder.h"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

using FolderId = std::pair<dev_t, ino_t>;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

bool has_suffix(
    std::string_view name,
    const std::vector<std::string>& suffixes) {
  const auto is_end = [&](std::string_view suffix) {
    return name.size() >= suffix.size() &&
           std::equal(
               suffix.begin(),
               suffix.end(),
               name.end() - static_cast<std::ptrdiff_t>(suffix.size()),
               [](char expected, char found) {
                 const bool is_upper = found >= 'A' && found <= 'Z';
                 return expected == (is_upper ? found - 'A' + 'a' : found);
               });
  };
  return std::any_of(suffixes.begin(), suffixes.end(), is_end);
}

/// Visits folders, each once, and collects the images in them.
class Scanner {
 public:
  Scanner(const fs::path& root, const ImageFolderOptions& options)
      : options_(options) {
    std::error_code ignored;
    boundary_ = fs::canonical(
                    options.boundary.empty() ? root : options.boundary,
                    ignored)
                    .string();
  }

  /// Marks a folder as visited. \return False if it was already.
  bool visit(const std::string& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) {
      throw IoError(folder, "look at the folder", errno);
    }
    return visited_.emplace(status.st_dev, status.st_ino).second;
  }

  /// The folders directly in `root` that are not hidden, sorted.
  std::vector<std::string> class_names(const std::string& root) {
    std::vector<std::string> names;
    for_each_entry(root, [&](const char* name, unsigned char, mode_t mode) {
      if (S_ISDIR(mode)) {
        names.emplace_back(name);
      }
    });
    std::sort(names.begin(), names.end());
    return names;
  }

  /// Adds the images in `folder` and, unless visited, in the folders in it.
  void collect(const std::string& folder, std::vector<std::string>& paths) {
    // A list instead of recursion: folders may be nested without end.
    std::vector<std::string> folders = {folder};
    while (!folders.empty()) {
      const std::string current = std::move(folders.back());
      folders.pop_back();
      for_each_entry(
          current,
          [&](const char* name, unsigned char, mode_t mode) {
            const bool is_image = has_suffix(name, options_.suffixes);
            if (!is_image && !S_ISDIR(mode)) {
              return;
            }
            std::string path = current + '/' + name;
            if (is_image && !S_ISREG(mode)) {
              throw DataError(
                  path,
                  fmt::format(
                      "is {}, but has the name of an image. Remove or rename "
                      "it.",
                      S_ISDIR(mode) ? "a folder" : "a pipe or a device"));
            }
            if (is_image) {
              paths.push_back(std::move(path));
            } else if (visit(path)) {
              folders.push_back(std::move(path));
            }
          });
    }
  }

  std::vector<std::string> dangling_links;

 private:
  /// Calls `use(name, type, mode)` for all that is not hidden, with links
  /// followed.
  template <class Use>
  void for_each_entry(const std::string& folder, const Use& use) {
    const std::unique_ptr<DIR, CloseFolder> entries(::opendir(folder.c_str()));
    if (!entries) {
      throw IoError(folder, "open the folder", errno);
    }
    errno = 0;
    while (const dirent* entry = ::readdir(entries.get())) {
      if (entry->d_name[0] != '.') {
        mode_t mode = DTTOIF(entry->d_type);
        const bool is_known =
            entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN;
        if (is_known || follow(folder, entry->d_name, entries.get(), mode)) {
          use(entry->d_name, entry->d_type, mode);
        }
      }
      errno = 0;
    }
    if (errno != 0) {
      throw IoError(folder, "read the folder", errno);
    }
  }

  /// What a link, or an entry of unknown kind, is. \return False if it leads
  /// nowhere.
  bool follow(
      const std::string& folder,
      const char* name,
      DIR* entries,
      mode_t& mode) {
    struct stat status {};
    const std::string path = folder + '/' + name;
    if (::fstatat(::dirfd(entries), name, &status, 0) != 0) {
      dangling_links.push_back(path);
      return false;
    }
    mode = status.st_mode;
    std::error_code error;
    if (!options_.links_outside && fs::is_symlink(path, error)) {
      const std::string target = fs::canonical(path, error).string();
      const bool is_inside =
          target.compare(0, boundary_.size(), boundary_) == 0 &&
          (target.size() == boundary_.size() || boundary_ == "/" ||
           target[boundary_.size()] == '/');
      if (!is_inside) {
        throw DataError(
            path,
            fmt::format(
                "is a link to {}, outside of {}. Set links_outside to follow "
                "it, or remove it.",
                target,
                boundary_));
      }
    }
    return true;
  }

  const ImageFolderOptions& options_;
  std::string boundary_;
  std::set<FolderId> visited_;
};

/// The label of each class folder found.
std::map<std::string, int64_t> labels_of(
    const std::string& root,
    const std::vector<std::string>& found,
    const std::vector<std::string>& classes) {
  std::map<std::string, int64_t> labels;
  for (size_t i = 0; i < classes.size(); ++i) {
    labels.emplace(classes[i], static_cast<int64_t>(i));
  }
  for (const std::string& name : found) {
    if (!labels.contains(name)) {
      throw DataError(
          root + '/' + name,
          fmt::format(
              "is a class that the training images do not have ({}). Add "
              "training images of it, or remove the folder.",
              fmt::join(classes, ", ")));
    }
  }
  return labels;
}

/// \param content  What is expected in it.
void check_is_folder(const fs::path& root, const char* content) {
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    throw DataError(
        root.string(),
        fs::exists(root, error)
            ? fmt::format("is no folder; expected one with {}.", content)
            : fmt::format(
                  "there is no such folder; expected one with {}. Check the "
                  "path.",
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

ImageFolder scan_image_folder(
    const fs::path& root,
    const ImageFolderOptions& options) {
  const std::string folder = root.string();
  check_is_folder(root, "a folder of images for each class");
  Scanner scanner(root, options);
  const std::vector<std::string> found = scanner.class_names(folder);
  if (found.empty()) {
    throw DataError(
        folder,
        "has no folders in it; expected one for each class, as in " + folder +
            "/cat/1.jpg.");
  }
  ImageFolder images;
  images.classes = options.classes.empty() ? found : options.classes;
  const auto labels = labels_of(folder, found, images.classes);

  // All of them before any is scanned: a link in one class to another must not
  // give the other's images a wrong label.
  scanner.visit(folder);
  for (const std::string& name : found) {
    if (!scanner.visit(folder + '/' + name)) {
      throw DataError(
          folder + '/' + name,
          "is a link to a folder that is a class already, or to the folder of "
          "all classes. Remove it.");
    }
  }
  for (const std::string& name : found) {
    const size_t first = images.paths.size();
    scanner.collect(folder + '/' + name, images.paths);
    if (images.paths.size() == first && !options.allow_empty) {
      throw DataError(
          folder + '/' + name,
          fmt::format(
              "has no images ({}). Add images, remove the folder, or set "
              "allow_empty.",
              fmt::join(options.suffixes, ", ")));
    }
    std::sort(
        images.paths.begin() + static_cast<std::ptrdiff_t>(first),
        images.paths.end());
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
  scanner.visit(root.string());
  scanner.collect(root.string(), paths);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace tern
