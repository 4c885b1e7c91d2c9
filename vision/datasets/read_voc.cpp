#include "tern/vision/datasets/read_voc.h"

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "tern/data/formats/annotations/voc.h"
#include "tern/data/formats/annotations/yolo.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/text.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/box_checks.h"
#include "tern/vision/datasets/image_folder.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const fs::path& path = at->path();
    if (lower_suffix(path) == ".xml" && path.filename().string()[0] != '.') {
      files.push_back(path);
    }
  }
  if (error) throw IoError(folder.string(), "read the folder", error.value());
  if (files.empty()) {
    throw DataError(
        folder.string(),
        "has no .xml files; expected one for each image. Correct the folder of "
        "the annotations.");
  }
  std::ranges::sort(files);
  return files;
}

std::vector<fs::path> files_of_set(
    const fs::path& folder,
    const fs::path& image_set) {
  std::vector<fs::path> files;
  const auto bytes = read_file(image_set, kMaxAnnotationBytes);
  for (const std::string& name :
       parse_names(bytes, image_set.string(), "image")) {
    if (const char* fault = member_name_fault(name)) {
      throw_data_error(
          image_set.string(),
          "lists {}, which {}; expected names of .xml files. Correct the list.",
          printable(name),
          fault);
    }
    fs::path path = folder / (name + ".xml");
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) {
      throw_data_error(
          image_set.string(),
          "lists {}, but there is no {}; expected a name without suffix on "
          "each line, as in ImageSets/Main/train.txt. Correct the list or the "
          "folder of the annotations.",
          printable(name),
          path.string());
    }
    files.push_back(std::move(path));
  }
  return files;
}

/// Finds the image of an annotation file.
class VocImages {
 public:
  VocImages(const fs::path& folder, const VocOptions& options)
      : folder_(folder), options_(options) {
    if (!options.match_by_stem) return;
    for (std::string& path : find_image_files(folder)) {
      std::string stem = fs::path(path).stem().string();
      by_stem_.emplace(std::move(stem), std::move(path));
    }
  }

  std::string path_of(const fs::path& xml, const VocFile& file) const {
    if (!options_.match_by_stem) {
      if (file.file_name.empty()) {
        throw DataError(
            xml.string(),
            "has no 'filename'; expected the name of its image. Set "
            "match_by_stem to take the image of the same name.");
      }
      return annotated_image_path(
          folder_,
          file.file_name,
          options_.check_files,
          xml.string());
    }
    const std::string stem = xml.stem().string();
    const auto [begin, end] = by_stem_.equal_range(stem);
    if (begin == end) {
      throw_data_error(
          xml.string(),
          "has no image: there is no image with the name {} in {}. Correct the "
          "folder.",
          printable(stem),
          folder_.string());
    }
    if (std::next(begin) != end) {
      throw_data_error(
          xml.string(),
          "has several images, {} and {}; expected one image of its name. "
          "Remove the others.",
          begin->second,
          std::next(begin)->second);
    }
    return begin->second;
  }

 private:
  fs::path folder_;
  const VocOptions& options_;
  std::unordered_multimap<std::string, std::string> by_stem_;
};

}  // namespace

BoxAnnotations read_voc(
    const fs::path& annotations_folder,
    const fs::path& images_folder,
    const VocOptions& options) {
  BoxClasses classes(options.classes, "read_voc");
  const std::vector<fs::path> files =
      options.image_set.empty()
          ? files_of_folder(annotations_folder)
          : files_of_set(annotations_folder, options.image_set);
  const VocImages images(images_folder, options);
  BadBoxCounter bad(
      annotations_folder.string(),
      options.bad_boxes,
      options.sink);
  BoxAnnotations result;
  std::unordered_map<std::string, size_t> first_of;  // index by image path
  for (const fs::path& xml : files) {
    const VocFile file =
        parse_voc(read_file(xml, kMaxAnnotationBytes), xml.string());
    AnnotatedImage image;
    image.path = images.path_of(xml, file);
    image.id = std::ssize(result.images);
    const auto [first, is_new] =
        first_of.emplace(image.path, result.images.size());
    if (!is_new) {
      throw_data_error(
          xml.string(),
          "annotates the image {}, as {} does; expected one file per image. "
          "Correct 'filename', or set match_by_stem.",
          printable(image.path),
          files[first->second].string());
    }
    if (file.width > 0 && file.height > 0) {
      image.objects.image = {file.height, file.width};
    }
    for (const VocFile::Object& object : file.objects) {
      bad.count_box();
      const std::string where = fmt::format("{}:{}", xml.string(), object.line);
      if (!classes.knows(object.name, where)) {
        bad.reject(
            where,
            fmt::format(
                "the object has the class {}; expected one of {}",
                printable(object.name),
                classes.some()));
        continue;
      }
      const bool is_crowd =
          object.difficult && options.difficult == DifficultObjects::crowd;
      const double first_pixel = options.zero_based ? 0 : 1;
      Box box{
          .x1 = object.xmin - first_pixel,
          .y1 = object.ymin - first_pixel,
          .x2 = object.xmax,
          .y2 = object.ymax,
          .label = object.name,
          .crowd = is_crowd};
      const std::string fault = box_fault(box, image.objects.image);
      if (!fault.empty()) {
        bad.reject(
            where,
            fmt::format(
                "the object {} has xmin {}, ymin {}, xmax {}, ymax {}, a box "
                "that {}; expected pixels of the image, {}",
                printable(object.name),
                object.xmin,
                object.ymin,
                object.xmax,
                object.ymax,
                fault,
                options.zero_based ? "edges from 0"
                                   : "from 1 (set zero_based for files that "
                                     "count from 0)"));
        continue;
      }
      if (object.difficult && options.difficult == DifficultObjects::skip) {
        continue;
      }
      image.objects.boxes.push_back(std::move(box));
    }
    result.images.push_back(std::move(image));
  }
  bad.finish();
  result.classes = classes.names();
  return result;
}

}  // namespace tern
