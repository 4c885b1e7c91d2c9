#include "tern/vision/datasets/read_coco.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::read_coco_test {
namespace {

constexpr const char* kImages =
    R"({"id": 9, "file_name": "b.jpg", "width": 640, "height": 480},
       {"id": 4, "file_name": "a/c.jpg", "width": 64, "height": 32},
       {"id": 7, "file_name": "d.jpg"})";
constexpr const char* kCategories =
    R"({"id": 18, "name": "dog"}, {"id": 1, "name": "person"},
       {"id": 90, "name": "cat"})";

/// An annotation file and its images.
class Coco : public testing::Test {
 protected:
  std::string write(
      const std::string& annotations,
      const std::string& images = kImages,
      const std::string& categories = kCategories) {
    make_folders(temp_ / "images/a");
    for (const char* name : {"b.jpg", "a/c.jpg", "d.jpg"}) {
      write_file(temp_ / "images" / name, "");
    }
    write_file(
        temp_ / "a.json",
        R"({"annotations": [)" + annotations + R"(], "categories": [)" +
            categories + R"(], "images": [)" + images + "]}");
    return (temp_ / "a.json").string();
  }

  BoxAnnotations read(const CocoOptions& options = {}) {
    return read_coco(temp_ / "a.json", temp_ / "images", options);
  }

  /// Returns the error for the written file, without the folder's name.
  std::string fault(const CocoOptions& options = {}) {
    std::string text = error_of<DataError>([&] { read(options); });
    const std::string folder = temp_.path().string() + "/";
    for (size_t at = text.find(folder); at != text.npos;
         at = text.find(folder)) {
      text.erase(at, folder.size());
    }
    return text;
  }

  TempFolder temp_;
};

std::string annotation(
    int id,
    int image,
    int category,
    const std::string& bbox,
    const std::string& more = "") {
  return R"({"id": )" + std::to_string(id) + R"(, "image_id": )" +
         std::to_string(image) + R"(, "category_id": )" +
         std::to_string(category) + R"(, "bbox": [)" + bbox + "]" + more + "}";
}

TEST_F(Coco, OrdersClassesByCategoryIdAndKeepsTheOrderOfImages) {
  write(
      annotation(1, 4, 90, "1.5, 2, 10, 20", R"(, "area": 77.5)") + "," +
      annotation(2, 9, 18, "0, 0, 640, 480", R"(, "iscrowd": 1)") + "," +
      annotation(3, 4, 1, "0, 0, 1, 1"));
  const BoxAnnotations coco = read();
  EXPECT_EQ(coco.classes, (std::vector<std::string>{"person", "dog", "cat"}));
  EXPECT_EQ(coco.category_ids, (std::vector<int64_t>{1, 18, 90}));
  ASSERT_EQ(coco.images.size(), 3u);
  EXPECT_EQ(coco.images[0].path, (temp_ / "images/b.jpg").string());
  EXPECT_EQ(coco.images[0].id, 9);
  EXPECT_EQ(coco.images[0].objects.image, ImageSize(480, 640));
  EXPECT_EQ(
      coco.images[0].objects.boxes,
      (std::vector<Box>{
          {.x1 = 0,
           .y1 = 0,
           .x2 = 640,
           .y2 = 480,
           .label = "dog",
           .crowd = true}}));
  EXPECT_EQ(coco.images[1].path, (temp_ / "images/a/c.jpg").string());
  EXPECT_EQ(
      coco.images[1].objects.boxes,
      (std::vector<Box>{
          {.x1 = 1.5,
           .y1 = 2,
           .x2 = 11.5,
           .y2 = 22,
           .label = "cat",
           .area = 77.5},
          {.x1 = 0, .y1 = 0, .x2 = 1, .y2 = 1, .label = "person"}}));
  EXPECT_TRUE(coco.images[2].objects.boxes.empty());
  EXPECT_EQ(coco.images[2].objects.image, ImageSize());
}

