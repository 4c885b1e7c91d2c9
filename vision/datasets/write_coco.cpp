#include "tern/vision/datasets/write_coco.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/json.h"
#include "tern/data/formats/text.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace fs = std::filesystem;

namespace {

/// A JSON file that is written in blocks of a megabyte.
class JsonFile {
 public:
  explicit JsonFile(const fs::path& path) : file_(path) {}

  void write(std::string_view text) {
    constexpr size_t kPiece = size_t{1} << 20;
    text_ += text;
    if (text_.size() >= kPiece) flush();
  }
  /// Writes the next element of a list.
  void item(std::string_view text) {
    write(is_first_ ? "\n" : ",\n");
    is_first_ = false;
    write(text);
  }
  void begin_list(std::string_view begin) {
    write(begin);
    is_first_ = true;
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(text_);
    text_.clear();
  }

  AtomicFile file_;
  std::string text_;
  bool is_first_ = true;
};

std::string bbox_text(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "[{}, {}, {}, {}]",
      json_number(x1),
      json_number(y1),
      json_number(x2 - x1),
      json_number(y2 - y1));
}

int64_t category_id(const BoxAnnotations& annotations, int64_t index) {
  return annotations.category_ids.empty()
             ? index
             : annotations.category_ids[static_cast<size_t>(index)];
}

void check(const BoxAnnotations& annotations, const char* caller) {
  TERN_CHECK_VALUE(
      annotations.category_ids.empty() ||
          annotations.category_ids.size() == annotations.classes.size(),
      "[{}] got {} category ids and {} classes; expected one id per class, or "
      "none.",
      caller,
      annotations.category_ids.size(),
      annotations.classes.size());
  std::unordered_set<int64_t> ids;
  for (const AnnotatedImage& image : annotations.images) {
    TERN_CHECK_VALUE(
        ids.insert(image.id).second,
        "[{}] the id {} of {} also belongs to another image; expected distinct "
        "ids. Set AnnotatedImage::id.",
        caller,
        image.id,
        printable(image.path));
  }
}

/// Checked detections, on the CPU, as kDouble and kLong.
struct CheckedDetections {
  CheckedDetections(
      const ImageDetections& given,
      const AnnotatedImage& image,
      int64_t class_count) {
    const auto& [given_boxes, given_scores, given_labels] = given;
    if (!given_boxes.defined() && !given_scores.defined() &&
        !given_labels.defined()) {
      return;
    }
    const bool is_defined = given_boxes.defined() && given_scores.defined() &&
                            given_labels.defined();
    count = is_defined && given_labels.dim() == 1 ? given_labels.size(0) : -1;
    TERN_CHECK_VALUE(
        count >= 0 && given_boxes.sizes() == torch::IntArrayRef({count, 4}) &&
            given_scores.sizes() == torch::IntArrayRef({count}) &&
            given_boxes.is_floating_point() &&
            given_scores.is_floating_point() &&
            given_labels.scalar_type() == torch::kLong,
        "[write_coco_predictions] boxes, scores and labels of {} are {}; "
        "expected [D, 4] and [D] of a floating-point dtype, and [D] Long.",
        printable(image.path),
        shapes_of({given_boxes, given_scores, given_labels}));
    boxes = given_boxes.detach().to(torch::kCPU, torch::kDouble).contiguous();
    scores = given_scores.detach().to(torch::kCPU, torch::kDouble).contiguous();
    labels = given_labels.detach().to(torch::kCPU).contiguous();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t label = label_of(i);
      TERN_CHECK_VALUE(
          label >= -1 && label < class_count,
          "[write_coco_predictions] labels[{}] of {} is {}; expected the index "
          "of one of {} classes, or -1 for no object.",
          i,
          printable(image.path),
          label,
          class_count);
      const double* const box = box_of(i);
      const double sum = box[0] + box[1] + box[2] + box[3] + score_of(i);
      TERN_CHECK_VALUE(
          label == -1 || std::isfinite(sum),
          "[write_coco_predictions] detection {} of {} has the box [{}, {}, "
          "{}, {}] and the score {}; expected finite numbers. Check whether "
          "the model has diverged.",
          i,
          printable(image.path),
          box[0],
          box[1],
          box[2],
          box[3],
          score_of(i));
    }
  }

  int64_t label_of(int64_t i) const {
    return labels.const_data_ptr<int64_t>()[i];
  }
  double score_of(int64_t i) const {
    return scores.const_data_ptr<double>()[i];
  }
  const double* box_of(int64_t i) const {
    return boxes.const_data_ptr<double>() + i * 4;
  }

  int64_t count = 0;
  torch::Tensor boxes, scores, labels;
};

}  // namespace

