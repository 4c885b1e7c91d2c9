#include "tern/vision/datasets/read_coco.h"

#include <algorithm>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/annotations/coco.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/samples/image_header.h"
#include "tern/data/formats/text.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/box_checks.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

CocoFile parse_file(const fs::path& json) {
  const ByteFile file(json);
  if (file.size() == 0) return parse_coco({}, json.string());
  const auto bytes = file.map();
  return parse_coco(
      std::span<const uint8_t>(bytes.get(), file.size()),
      json.string());
}

/// The images in the order of the file.
class CocoImages {
 public:
  CocoImages(
      std::vector<CocoFile::Image> images,
      const fs::path& folder,
      bool check_files,
      const std::string& json) {
    std::unordered_set<std::string> names;
    for (CocoFile::Image& image : images) {
      const std::string where = fmt::format("{}: image {}", json, image.id);
      if (!by_id_.emplace(image.id, images_.size()).second) {
        throw_data_error(
            json,
            "has two images with the id {}, the second is {}; expected "
            "distinct ids. Correct the file.",
            image.id,
            printable(image.file_name));
      }
      AnnotatedImage annotated;
      annotated.id = image.id;
      annotated.path =
          annotated_image_path(folder, image.file_name, check_files, where);
      annotated.objects.image = size_of(image, json);
      images_.push_back(std::move(annotated));
      if (!names.insert(std::move(image.file_name)).second) {
        throw_data_error(
            json,
            "has two images with the name {}, the second with the id {}; "
            "expected each image once. Merge their annotations.",
            printable(fs::path(images_.back().path)
                          .lexically_relative(folder)
                          .string()),
            image.id);
      }
    }
  }

  /// Returns the image with this id, or null.
  AnnotatedImage* find(int64_t id) {
    const auto at = by_id_.find(id);
    return at == by_id_.end() ? nullptr : &images_[at->second];
  }

  std::vector<AnnotatedImage>& all() { return images_; }

 private:
  static ImageSize size_of(
      const CocoFile::Image& image,
      const std::string& json) {
    const bool is_known = image.width > 0 && image.height > 0 &&
                          image.width <= kMaxPixels &&
                          image.height <= kMaxPixels;
    if (!is_known && (image.width != 0 || image.height != 0)) {
      throw_data_error(
          json,
          "has the width {} and the height {} for the image {} (id {}); "
          "expected its size in pixels, or neither. Correct the file.",
          image.width,
          image.height,
          printable(image.file_name),
          image.id);
    }
    return {image.height, image.width};
  }

  std::vector<AnnotatedImage> images_;
  std::unordered_map<int64_t, size_t> by_id_;
};

/// Sets the classes to the categories, sorted by id.
void set_classes(
    std::vector<CocoFile::Category> categories,
    const std::string& json,
    BoxAnnotations& annotations) {
  std::ranges::sort(categories, {}, &CocoFile::Category::id);
  std::unordered_set<std::string> names;
  for (CocoFile::Category& category : categories) {
    check_class_name(category.name, json);
    if (!annotations.category_ids.empty() &&
        annotations.category_ids.back() == category.id) {
      throw_data_error(
          json,
          "has two categories with the id {}, {} and {}; expected distinct "
          "ids. Correct the file.",
          category.id,
          printable(annotations.classes.back()),
          printable(category.name));
    }
    if (!names.insert(category.name).second) {
      throw_data_error(
          json,
          "has two categories with the name {}, the second with the id {}; "
          "expected each class once. Correct the file.",
          printable(category.name),
          category.id);
    }
    annotations.category_ids.push_back(category.id);
    annotations.classes.push_back(std::move(category.name));
  }
  if (annotations.classes.empty()) {
    throw DataError(
        json,
        "has no categories; expected the categories of the boxes. Correct the "
        "file.");
  }
}

