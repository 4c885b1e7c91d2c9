#include "tern/vision/datasets/shard_images.h"

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/data/formats/archives/tar_write.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/text.h"
#include "tern/data/sampler.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/datasets/box_checks.h"
#include "tern/vision/datasets/box_json.h"
#include "tern/vision/datasets/box_targets.h"
#include "tern/vision/datasets/image_folder.h"
#include "tern/vision/datasets/point_json.h"
#include "tern/vision/decode/image_file.h"

namespace tern {

std::vector<std::string> read_class_list(const std::filesystem::path& file) {
  constexpr int64_t kMaxBytes = 64 << 20;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  const std::vector<uint8_t> bytes = read_file(file, kMaxBytes);
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  std::vector<std::string> classes;
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    classes.push_back(line);
    if (line.empty() || !seen.insert(line).second) {
      throw_data_error(
          file.string(),
          "line {} is empty or repeats the name of a class; expected one class "
          "name per line. Remove the line, or create the shards again.",
          classes.size());
    }
  }
  return classes;
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kSumsName = "SHA256SUMS";

/// A shard with the images at order[begin..end-1].
struct PlannedShard {
  int64_t begin = 0, end = 0;
};

/// Divides the ordered files into shards.
std::vector<PlannedShard> plan_shards(
    const std::vector<std::string>& paths,
    const std::vector<int64_t>& order,
    const ShardImagesOptions& options) {
  std::vector<PlannedShard> shards;
  int64_t bytes = 0;
  for (int64_t i = 0; i < std::ssize(order); ++i) {
    const auto& path = paths[order[i]];
    const int64_t size = file_size(open_regular_file(path), path);
    const bool is_full = shards.empty() ||
                         i - shards.back().begin == options.max_samples ||
                         bytes + size > options.max_bytes;
    if (is_full) {
      shards.push_back({i, i});
      bytes = 0;
    }
    shards.back().end = i + 1;
    bytes += size;
  }
  return shards;
}

struct ShardContent {
  std::vector<std::string> paths, classes;
  /// Returns the folder of an image in the shard, such as "cat/".
  std::function<std::string(size_t)> folder;
  /// Suffix and contents of the annotation file of an image.
  std::string suffix;
  std::function<std::string(size_t)> text;
};

/// \return Its SHA-256.
std::string write_shard(
    const fs::path& file,
    const ShardContent& content,
    const std::vector<int64_t>& order,
    PlannedShard planned) {
  static thread_local ScratchBuffer buffer;
  TarWriter shard(file);
  for (int64_t i = planned.begin; i < planned.end; ++i) {
    const auto image = static_cast<size_t>(order[i]);
    const std::string& path = content.paths[image];
    // The number makes keys unique even if files have the same name.
    const std::string key = fmt::format("{}{:08}", content.folder(image), i);
    shard.add(key + lower_suffix(path), read_image_file(path, buffer));
    shard.add(key + content.suffix, content.text(image));
  }
  return shard.finish();
}

void check(const ShardImagesOptions& options) {
  TERN_CHECK_VALUE(
      options.max_samples >= 1 && options.max_bytes >= 1,
      "[shard_images] max_samples is {} and max_bytes {}; expected 1 or more.",
      options.max_samples,
      options.max_bytes);
  TERN_CHECK_VALUE(
      !options.name.empty() && options.name[0] != '.' &&
          options.name.find_first_of("/\\\n") == options.name.npos,
      "[shard_images] the name of the shards is \"{}\"; expected the beginning "
      "of a file name, such as train.",
      options.name);
}

Sha256Sums sums_in(const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / kSumsName;
  return fs::exists(file, ignored) ? read_sha256sums(file) : Sha256Sums();
}

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void refuse_overwriting(const fs::path& out, const std::string& name) {
  for (const fs::directory_entry& entry : fs::directory_iterator(out)) {
    const std::string found = entry.path().filename().string();
    if (found.starts_with(name + "-") && found.ends_with(".tar")) {
      throw DataError(
          entry.path().string(),
          "exists already. Remove the old shards, or write to a different "
          "folder or under a different name.");
    }
  }
}

/// \param given  The classes that `out` already contains.
ShardedImages write_shards(
    const ShardContent& content,
    const std::vector<std::string>& given,
    const fs::path& out,
    const ShardImagesOptions& options,
    const Sink& sink) {
  make_folders(out);
  refuse_overwriting(out, options.name);

  const int64_t count = std::ssize(content.paths);
  const std::vector<int64_t> order =
      options.shuffle ? RandomSampler(count).indices(options.seed, 0)
                      : SequentialSampler(count).indices(0, 0);
  const std::vector<PlannedShard> plan =
      plan_shards(content.paths, order, options);
  ShardedImages result;
  result.classes = content.classes;
  result.images = count;
  std::vector<std::string> hashes(plan.size());
  for (size_t i = 0; i < plan.size(); ++i) {
    result.shards.push_back(out / fmt::format("{}-{:06}.tar", options.name, i));
  }
  for_each_image(
      std::ssize(plan),
      [&](int64_t i) {
        const auto shard = static_cast<size_t>(i);
        hashes[shard] =
            write_shard(result.shards[shard], content, order, plan[shard]);
      },
      "shards",
      sink,
      options.workers);

  Sha256Sums sums = sums_in(out);
  for (size_t i = 0; i < plan.size(); ++i) {
    const fs::path& shard = result.shards[i];
    sums[shard.filename().string()] = hashes[i];
    result.bytes += static_cast<int64_t>(fs::file_size(shard));
  }
  if (given.empty() && !content.classes.empty()) {
    std::string text;
    for (const std::string& name : content.classes) text += name + "\n";
    write_text(out / kClassListName, text);
  }
  write_text(out / kSumsName, to_text(sums));
  return result;
}

std::vector<std::string> labels_in(const BoxAnnotations& annotations) {
  std::set<std::string> labels;
  for (const AnnotatedImage& image : annotations.images) {
    for (const Box& box : image.objects.boxes) labels.insert(box.label);
  }
  return {labels.begin(), labels.end()};
}

void check_suffix(const std::string& path) {
  if (std::ranges::count(image_suffixes(), lower_suffix(path)) > 0) return;
  throw_data_error(
      path,
      "does not have the suffix of an image; expected one of {}. Rename it, or "
      "omit it.",
      fmt::join(image_suffixes(), ", "));
}

/// Throws if the annotations could not be read back.
void check_annotations(
    const BoxAnnotations& annotations,
    const std::vector<std::string>& classes) {
  std::set<std::string> known;
  for (const std::string& name : classes) {
    check_class_name(name, "[shard_images] the annotations");
    TERN_CHECK_VALUE(
        known.insert(name).second,
        "[shard_images] the annotations have the class {} twice; expected each "
        "class once.",
        printable(name));
  }
  for (const AnnotatedImage& image : annotations.images) {
    check_suffix(image.path);
    const ImageSize size = image.objects.image;
    if (size != ImageSize{} && (size.width <= 0 || size.height <= 0)) {
      throw_data_error(
          image.path,
          "is {} x {} pixels (width x height) according to its annotations; "
          "expected two numbers above 0, or 0 x 0 if the size is unknown. "
          "Correct them.",
          size.width,
          size.height);
    }
    for (const Box& box : image.objects.boxes) {
      if (!has_size(box)) {
        throw_data_error(
            image.path,
            "has the box {}, {}, {}, {} (x1, y1, x2, y2) of area {}; expected "
            "finite numbers, x1 below x2, y1 below y2 and no negative area. "
            "Correct it, or omit it.",
            box.x1,
            box.y1,
            box.x2,
            box.y2,
            box.area);
      }
      if (!known.contains(box.label)) {
        throw_data_error(
            image.path,
            "has a box of the class {}, which is not one of the {} classes of "
            "{} or the annotations. Correct the label, or write all shards "
            "into a new folder with all classes.",
            printable(box.label),
            classes.size(),
            kClassListName);
      }
    }
  }
}

}  // namespace

