#include "tern/vision/datasets/read_voc.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::read_voc_test {
namespace {

std::string object(
    const std::string& name,
    const std::array<std::string, 4>& box,
    bool difficult = false) {
  return "<object><name>" + name + "</name><difficult>" +
         (difficult ? "1" : "0") + "</difficult><bndbox><xmin>" + box[0] +
         "</xmin><ymin>" + box[1] + "</ymin><xmax>" + box[2] + "</xmax><ymax>" +
         box[3] + "</ymax></bndbox></object>\n";
}

/// Two folders: annotations and images.
class Voc : public testing::Test {
 protected:
  Voc() {
    make_folders(temp_ / "xml");
    make_folders(temp_ / "images");
  }

  void write(
      const std::string& name,
      const std::string& objects,
      const std::string& image = "") {
    const std::string file = image.empty() ? name + ".jpg" : image;
    write_file(temp_ / "images" / (name + ".jpg"), "");
    write_file(
        temp_ / "xml" / (name + ".xml"),
        "<annotation><filename>" + file +
            "</filename><size><width>500</width><height>375</height></size>\n" +
            objects + "</annotation>");
  }

  BoxAnnotations read(const VocOptions& options = {}) {
    return read_voc(temp_ / "xml", temp_ / "images", options);
  }

  std::string fault(const VocOptions& options = {}) {
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

TEST_F(Voc, ConvertsOneBasedPixelsToEdges) {
  write(
      "b",
      object("dog", {"1", "1", "500", "375"}) +
          object("cat", {"8.5", "12", "352", "498e-1"}));
  write("a", "");
  const BoxAnnotations voc = read();
  EXPECT_EQ(voc.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_TRUE(voc.category_ids.empty());
  ASSERT_EQ(voc.images.size(), 2u);
  EXPECT_EQ(voc.images[0].path, (temp_ / "images/a.jpg").string());
  EXPECT_TRUE(voc.images[0].objects.boxes.empty());
  EXPECT_EQ(voc.images[1].id, 1);
  EXPECT_EQ(voc.images[1].objects.image, ImageSize(375, 500));
  EXPECT_EQ(
      voc.images[1].objects.boxes,
      (std::vector<Box>{
          {.x1 = 0, .y1 = 0, .x2 = 500, .y2 = 375, .label = "dog"},
          {.x1 = 7.5, .y1 = 11, .x2 = 352, .y2 = 49.8, .label = "cat"}}));
}

TEST_F(Voc, KeepsZeroBasedEdgesUnchanged) {
  write("a", object("dog", {"0", "0", "500", "375"}));
  EXPECT_EQ(
      read({.zero_based = true}).images[0].objects.boxes,
      (std::vector<Box>{
          {.x1 = 0, .y1 = 0, .x2 = 500, .y2 = 375, .label = "dog"}}));
}

TEST_F(Voc, MarksKeepsOrSkipsDifficultObjects) {
  write(
      "a",
      object("dog", {"1", "1", "9", "9"}) +
          object("cat", {"1", "1", "9", "9"}, true));
  const auto crowds = [&](DifficultObjects difficult) {
    const BoxAnnotations voc = read({.difficult = difficult});
    // The classes are the same for all three.
    EXPECT_EQ(voc.classes, (std::vector<std::string>{"cat", "dog"}));
    std::vector<bool> found;
    for (const Box& box : voc.images[0].objects.boxes) {
      found.push_back(box.crowd);
    }
    return found;
  };
  EXPECT_EQ(VocOptions().difficult, DifficultObjects::crowd);
  EXPECT_EQ(crowds(DifficultObjects::crowd), (std::vector<bool>{false, true}));
  EXPECT_EQ(crowds(DifficultObjects::keep), (std::vector<bool>{false, false}));
  EXPECT_EQ(crowds(DifficultObjects::skip), std::vector<bool>{false});
}

TEST_F(Voc, ReadsTheImagesOfAnImageSet) {
  for (const char* name : {"a", "b", "c"}) write(name, "");
  write_file(temp_ / "train.txt", "c\r\na\n");
  const BoxAnnotations voc = read({.image_set = temp_ / "train.txt"});
  ASSERT_EQ(voc.images.size(), 2u);
  EXPECT_EQ(voc.images[0].path, (temp_ / "images/c.jpg").string());
  EXPECT_EQ(voc.images[1].path, (temp_ / "images/a.jpg").string());
  write_file(temp_ / "train.txt", "c\nd  1\n");
  EXPECT_EQ(
      fault({.image_set = temp_ / "train.txt"}),
      "train.txt: lists 'd  1', but there is no xml/d  1.xml; expected a name "
      "without suffix on each line, as in ImageSets/Main/train.txt. Correct "
      "the list or the folder of the annotations.");
  write_file(temp_ / "train.txt", "../c\n");
  EXPECT_EQ(
      fault({.image_set = temp_ / "train.txt"}),
      "train.txt: lists '../c', which has a name that leads out of the folder; "
      "expected names of .xml files. Correct the list.");
}

TEST_F(Voc, KeepsTheOrderOfTheGivenClasses) {
  write("a", object("dog", {"1", "1", "9", "9"}));
  EXPECT_EQ(
      read({.classes = {"dog", "cat"}}).classes,
      (std::vector<std::string>{"dog", "cat"}));
  EXPECT_EQ(
      fault({.classes = {"cat", "bird"}}),
      "xml/a.xml:2: the object has the class 'dog'; expected one of cat, bird. "
      "Correct it, or omit such boxes with bad_boxes = BadBoxes::skip.");
  expect_error<c10::ValueError>(
      [&] {
        read({.classes = {"cat", "cat"}});
      },
      {"[read_voc] the option classes has 'cat' twice"});
}

TEST_F(Voc, NamesTheLineOfAnInvalidBox) {
  write(
      "a",
      object("dog", {"1", "1", "9", "9"}) +
          object("cat", {"0", "1", "0", "9"}));
  EXPECT_EQ(
      fault(),
      "xml/a.xml:3: the object 'cat' has xmin 0, ymin 1, xmax 0, ymax 9, a box "
      "that is outside the image; expected pixels of the image, from 1 (set "
      "zero_based for files that count from 0). Correct it, or omit such boxes "
      "with bad_boxes = BadBoxes::skip.");
}

TEST_F(Voc, SkipsInvalidBoxesWithOneWarning) {
  write("a", object("dog", {"nan", "1", "9", "9"}));
  write(
      "b",
      object("dog", {"1", "1", "502", "9"}) +
          object("cat", {"1", "1", "5", "9"}));
  std::vector<std::string> lines;
  const BoxAnnotations voc =
      read({.bad_boxes = BadBoxes::skip, .sink = [&](const std::string& line) {
              lines.push_back(line);
            }});
  EXPECT_EQ(voc.images.size(), 2u);
  EXPECT_EQ(voc.images[1].objects.boxes.size(), 1u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(
      lines[0],
      "warning: " + (temp_ / "xml").string() +
          ": 2 of 3 boxes are invalid and are omitted from training; the first "
          "is " +
          (temp_ / "xml/a.xml").string() +
          ":2: the object 'dog' has xmin nan, ymin 1, xmax 9, ymax 9, a box "
          "that is NaN or infinite; expected pixels of the image, from 1 (set "
          "zero_based for files that count from 0).");
}

TEST_F(Voc, FindsTheImageByTheFileNameIfEnabled) {
  write("a", "", "C:\\old\\1.jpg");
  EXPECT_EQ(
      fault(),
      "xml/a.xml: names the image 'C:\\old\\1.jpg', which has a backslash in "
      "its name; expected a path below the folder of the images. Correct the "
      "name.");
  EXPECT_EQ(
      read({.match_by_stem = true}).images[0].path,
      (temp_ / "images/a.jpg").string());
  write_file(temp_ / "images/a.png", "");
  EXPECT_NE(
      fault({.match_by_stem = true}).find("has several images"),
      std::string::npos);
  std::filesystem::remove(temp_ / "images/a.png");
  std::filesystem::rename(temp_ / "images/a.jpg", temp_ / "images/b.jpg");
  EXPECT_EQ(
      fault({.match_by_stem = true}),
      "xml/a.xml: has no image: there is no image with the name 'a' in images. "
      "Correct the folder.");
}

TEST_F(Voc, RejectsMissingAndDuplicateImages) {
  EXPECT_EQ(
      fault(),
      "xml: has no .xml files; expected one for each image. Correct the folder "
      "of the annotations.");
  write("a", "");
  write("b", "", "a.jpg");
  EXPECT_EQ(
      fault(),
      "xml/b.xml: annotates the image 'images/a.jpg', as xml/a.xml does; "
      "expected one file per image. Correct 'filename', or set match_by_stem.");
  write("b", "", "c.jpg");
  EXPECT_EQ(
      fault(),
      "xml/b.xml: names the image 'c.jpg', which images does not have. Correct "
      "the folder or the name; check_files = false skips this check.");
  EXPECT_EQ(read({.check_files = false}).images.size(), 2u);
  write_file(temp_ / "xml/b.xml", "<annotation/>");
  EXPECT_EQ(
      fault(),
      "xml/b.xml: has no 'filename'; expected the name of its image. Set "
      "match_by_stem to take the image of the same name.");
}

}  // namespace
}  // namespace tern::read_voc_test
