#include "tern/vision/datasets/read_boxes_csv.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::read_boxes_csv_test {
namespace {

/// A table, and the images a.jpg, b.jpg and c.jpg.
class BoxTable : public testing::Test {
 protected:
  BoxTable() {
    for (const char* name : {"a.jpg", "b.jpg", "c.jpg"}) {
      write_file(temp_ / name, "");
    }
  }

  BoxAnnotations read(const std::string& text, const BoxCsv& options = {}) {
    write_file(temp_ / "boxes.csv", text);
    return read_boxes_csv(temp_ / "boxes.csv", temp_.path(), options);
  }

  std::string fault(const std::string& text, const BoxCsv& options = {}) {
    std::string error = error_of<DataError>([&] { read(text, options); });
    const std::string folder = temp_.path().string() + "/";
    for (size_t at = error.find(folder); at != error.npos;
         at = error.find(folder)) {
      error.erase(at, folder.size());
    }
    return error;
  }

  std::string path(const std::string& name) { return (temp_ / name).string(); }

  TempFolder temp_;
};

const Box kDog{.x1 = 1, .y1 = 2, .x2 = 30.5, .y2 = 40, .label = "dog"};
const Box kCat{.x1 = 5, .y1 = 6, .x2 = 7, .y2 = 8, .label = "cat"};

TEST_F(BoxTable, ReadsARowPerObject) {
  const BoxAnnotations boxes = read(
      "image,label,x1,y1,x2,y2\n"
      "b.jpg,dog,1,2,30.5,40\n"
      "a.jpg,,,,,\n"
      "c.jpg,cat,5,6,7,8\n"
      "b.jpg,cat, 5 ,6,7,8\n");
  EXPECT_EQ(boxes.classes, (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(boxes.images.size(), 3u);
  EXPECT_EQ(boxes.images[0].path, path("b.jpg"));
  EXPECT_EQ(boxes.images[0].objects.boxes, (std::vector<Box>{kDog, kCat}));
  EXPECT_EQ(boxes.images[0].objects.image, ImageSize());
  EXPECT_EQ(boxes.images[1].path, path("a.jpg"));
  EXPECT_EQ(boxes.images[1].id, 1);
  EXPECT_TRUE(boxes.images[1].objects.boxes.empty());
  EXPECT_EQ(boxes.images[2].objects.boxes, std::vector<Box>{kCat});
}

TEST_F(BoxTable, ReadsRetinaNetsTablesWithoutAHeader) {
  const BoxAnnotations boxes =
      read("a.jpg,1,2,30.5,40,dog\nb.jpg,,,,,\na.jpg,5,6,7,8,cat\n");
  ASSERT_EQ(boxes.images.size(), 2u);
  EXPECT_EQ(boxes.images[0].objects.boxes, (std::vector<Box>{kDog, kCat}));
  EXPECT_TRUE(boxes.images[1].objects.boxes.empty());
  // Detecting a header needs the files; without them, set `header`.
  EXPECT_EQ(
      read("x.jpg,5,6,7,8,cat\n", {.header = false, .check_files = false})
          .images[0]
          .objects.boxes,
      std::vector<Box>{kCat});
}

TEST_F(BoxTable, ReadsCustomColumnsAndXywhBoxes) {
  EXPECT_EQ(
      read(
          "h;w;top;left;class;name\n38;29.5;2;1;dog;a\n",
          {.path_column = "name",
           .box_columns = {"left", "top", "w", "h"},
           .label_column = "class",
           .format = BoxFormat::xywh,
           .delimiter = ';',
           .suffix = ".jpg"})
          .images[0]
          .objects.boxes,
      std::vector<Box>{kDog});
  EXPECT_EQ(
      read(
          "a.jpg,dog,1,2,30.5,40\n",
          {.box_columns = {"2", "3", "4", "5"}, .label_column = "1"})
          .images[0]
          .objects.boxes,
      std::vector<Box>{kDog});
}

TEST_F(BoxTable, NamesTheInvalidLine) {
  const std::string header = "path,x1,y1,x2,y2,label\n";
  EXPECT_EQ(
      fault(header + "a.jpg,1,2,x,4,cat\n"),
      "boxes.csv:2 (a.jpg): has 'x' in the column 'x2'; expected a number, or "
      "empty cells in all box columns and in the class column, 'label', for an "
      "image without objects. Correct this line of the table.");
  EXPECT_EQ(
      fault(header + "a.jpg,1,2,,4,cat\n").find("boxes.csv:2 (a.jpg): has ''"),
      0u);
  EXPECT_EQ(
      fault(header + "a.jpg,,,,,cat\n").find("boxes.csv:2 (a.jpg): has ''"),
      0u);
  EXPECT_EQ(
      fault(header + "a.jpg,1,2,3,4,\n"),
      "boxes.csv:2 (a.jpg): has a class without a name; expected a name. "
      "Correct the file.");
  EXPECT_EQ(
      fault(header + "a.jpg,1,2,3,4,\xff\n"),
      "boxes.csv:2 (a.jpg): has the class '\\xff'; expected UTF-8 text without "
      "control characters. Correct the file.");
  EXPECT_EQ(
      fault(header + "\nx.jpg,1,2,3,4,cat\n"),
      "boxes.csv:3 (x.jpg): names an image that does not exist. Correct the "
      "folder or the path; check_files = false skips this check.");
  EXPECT_EQ(
      fault("path,xmin,ymin,xmax,ymax,label\na.jpg,1,2,3,4,cat\n"),
      "boxes.csv: has no column 'x1'; expected one of: path, xmin, ymin, xmax, "
      "ymax, label.");
}

TEST_F(BoxTable, NamesTheLineOfAnInvalidBox) {
  const std::string header = "path,x1,y1,x2,y2,label\n";
  const std::string cure =
      " Correct it, or omit such boxes with bad_boxes = BadBoxes::skip.";
  EXPECT_EQ(
      fault(header + "a.jpg,1,2,1,4,cat\n"),
      "boxes.csv:2 (a.jpg): the box [1, 2, 1, 4] has no width; expected left, "
      "upper, right and lower edge in pixels of the image." +
          cure);
  EXPECT_EQ(
      fault(header + "a.jpg,1,-2,3,4,cat\n", {.format = BoxFormat::xywh}),
      "boxes.csv:2 (a.jpg): the box [1, -2, 3, 4] reaches beyond any image; "
      "expected left edge, top edge, width and height in pixels of the image." +
          cure);
  EXPECT_EQ(
      fault(header + "a.jpg,1,2,inf,4,cat\n"),
      "boxes.csv:2 (a.jpg): the box [1, 2, inf, 4] is NaN or infinite; "
      "expected left, upper, right and lower edge in pixels of the image." +
          cure);
  EXPECT_EQ(
      fault(header + "a.jpg,1,2,3,4,cat\n", {.classes = {"dog"}}),
      "boxes.csv:2 (a.jpg): the object has the class 'cat'; expected one of "
      "dog." +
          cure);
}

TEST_F(BoxTable, SkipsInvalidBoxesWithOneWarning) {
  std::vector<std::string> lines;
  const BoxAnnotations boxes = read(
      "path,x1,y1,x2,y2,label\n"
      "a.jpg,1,2,1,4,cat\nb.jpg,5,6,7,8,cat\nb.jpg,1,2,3,4,dog\n",
      {.classes = {"cat"},
       .bad_boxes = BadBoxes::skip,
       .sink = [&](const std::string& line) { lines.push_back(line); }});
  EXPECT_EQ(boxes.images.size(), 2u);
  EXPECT_TRUE(boxes.images[0].objects.boxes.empty());
  EXPECT_EQ(boxes.images[1].objects.boxes, std::vector<Box>{kCat});
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "warning: " + path("boxes.csv") +
          ": 2 of 3 boxes are invalid and are omitted from training; the first "
          "is " +
          path("boxes.csv") + ":2 (" + path("a.jpg") +
          "): the box [1, 2, 1, 4] has no width; expected left, upper, right "
          "and lower edge in pixels of the image."}));
}

}  // namespace
}  // namespace tern::read_boxes_csv_test