ShardedImages shard_images(
    const fs::path& folder,
    const fs::path& out,
    const ShardImagesOptions& options,
    const Sink& sink) {
  check(options);
  const std::vector<std::string> given = read_class_list(out / kClassListName);
  const ImageFolder images = scan_image_folder(folder, {.classes = given});
  const ShardContent content = {
      .paths = images.paths,
      .classes = images.classes,
      .folder =
          [&](size_t i) { return images.classes[images.labels[i]] + "/"; },
      .suffix = ".cls",
      .text = [&](size_t i) { return std::to_string(images.labels[i]); }};
  return write_shards(content, given, out, options, sink);
}

ShardedImages shard_images(
    const BoxAnnotations& annotations,
    const fs::path& out,
    const ShardImagesOptions& options,
    const Sink& sink) {
  check(options);
  TORCH_CHECK_VALUE(
      !annotations.images.empty(),
      "[shard_images] the annotations have no images; expected at least one.");
  const std::vector<std::string> given = read_class_list(out / kClassListName);
  ShardContent content = {
      .classes = !given.empty()                ? given
                 : annotations.classes.empty() ? labels_in(annotations)
                                               : annotations.classes,
      .folder = [](size_t) { return std::string(); },
      .suffix = ".json",
      .text =
          [&](size_t i) { return to_box_json(annotations.images[i].objects); }};
  TORCH_CHECK_VALUE(
      !content.classes.empty(),
      "[shard_images] the annotations have no class and no box; expected at "
      "least one class. Set BoxAnnotations::classes.");
  check_annotations(annotations, content.classes);
  for (const AnnotatedImage& image : annotations.images) {
    content.paths.push_back(image.path);
  }
  return write_shards(content, given, out, options, sink);
}