void write_coco_predictions(
    const fs::path& file,
    const BoxAnnotations& annotations,
    const std::vector<ImageDetections>& predictions) {
  check(annotations, "write_coco_predictions");
  TERN_CHECK_VALUE(
      predictions.size() == annotations.images.size(),
      "[write_coco_predictions] got predictions of {} images; expected one per "
      "annotated image, {}, in their order.",
      predictions.size(),
      annotations.images.size());
  JsonFile json(file);
  json.begin_list("[");
  for (size_t n = 0; n < predictions.size(); ++n) {
    const AnnotatedImage& image = annotations.images[n];
    const CheckedDetections found(
        predictions[n],
        image,
        std::ssize(annotations.classes));
    for (int64_t i = 0; i < found.count; ++i) {
      if (found.label_of(i) < 0) continue;
      const double* const box = found.box_of(i);
      json.item(fmt::format(
          R"({{"image_id": {}, "category_id": {}, "bbox": {}, "score": {}}})",
          image.id,
          category_id(annotations, found.label_of(i)),
          bbox_text(box[0], box[1], box[2], box[3]),
          json_number(found.score_of(i))));
    }
  }
  json.write("\n]\n");
  json.commit();
}

void write_coco(
    const fs::path& file,
    const BoxAnnotations& annotations,
    const fs::path& images_folder) {
  check(annotations, "write_coco");
  std::unordered_map<std::string_view, int64_t> class_index;
  for (const std::string& name : annotations.classes) {
    class_index.emplace(name, std::ssize(class_index));
  }
  JsonFile json(file);
  json.begin_list("{\"images\": [");
  for (const AnnotatedImage& image : annotations.images) {
    const std::string name =
        fs::path(image.path).lexically_relative(images_folder).string();
    TERN_CHECK_VALUE(
        member_name_fault(name) == nullptr && name != ".",
        "[write_coco] the image {} is not in the folder {}; expected images "
        "inside the folder.",
        printable(image.path),
        images_folder.string());
    const ImageSize size = image.objects.image;
    json.item(fmt::format(
        R"({{"id": {}, "file_name": {}{}}})",
        image.id,
        json_quoted(name),
        size == ImageSize() ? ""
                            : fmt::format(
                                  R"(, "width": {}, "height": {})",
                                  size.width,
                                  size.height)));
  }
  json.begin_list("\n],\n\"annotations\": [");
  int64_t id = 0;
  for (const AnnotatedImage& image : annotations.images) {
    for (const Box& box : image.objects.boxes) {
      const auto index = class_index.find(box.label);
      TERN_CHECK_VALUE(
          index != class_index.end(),
          "[write_coco] a box of {} has the class {}; expected one of the {} "
          "classes of the annotations.",
          printable(image.path),
          printable(box.label),
          annotations.classes.size());
      const double area = (box.x2 - box.x1) * (box.y2 - box.y1);
      json.item(fmt::format(
          R"({{"id": {}, "image_id": {}, "category_id": {}, "bbox": {}, "area": {}, "iscrowd": {}}})",
          ++id,
          image.id,
          category_id(annotations, index->second),
          bbox_text(box.x1, box.y1, box.x2, box.y2),
          json_number(box.area == 0 ? area : box.area),
          box.crowd ? 1 : 0));
    }
  }
  json.begin_list("\n],\n\"categories\": [");
  for (size_t i = 0; i < annotations.classes.size(); ++i) {
    json.item(fmt::format(
        R"({{"id": {}, "name": {}}})",
        category_id(annotations, static_cast<int64_t>(i)),
        json_quoted(annotations.classes[i])));
  }
  json.write("\n]}\n");
  json.commit();
}

}  // namespace tern
