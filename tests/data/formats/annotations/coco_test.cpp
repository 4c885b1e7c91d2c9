#include "tern/data/formats/annotations/coco.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::coco_test {
namespace {

CocoFile parse(const std::string& text) {
  return parse_coco(as_bytes(text), "a.json");
}

std::string fault(const std::string& text) {
  return error_of<DataError>([&] { parse(text); });
}

/// Returns a file whose annotation has these fields besides the required ones.
std::string with_annotation(const std::string& fields) {
  return R"({"images": [], "categories": [], "annotations": [{)" + fields +
         "}]}";
}

constexpr const char* kImages =
    R"("images": [{"license": 4, "file_name": "a/1.jpg", "height": 427,
       "width": 640, "id": 397133}])";
constexpr const char* kCategories =
    R"("categories": [{"supercategory": "animal", "id": 18, "name": "dog"}])";
constexpr const char* kAnnotations =
    R"("annotations": [
      {"segmentation": [[224.24, 297.18, 228.29, 297.18]], "area": 1481.38,
       "iscrowd": 0, "image_id": 397133, "bbox": [217.62, 240.54, 38.99, 57.75],
       "category_id": 18, "id": 82445},
      {"segmentation": {"counts": [272, 2, 4], "size": [427, 640]},
       "iscrowd": 1, "image_id": 397133, "bbox": [1, 2, 3, 4],
       "category_id": 18, "id": 2, "keypoints": [{"id": 7, "bbox": null}]}])";

TEST(Coco, ReadsImagesCategoriesAndBoxesInAnyOrder) {
  const std::string info = R"("info": {"id": [1, {"images": 2}]})";
  const std::array<std::string, 3> orders = {
      std::string(kImages) + "," + kCategories + "," + kAnnotations,
      std::string(kAnnotations) + "," + info + "," + kCategories + "," +
          kImages,
      std::string(kCategories) + "," + kAnnotations + "," + kImages + "," +
          info};
  for (const std::string& order : orders) {
    const CocoFile file = parse("{" + order + "}");
    ASSERT_EQ(file.images.size(), 1u);
    EXPECT_EQ(file.images[0].id, 397133);
    EXPECT_EQ(file.images[0].file_name, "a/1.jpg");
    EXPECT_EQ(file.images[0].width, 640);
    EXPECT_EQ(file.images[0].height, 427);
    ASSERT_EQ(file.categories.size(), 1u);
    EXPECT_EQ(file.categories[0].id, 18);
    EXPECT_EQ(file.categories[0].name, "dog");
    ASSERT_EQ(file.annotations.size(), 2u);
    const CocoFile::Annotation& first = file.annotations[0];
    EXPECT_EQ(first.id, 82445);
    EXPECT_EQ(first.image_id, 397133);
    EXPECT_EQ(first.category_id, 18);
    EXPECT_EQ(
        first.bbox,
        (std::array<double, 4>{217.62, 240.54, 38.99, 57.75}));
    EXPECT_EQ(first.area, 1481.38);
    EXPECT_FALSE(first.crowd);
    EXPECT_EQ(file.annotations[1].id, 2);
    EXPECT_EQ(file.annotations[1].area, 0);
    EXPECT_TRUE(file.annotations[1].crowd);
  }
}

