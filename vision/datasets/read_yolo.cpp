#include "tern/vision/datasets/read_yolo.h"

#include <algorithm>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "tern/data/formats/annotations/yolo.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/samples/image_header.h"
#include "tern/data/formats/text.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/box_checks.h"
#include "tern/vision/datasets/image_folder.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

constexpr const char* kClassesFile = "classes.txt";

std::vector<std::string> class_names(
    const fs::path& labels_folder,
    const std::vector<std::string>& given) {
  if (!given.empty()) return BoxClasses(given, "read_yolo").names();
  const fs::path file = labels_folder / kClassesFile;
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) {
    throw_data_error(
        labels_folder.string(),
        "has no {}, and no classes were given; expected the class names in "
        "order of their numbers. Pass the names in data.yaml to read_yolo.",
        kClassesFile);
  }
  return parse_names(
      read_file(file, kMaxAnnotationBytes),
      file.string(),
      "class");
}

/// The label file of an image and its objects.
struct LabeledImage {
  fs::path label;
  std::vector<YoloObject> objects;
};

/// Returns the size of an image. The file is mapped, and only its header is
/// read.
ImageSize size_of(const std::string& path, bool upright) {
  const ByteFile file(path);
  const auto bytes = file.size() == 0 ? nullptr : file.map();
  const ImageHeader header = read_image_header(
      std::span<const uint8_t>(bytes.get(), file.size()),
      path);
  return upright ? upright_size(header)
                 : ImageSize{header.height, header.width};
}

/// Throws if a label file belongs to none of `images`.
void check_label_files(
    const fs::path& folder,
    const std::unordered_map<std::string, size_t>& images) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  std::vector<std::string> without;
  for (; !error && at != fs::recursive_directory_iterator();
       at.increment(error)) {
    const fs::path& path = at->path();
    if (path.extension() == ".txt" && path.filename() != kClassesFile &&
        !images.contains(path.string())) {
      without.push_back(path.string());
    }
  }
  if (error) throw IoError(folder.string(), "read the folder", error.value());
  if (without.empty()) return;
  throw_data_error(
      std::ranges::min(without),
      "has no image; {} label file{} of {} {} none, expected an image of the "
      "same name for each. Remove the file, correct the folder of the images, "
      "or set check_labels to false.",
      without.size(),
      without.size() == 1 ? "" : "s",
      folder.string(),
      without.size() == 1 ? "has" : "have");
}

}  // namespace

BoxAnnotations read_yolo(
    const fs::path& labels_folder,
    const fs::path& images_folder,
    const std::vector<std::string>& given_classes,
    const YoloOptions& options) {
  BoxAnnotations result;
  result.classes = class_names(labels_folder, given_classes);
  const auto class_count = std::ssize(result.classes);

  std::vector<LabeledImage> labeled;
  std::unordered_map<std::string, size_t> by_label;  // index of the image
  bool has_labels = false;
  for (std::string& path : find_image_files(images_folder)) {
    AnnotatedImage image;
    image.id = std::ssize(result.images);
    LabeledImage& read = labeled.emplace_back();
    read.label = labels_folder / fs::path(path)
                                     .lexically_relative(images_folder)
                                     .replace_extension(".txt");
    const auto [first, is_new] =
        by_label.emplace(read.label.string(), result.images.size());
    if (!is_new) {
      throw_data_error(
          path,
          "has the label file {}, as does {}; expected images whose names "
          "differ in more than the suffix. Rename one of them.",
          read.label.string(),
          result.images[first->second].path);
    }
    std::error_code ignored;
    if (fs::exists(read.label, ignored)) {
      read.objects = parse_yolo(
          read_file(read.label, kMaxAnnotationBytes),
          read.label.string(),
          options.polygons);
      has_labels = true;
    }
    image.path = std::move(path);
    result.images.push_back(std::move(image));
  }
  if (result.images.empty()) {
    throw DataError(
        images_folder.string(),
        "has no images. Correct the folder of the images.");
  }
  if (!has_labels) {
    throw_data_error(
        labels_folder.string(),
        "has no label file for any of the {} images; expected {} for the first "
        "one. Correct the folder of the labels.",
        result.images.size(),
        labeled[0].label.string());
  }
  if (options.check_labels) check_label_files(labels_folder, by_label);

  std::vector<size_t> with_objects;
  for (size_t i = 0; i < labeled.size(); ++i) {
    if (!labeled[i].objects.empty()) with_objects.push_back(i);
  }
  for_each_image(
      std::ssize(with_objects),
      [&](int64_t i) {
        AnnotatedImage& image =
            result.images[with_objects[static_cast<size_t>(i)]];
        image.objects.image = size_of(image.path, options.exif_orientation);
      },
      "sizes of images read",
      options.sink,
      options.workers);

  BadBoxCounter bad(labels_folder.string(), options.bad_boxes, options.sink);
  for (const size_t i : with_objects) {
    ImageBoxes& into = result.images[i].objects;
    into.pixels = options.exif_orientation ? AnnotatedPixels::upright
                                           : AnnotatedPixels::stored;
    const auto width = static_cast<double>(into.image.width);
    const auto height = static_cast<double>(into.image.height);
    for (const YoloObject& object : labeled[i].objects) {
      bad.count_box();
      const auto where = [&] {
        return fmt::format("{}:{}", labeled[i].label.string(), object.line);
      };
      if (object.label < 0 || object.label >= class_count) {
        bad.reject(
            where(),
            fmt::format(
                "the class is {}; expected a number from 0 to {}, of one of "
                "the {} classes",
                object.label,
                class_count - 1,
                class_count));
        continue;
      }
      Box box{
          .x1 = (object.cx - object.width / 2) * width,
          .y1 = (object.cy - object.height / 2) * height,
          .x2 = (object.cx + object.width / 2) * width,
          .y2 = (object.cy + object.height / 2) * height,
          .label = result.classes[static_cast<size_t>(object.label)]};
      const std::string fault = box_fault(box, into.image);
      if (!fault.empty()) {
        bad.reject(
            where(),
            fmt::format(
                "the box {} {} {} {} {}; expected center, width and height "
                "relative to the image, from 0 to 1",
                object.cx,
                object.cy,
                object.width,
                object.height,
                fault));
        continue;
      }
      into.boxes.push_back(std::move(box));
    }
  }
  bad.finish();
  return result;
}

}  // namespace tern