ShardedImages shard_images(
    const ImageItems& items,
    const PointLabeller& points,
    const fs::path& out,
    const ShardImagesOptions& options,
    const Sink& sink) {
  check(options);
  TORCH_CHECK_VALUE(
      !items.empty() && points,
      "[shard_images] there are no items or no labeller; expected at least one "
      "image and a labeller that returns its points.");
  ShardContent content = {
      .folder = [](size_t) { return std::string(); },
      .suffix = ".json"};
  std::vector<std::vector<Point>> labels;
  for (const ImageItem& item : items) {
    TERN_CHECK_VALUE(
        !item.bytes,
        "[shard_images] the image {} is in memory; expected image files. Write "
        "it with a TarWriter.",
        printable(item.path));
    check_suffix(item.path);
    content.paths.push_back(item.path);
    labels.push_back(points(item));
  }
  // Throws for points that could not be read back.
  [[maybe_unused]] const PointTargets readable(content.paths, labels);
  content.text = [&](size_t i) { return to_point_json(labels[i]); };
  return write_shards(content, {}, out, options, sink);
}

int64_t verify_shards(const fs::path& folder, const Sink& sink) {
  const Sha256Sums sums = read_sha256sums(folder / kSumsName);
  const std::vector<std::pair<std::string, std::string>> files(
      sums.begin(),
      sums.end());
  for_each_image(
      std::ssize(files),
      [&](int64_t i) {
        const auto& [name, sum] = files[i];
        const fs::path file = folder / name;
        const std::string found = sha256_file(file);
        if (found != sum) {
          throw_data_error(
              file.string(),
              "has the SHA-256 {}; {} expects {}. Download or create it again.",
              found,
              kSumsName,
              sum);
        }
      },
      "verify",
      sink);
  return std::ssize(files);
}

}  // namespace tern