/// Makes the ids of the categories their class indices.
void number_by_id(const std::string& json, BoxAnnotations& annotations) {
  constexpr int64_t kMostClasses = 100'000;
  const std::vector<int64_t> ids = std::move(annotations.category_ids);
  const std::vector<std::string> names = std::move(annotations.classes);
  if (ids.front() < 0 || ids.back() >= kMostClasses) {
    throw_data_error(
        json,
        "has category ids from {} to {}; expected ids from 0 to {} for "
        "ids_as_classes. Leave ids_as_classes off.",
        ids.front(),
        ids.back(),
        kMostClasses - 1);
  }
  annotations.classes.clear();
  annotations.category_ids.clear();
  size_t next = 0;
  for (int64_t id = 0; id <= ids.back(); ++id) {
    const bool is_used = ids[next] == id;
    annotations.classes.push_back(
        is_used ? names[next++] : fmt::format("unused {}", id));
    annotations.category_ids.push_back(id);
  }
}

void check_ids(
    const std::vector<CocoFile::Annotation>& annotations,
    const std::string& json) {
  std::vector<int64_t> ids;
  ids.reserve(annotations.size());
  for (const auto& annotation : annotations) ids.push_back(annotation.id);
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice != ids.end()) {
    throw_data_error(
        json,
        "has two annotations with the id {}; expected distinct ids. Correct "
        "the file.",
        *twice);
  }
}

}  // namespace

BoxAnnotations read_coco(
    const fs::path& json_path,
    const fs::path& images_folder,
    const CocoOptions& options) {
  const std::string json = json_path.string();
  CocoFile file = parse_file(json_path);
  if (file.images.empty()) {
    throw DataError(
        json,
        "has no images; expected at least one. Correct the file.");
  }
  BoxAnnotations result;
  set_classes(std::move(file.categories), json, result);
  const std::vector<int64_t> known_ids = result.category_ids;
  if (options.ids_as_classes) number_by_id(json, result);
  CocoImages images(
      std::move(file.images),
      images_folder,
      options.check_files,
      json);
  check_ids(file.annotations, json);

  BadBoxCounter bad(json, options.bad_boxes, options.sink);
  for (const CocoFile::Annotation& annotation : file.annotations) {
    bad.count_box();
    AnnotatedImage* const image = images.find(annotation.image_id);
    if (image == nullptr) {
      bad.reject(
          json,
          fmt::format(
              "annotation {} belongs to the image {}; expected the id of one "
              "of the {} images",
              annotation.id,
              annotation.image_id,
              images.all().size()));
      continue;
    }
    const auto category =
        std::ranges::lower_bound(result.category_ids, annotation.category_id);
    const auto& [x, y, width, height] = annotation.bbox;
    Box box{
        .x1 = x,
        .y1 = y,
        .x2 = x + width,
        .y2 = y + height,
        .crowd = annotation.crowd,
        .area = annotation.area};
    std::string fault = box_fault(box, image->objects.image);
    if (!std::ranges::binary_search(known_ids, annotation.category_id)) {
      bad.reject(
          json,
          fmt::format(
              "annotation {} of {} has the category {}; expected the id of one "
              "of the {} categories",
              annotation.id,
              printable(image->path),
              annotation.category_id,
              known_ids.size()));
    } else if (!fault.empty()) {
      bad.reject(
          json,
          fmt::format(
              "annotation {} of {} has the bbox [{}], which {}; expected left "
              "edge, top edge, width and height, within the image",
              annotation.id,
              printable(image->path),
              fmt::join(annotation.bbox, ", "),
              fault));
    } else {
      box.label = result.classes[static_cast<size_t>(
          category - result.category_ids.begin())];
      image->objects.boxes.push_back(std::move(box));
    }
  }
  bad.finish();

  result.images = std::move(images.all());
  if (!options.keep_empty) {
    std::erase_if(result.images, [](const AnnotatedImage& image) {
      return image.objects.boxes.empty();
    });
  }
  return result;
}

}  // namespace tern