TEST_F(Coco, NumbersClassesByIdIfEnabled) {
  write(annotation(1, 4, 18, "1, 2, 10, 20"));
  const BoxAnnotations coco = read({.ids_as_classes = true});
  ASSERT_EQ(coco.classes.size(), 91u);
  EXPECT_EQ(coco.classes[0], "unused 0");
  EXPECT_EQ(coco.classes[1], "person");
  EXPECT_EQ(coco.classes[18], "dog");
  EXPECT_EQ(coco.classes[90], "cat");
  EXPECT_EQ(coco.category_ids[18], 18);
  EXPECT_EQ(coco.images[1].objects.boxes.at(0).label, "dog");
  write(annotation(1, 4, 17, "1, 2, 10, 20"));
  EXPECT_NE(
      fault({.ids_as_classes = true}).find("has the category 17"),
      std::string::npos);
  write(
      annotation(1, 4, -5, "1, 2, 10, 20"),
      kImages,
      R"({"id": -5, "name": "dog"})");
  EXPECT_NE(
      fault({.ids_as_classes = true}).find("category ids from -5 to -5"),
      std::string::npos);
}

TEST_F(Coco, SkipsImagesWithoutBoxesIfEnabled) {
  write(annotation(1, 4, 90, "1, 2, 10, 20"));
  const BoxAnnotations coco = read({.keep_empty = false});
  ASSERT_EQ(coco.images.size(), 1u);
  EXPECT_EQ(coco.images[0].id, 4);
}

