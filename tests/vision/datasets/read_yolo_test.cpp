#include "tern/vision/datasets/read_yolo.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"

namespace tern::read_yolo_test {
namespace {

/// Two folders: labels and images.
class Yolo : public testing::Test {
 protected:
  void image(const std::string& name, int height, int width) {
    write_image(temp_ / "images" / name, height, width);
  }
  void label(const std::string& name, const std::string& text) {
    const auto path = temp_ / "labels" / name;
    make_folders(path.parent_path());
    write_file(path, text);
  }

  BoxAnnotations read(
      YoloOptions options = {},
      const std::vector<std::string>& classes = {"cat", "dog"}) {
    if (!options.sink) options.sink = silent();
    return read_yolo(temp_ / "labels", temp_ / "images", classes, options);
  }

  std::string fault(
      const YoloOptions& options = {},
      const std::vector<std::string>& classes = {"cat", "dog"}) {
    std::string text = error_of<DataError>([&] { read(options, classes); });
    const std::string folder = temp_.path().string() + "/";
    for (size_t at = text.find(folder); at != text.npos;
         at = text.find(folder)) {
      text.erase(at, folder.size());
    }
    return text;
  }

  TempFolder temp_;
};

TEST_F(Yolo, ConvertsBoxesToPixelsOfTheirImage) {
  image("b.png", 100, 200);
  image("a/c.png", 8, 16);
  image("d.png", 8, 8);
  image("e.png", 8, 8);
  label("b.txt", "1 0.5 0.5 1 1\n0 0.25 0.5 0.5 0.25\n");
  label("a/c.txt", "1 0.5 0.25 0.25 0.5");
  label("e.txt", "");
  const BoxAnnotations yolo = read();
  EXPECT_EQ(yolo.classes, (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(yolo.images.size(), 4u);
  EXPECT_EQ(yolo.images[0].path, (temp_ / "images/a/c.png").string());
  EXPECT_EQ(yolo.images[0].objects.image, ImageSize(8, 16));
  EXPECT_EQ(
      yolo.images[0].objects.boxes,
      (std::vector<Box>{
          {.x1 = 6, .y1 = 0, .x2 = 10, .y2 = 4, .label = "dog"}}));
  EXPECT_EQ(yolo.images[1].id, 1);
  EXPECT_EQ(
      yolo.images[1].objects.boxes,
      (std::vector<Box>{
          {.x1 = 0, .y1 = 0, .x2 = 200, .y2 = 100, .label = "dog"},
          {.x1 = 0, .y1 = 37.5, .x2 = 100, .y2 = 62.5, .label = "cat"}}));
  EXPECT_TRUE(yolo.images[2].objects.boxes.empty());
  EXPECT_TRUE(yolo.images[3].objects.boxes.empty());
}

TEST_F(Yolo, IsRelativeToTheUprightImageByDefault) {
  make_folders(temp_ / "images");
  write_file(
      temp_ / "images/a.jpg",
      with_orientation(encode(random_image(16, 32), ".jpg"), 6));
  label("a.txt", "0 0.5 0.5 1 1");
  EXPECT_EQ(read().images[0].objects.image, ImageSize(32, 16));
  EXPECT_EQ(read().images[0].objects.boxes[0].x2, 16);
  const BoxAnnotations stored = read({.exif_orientation = false});
  EXPECT_EQ(stored.images[0].objects.image, ImageSize(16, 32));
  EXPECT_EQ(stored.images[0].objects.boxes[0].x2, 32);
  EXPECT_EQ(read().images[0].objects.pixels, AnnotatedPixels::upright);
  EXPECT_EQ(stored.images[0].objects.pixels, AnnotatedPixels::stored);
}

TEST_F(Yolo, ReadsTheClassesFromTheFolder) {
  image("a.png", 8, 8);
  label("a.txt", "1 0.5 0.5 1 1");
  EXPECT_EQ(
      fault({}, {}),
      "labels: has no classes.txt, and no classes were given; expected the "
      "class names in order of their numbers. Pass the names in data.yaml to "
      "read_yolo.");
  label("classes.txt", "fox\r\nhare\r\n");
  EXPECT_EQ(read({}, {}).classes, (std::vector<std::string>{"fox", "hare"}));
  EXPECT_EQ(read({}, {}).images[0].objects.boxes[0].label, "hare");
}

TEST_F(Yolo, ConvertsPolygonsToBoxesIfEnabled) {
  image("a.png", 8, 16);
  label("a.txt", "1 0.5 0.25 1 0.5 0.25 0.75");
  EXPECT_NE(fault().find("labels/a.txt:1: the line has 7"), std::string::npos);
  EXPECT_EQ(
      read({.polygons = true}).images[0].objects.boxes,
      (std::vector<Box>{
          {.x1 = 4, .y1 = 2, .x2 = 16, .y2 = 6, .label = "dog"}}));
}

TEST_F(Yolo, NamesTheLineOfAnInvalidBox) {
  image("a.png", 10, 10);
  const std::string cure =
      "; expected center, width and height relative to the image, from 0 to 1. "
      "Correct it, or omit such boxes with bad_boxes = BadBoxes::skip.";
  label("a.txt", "0 0.5 0.5 1 1\n0 0.5 0.5 0 1");
  EXPECT_EQ(fault(), "labels/a.txt:2: the box 0.5 0.5 0 1 has no width" + cure);
  label("a.txt", "0 5 5 4 4");
  EXPECT_EQ(
      fault(),
      "labels/a.txt:1: the box 5 5 4 4 reaches beyond the image of 10 x 10 "
      "pixels" +
          cure);
  label("a.txt", "0 nan 0.5 1 1");
  EXPECT_EQ(
      fault(),
      "labels/a.txt:1: the box nan 0.5 1 1 is NaN or infinite" + cure);
  for (const char* number : {"2", "-1"}) {
    label("a.txt", std::string(number) + " 0.5 0.5 1 1");
    EXPECT_EQ(
        fault(),
        "labels/a.txt:1: the class is " + std::string(number) +
            "; expected a number from 0 to 1, of one of the 2 classes. Correct "
            "it, or omit such boxes with bad_boxes = BadBoxes::skip.");
  }
}

TEST_F(Yolo, SkipsInvalidBoxesWithOneWarning) {
  image("a.png", 10, 10);
  label("a.txt", "7 0.5 0.5 1 1\n0 0.5 0.5 0 1\n0 0.5 0.5 1 1");
  std::vector<std::string> lines;
  const BoxAnnotations yolo =
      read({.bad_boxes = BadBoxes::skip, .sink = [&](const std::string& line) {
              lines.push_back(line);
            }});
  EXPECT_EQ(yolo.images[0].objects.boxes.size(), 1u);
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "warning: " + (temp_ / "labels").string() +
          ": 2 of 3 boxes are invalid and are omitted from training; the first "
          "is " +
          (temp_ / "labels/a.txt").string() +
          ":1: the class is 7; expected a number from 0 to 1, of one of the 2 "
          "classes."}));
}

TEST_F(Yolo, RejectsFoldersThatDoNotMatch) {
  image("a.png", 8, 8);
  make_folders(temp_ / "labels");
  EXPECT_EQ(
      fault(),
      "labels: has no label file for any of the 1 images; expected "
      "labels/a.txt for the first one. Correct the folder of the labels.");
  label("a.txt", "0 0.5 0.5 1 1");
  label("b.txt", "0 0.5 0.5 1 1");
  EXPECT_EQ(
      fault(),
      "labels/b.txt: has no image; 1 label file of labels has none, expected "
      "an image of the same name for each. Remove the file, correct the folder "
      "of the images, or set check_labels to false.");
  EXPECT_EQ(read({.check_labels = false}).images.size(), 1u);
  std::filesystem::remove(temp_ / "labels/b.txt");
  image("a.jpg", 8, 8);
  EXPECT_EQ(
      fault(),
      "images/a.png: has the label file labels/a.txt, as does images/a.jpg; "
      "expected images whose names differ in more than the suffix. Rename one "
      "of them.");
}

TEST_F(Yolo, NamesAnImageWhoseHeaderIsDamaged) {
  image("a.png", 8, 8);
  label("a.txt", "0 0.5 0.5 1 1");
  for (const char* bytes : {"", "no image"}) {
    write_file(temp_ / "images/a.png", std::string_view(bytes));
    EXPECT_EQ(fault().find("images/a.png: "), 0u) << fault();
  }
}

}  // namespace
}  // namespace tern::read_yolo_test