TEST(Coco, AcceptsWholeNumbersWrittenWithAFraction) {
  const CocoFile file = parse(with_annotation(
      R"("id": 1.0, "image_id": 2.0, "category_id": 3, "bbox": [1, 2, 3, 4],
         "iscrowd": true)"));
  EXPECT_EQ(file.annotations[0].id, 1);
  EXPECT_EQ(file.annotations[0].image_id, 2);
  EXPECT_TRUE(file.annotations[0].crowd);
}

TEST(Coco, NamesTheItemThatIsWrong) {
  EXPECT_EQ(
      fault(with_annotation(R"("id": 7, "image_id": 1, "category_id": 2)")),
      "a.json: annotations[0] (id 7) has no 'bbox'; expected this key, as in a "
      "COCO instances file. Correct the file.");
  EXPECT_EQ(
      fault(with_annotation(R"("image_id": "1")")),
      "a.json: annotations[0] has the text '1' in 'image_id'; expected a whole "
      "number. Correct the file.");
  EXPECT_EQ(
      fault(with_annotation(R"("id": 7, "bbox": [1, 2, 3])")),
      "a.json: annotations[0] (id 7) has 3 numbers in 'bbox'; expected four: "
      "left edge, top edge, width and height. Correct the file.");
  EXPECT_EQ(
      fault(with_annotation(R"("id": 7, "bbox": [1, 2, null, 4])")),
      "a.json: annotations[0] (id 7) has null in 'bbox'; expected a number. "
      "Correct the file.");
  EXPECT_EQ(
      fault(with_annotation(R"("bbox": 5)")),
      "a.json: annotations[0] has 5 in 'bbox'; expected an array of four "
      "numbers. Correct the file.");
  EXPECT_EQ(
      fault(with_annotation(R"("id": 1e30)")),
      "a.json: annotations[0] has 1e+30 in 'id'; expected a whole number. "
      "Correct the file.");
  EXPECT_EQ(
      fault(with_annotation(R"("id": 7, "iscrowd": 2)")),
      "a.json: annotations[0] (id 7) has 2 in 'iscrowd'; expected 0 or 1. "
      "Correct the file.");
  EXPECT_EQ(
      fault(with_annotation(R"("id": 7, "id": 8)")),
      "a.json: annotations[0] (id 7) has 'id' twice. Correct the file.");
  EXPECT_EQ(
      fault(R"({"images": [{"id": 1, "file_name": "a"}, {"id": 2}]})"),
      "a.json: images[1] (id 2) has no 'file_name'; expected this key, as in a "
      "COCO instances file. Correct the file.");
  EXPECT_EQ(
      fault(R"({"categories": [{"id": 1, "name": {}}]})"),
      "a.json: categories[0] (id 1) has an object in 'name'; expected a "
      "string. Correct the file.");
}

TEST(Coco, DescribesTheExpectedFile) {
  EXPECT_EQ(fault(""), "a.json: is empty; expected a COCO instances file.");
  EXPECT_EQ(fault(" \n"), fault(""));
  EXPECT_EQ(
      fault("[]"),
      "a.json: is JSON of an array; expected an object with the keys 'images', "
      "'annotations' and 'categories', as in a COCO instances file.");
  EXPECT_EQ(
      fault(R"({"images": [], "annotations": []})"),
      "a.json: has no key 'categories'; expected a COCO instances file with "
      "the keys 'images', 'annotations' and 'categories'.");
  EXPECT_EQ(
      fault(R"({"images": {}})"),
      "a.json: has an object in 'images'; expected an array of objects. "
      "Correct the file.");
  EXPECT_EQ(
      fault(R"({"images": [7]})"),
      "a.json: has 7 in 'images'; expected an array of objects. Correct the "
      "file.");
  EXPECT_EQ(
      fault(R"({"images": [], "images": []})"),
      "a.json: has the key 'images' twice. Correct the file.");
}

TEST(Coco, NamesTheByteThatIsNotJson) {
  EXPECT_EQ(
      fault("{\"images\": [\n{\"id\": 1"),
      "a.json: is damaged at byte 21 (line 2, in images[0]): the JSON ends too "
      "early. Is the file truncated? Correct the file, or download it again.");
  EXPECT_EQ(
      fault(with_annotation(R"("bbox": [NaN)")),
      "a.json: is damaged at byte 59 (line 1, in annotations[0]): expected "
      "other JSON than 'N'; NaN and Infinity, which Python writes, are not "
      "valid JSON. Correct the file, or download it again.");
  EXPECT_EQ(
      fault(with_annotation(R"("area": 1e999)")),
      "a.json: is damaged at byte 62 (line 1, in annotations[0]): the number "
      "is larger than a double can hold. Correct the file, or download it "
      "again.");
  EXPECT_EQ(
      fault("{\"categories\": [{\"name\": \"\xff\"}]}"),
      "a.json: is damaged at byte 26 (line 1, in categories[0]): the text is "
      "not UTF-8. Correct the file, or download it again.");
  EXPECT_EQ(
      fault(std::string("{}\0", 3)),
      "a.json: has a zero byte at byte 2; expected JSON. Download the file "
      "again.");
}

TEST(Coco, RejectsDeepNestingWithoutRecursion) {
  const std::string deep(5'000'000, '[');
  EXPECT_EQ(
      fault("{\"info\": " + deep),
      "a.json: has more than 64 levels of objects and arrays; expected a COCO "
      "instances file.");
  EXPECT_EQ(
      fault(with_annotation("\"segmentation\": " + deep)),
      "a.json: has more than 64 levels of objects and arrays; expected a COCO "
      "instances file.");
}

}  // namespace
}  // namespace tern::coco_test