TEST_F(Coco, NamesAnInvalidBoxAndItsImage) {
  const std::string cure =
      "; expected left edge, top edge, width and height, within the image. "
      "Correct it, "
      "or omit such boxes with bad_boxes = BadBoxes::skip.";
  write(annotation(7, 4, 1, "1, 2, 0, 5"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 of 'images/a/c.jpg' has the bbox [1, 2, 0, 5], "
      "which has no width" +
          cure);
  write(annotation(7, 4, 1, "1, 2, 3, -5"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 of 'images/a/c.jpg' has the bbox [1, 2, 3, -5], "
      "which has no height" +
          cure);
  write(annotation(7, 4, 1, "1, 2, 64.5, 3"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 of 'images/a/c.jpg' has the bbox [1, 2, 64.5, 3], "
      "which reaches beyond the image of 64 x 32 pixels" +
          cure);
  write(annotation(7, 7, 1, "1, 2, 1e300, 3"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 of 'images/d.jpg' has the bbox [1, 2, 1e+300, 3], "
      "which reaches beyond any image" +
          cure);
  write(annotation(7, 7, 1, "1.7e308, 2, 1.7e308, 3"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 of 'images/d.jpg' has the bbox [1.7e+308, 2, "
      "1.7e+308, 3], which is NaN or infinite" +
          cure);
  write(annotation(7, 4, 1, "1, 2, 3, 4", R"(, "area": -2)"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 of 'images/a/c.jpg' has the bbox [1, 2, 3, 4], "
      "which has an area of -2" +
          cure);
}

TEST_F(Coco, NamesAnUnknownImageOrCategory) {
  write(annotation(7, 5, 1, "1, 2, 3, 4"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 belongs to the image 5; expected the id of one of "
      "the 3 images. Correct it, or omit such boxes with bad_boxes = "
      "BadBoxes::skip.");
  write(annotation(7, 4, 2, "1, 2, 3, 4"));
  EXPECT_EQ(
      fault(),
      "a.json: annotation 7 of 'images/a/c.jpg' has the category 2; expected "
      "the id of one of the 3 categories. Correct it, or omit such boxes with "
      "bad_boxes = BadBoxes::skip.");
}

TEST_F(Coco, KeepsABoxThatExtendsOnePixelBeyondTheImage) {
  write(annotation(7, 4, 1, "-1, -0.5, 66, 33.5"));
  EXPECT_EQ(
      read().images[1].objects.boxes,
      (std::vector<Box>{
          {.x1 = -1, .y1 = -0.5, .x2 = 65, .y2 = 33, .label = "person"}}));
}

TEST_F(Coco, SkipsInvalidBoxesWithOneWarning) {
  const std::string json = write(
      annotation(1, 9, 1, "1, 2, 0, 4") + "," +
      annotation(2, 9, 1, "1, 2, 3, 4") + "," +
      annotation(3, 99, 1, "1, 2, 3, 4") + "," +
      annotation(4, 9, 2, "1, 2, 3, 4"));
  std::vector<std::string> lines;
  const BoxAnnotations coco =
      read({.bad_boxes = BadBoxes::skip, .sink = [&](const std::string& line) {
              lines.push_back(line);
            }});
  EXPECT_EQ(coco.images.size(), 3u);
  EXPECT_EQ(coco.images[0].objects.boxes.size(), 1u);
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "warning: " + json +
          ": 3 of 4 boxes are invalid and are omitted from training; the first "
          "is annotation 1 of '" +
          coco.images[0].path +
          "' has the bbox [1, 2, 0, 4], which has no width; expected left "
          "edge, top edge, width and height, within the image."}));
}

TEST_F(Coco, RejectsDuplicateIdsAndNames) {
  write(
      "",
      R"({"id": 1, "file_name": "b.jpg"}, {"id": 1, "file_name": "d.jpg"})");
  EXPECT_EQ(
      fault(),
      "a.json: has two images with the id 1, the second is 'd.jpg'; expected "
      "distinct ids. Correct the file.");
  write(
      "",
      R"({"id": 1, "file_name": "b.jpg"}, {"id": 2, "file_name": "b.jpg"})");
  EXPECT_EQ(
      fault(),
      "a.json: has two images with the name 'b.jpg', the second with the id 2; "
      "expected each image once. Merge their annotations.");
  write("", kImages, R"({"id": 1, "name": "a"}, {"id": 1, "name": "b"})");
  EXPECT_EQ(
      fault(),
      "a.json: has two categories with the id 1, 'a' and 'b'; expected "
      "distinct ids. Correct the file.");
  write("", kImages, R"({"id": 1, "name": "a"}, {"id": 2, "name": "a"})");
  EXPECT_EQ(
      fault(),
      "a.json: has two categories with the name 'a', the second with the id 2; "
      "expected each class once. Correct the file.");
  write(
      annotation(7, 4, 1, "1, 2, 3, 4") + "," +
      annotation(7, 4, 1, "1, 2, 3, 4"));
  EXPECT_EQ(
      fault({.bad_boxes = BadBoxes::skip}),
      "a.json: has two annotations with the id 7; expected distinct ids. "
      "Correct the file.");
}

TEST_F(Coco, NamesAnImageThatIsMissingOrOutsideTheFolder) {
  const std::string json = write("", R"({"id": 1, "file_name": "x.jpg"})");
  EXPECT_EQ(
      fault(),
      "a.json: image 1: names the image 'x.jpg', which images does not have. "
      "Correct the folder or the name; check_files = false skips this check.");
  EXPECT_EQ(read({.check_files = false}).images.size(), 1u);
  for (const char* name : {"../a.json", "/etc/passwd", "C:/a.jpg", ""}) {
    write("", R"({"id": 1, "file_name": ")" + std::string(name) + "\"}");
    const std::string text = fault({.check_files = false});
    EXPECT_NE(text.find("expected a path below the folder"), text.npos) << text;
  }
}

TEST_F(Coco, RejectsInvalidSizesAndClasses) {
  write("", R"({"id": 1, "file_name": "b.jpg", "width": 5})");
  EXPECT_EQ(
      fault(),
      "a.json: has the width 5 and the height 0 for the image 'b.jpg' (id 1); "
      "expected its size in pixels, or neither. Correct the file.");
  write("", "");
  EXPECT_EQ(
      fault(),
      "a.json: has no images; expected at least one. Correct the file.");
  write("", kImages, "");
  EXPECT_EQ(
      fault(),
      "a.json: has no categories; expected the categories of the boxes. "
      "Correct the file.");
  write("", kImages, R"({"id": 1, "name": ""})");
  EXPECT_EQ(
      fault(),
      "a.json: has a class without a name; expected a name. Correct the file.");
  write("", kImages, R"({"id": 1, "name": "a\nb"})");
  EXPECT_EQ(
      fault(),
      "a.json: has the class 'a\\x0ab'; expected UTF-8 text without control "
      "characters. Correct the file.");
  expect_error<IoError>(
      [&] { read_coco(temp_ / "none.json", temp_.path()); },
      {"none.json", "No such file"});
}

}  // namespace
}  // namespace tern::read_coco_test
