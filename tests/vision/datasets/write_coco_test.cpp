#include "tern/vision/datasets/write_coco.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/json.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/datasets/read_coco.h"

namespace tern::write_coco_test {
namespace {

std::string text_of(const std::filesystem::path& file) {
  const auto bytes = read_file(file);
  return {bytes.begin(), bytes.end()};
}

/// Draws annotations whose numbers JSON represents exactly: multiples of 1/64.
class RandomAnnotations {
 public:
  explicit RandomAnnotations(uint64_t seed) : rng_(seed) {}

  int64_t below(int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(rng_);
  }
  double pixels(double begin, double end) {
    return begin + static_cast<double>(
                       below(static_cast<int64_t>((end - begin) * 64) + 1)) /
                       64;
  }

  BoxAnnotations draw(const std::filesystem::path& folder) {
    BoxAnnotations drawn;
    const int64_t classes = 1 + below(5);
    for (int64_t i = 0; i < classes; ++i) {
      drawn.classes.push_back("\"cl\xc3\xa4ss\\ " + std::to_string(i * 7 % 5));
      drawn.category_ids.push_back(i * i * 10 + i + 1);
    }
    const int64_t images = 1 + below(6);
    for (int64_t i = 0; i < images; ++i) {
      AnnotatedImage image;
      image.id = 1 + (images - i) * (images - i);
      image.path = (folder / ("part " + std::to_string(below(2))) /
                    ("\xe7\x8c\xab" + std::to_string(i) + ".jpg"))
                       .string();
      ImageBoxes& objects = image.objects;
      if (below(4) > 0) objects.image = {1 + below(500), 1 + below(500)};
      const double width = objects.image.width > 0
                               ? static_cast<double>(objects.image.width)
                               : 1000;
      const double height = objects.image.height > 0
                                ? static_cast<double>(objects.image.height)
                                : 1000;
      for (int64_t n = below(5); n > 0; --n) {
        Box box;
        box.x1 = pixels(-1, width - 0.5);
        box.y1 = pixels(-1, height - 0.5);
        box.x2 = pixels(std::max(box.x1, 0.0) + 0.015625, width + 1);
        box.y2 = pixels(std::max(box.y1, 0.0) + 0.015625, height + 1);
        box.label = drawn.classes[static_cast<size_t>(below(classes))];
        box.crowd = below(5) == 0;
        box.area = 0.1 + static_cast<double>(below(1000)) / 7;
        objects.boxes.push_back(box);
      }
      drawn.images.push_back(std::move(image));
    }
    return drawn;
  }

  /// Returns detections of several dtypes, with padding between them.
  std::vector<ImageDetections> detect(const BoxAnnotations& annotations) {
    std::vector<ImageDetections> found;
    for (size_t i = 0; i < annotations.images.size(); ++i) {
      const int64_t count = below(6);
      ImageDetections image;
      image.boxes = torch::empty({count, 4}, torch::kDouble);
      image.scores = torch::empty({count}, torch::kDouble);
      image.labels = torch::empty({count}, torch::kLong);
      for (int64_t n = 0; n < count; ++n) {
        const double x = pixels(0, 50), y = pixels(0, 50);
        image.boxes.index_put_(
            {n},
            torch::tensor(
                {x, y, pixels(x, 100), pixels(y, 100)},
                torch::kDouble));
        image.scores[n] = static_cast<double>(below(1000)) / 1000;
        image.labels[n] = below(std::ssize(annotations.classes) + 1) - 1;
      }
      if (below(2) == 0) image.boxes = image.boxes.to(torch::kFloat);
      if (below(2) == 0) image.scores = image.scores.to(torch::kHalf);
      if (below(4) > 0) found.push_back(image);
      if (found.size() <= i) found.emplace_back();
    }
    return found;
  }

 private:
  std::mt19937_64 rng_;
};

TEST(WriteCoco, ReadsBackWhatItWrote) {
  for_random_cases(100, [](uint64_t seed) {
    const TempFolder temp;
    const BoxAnnotations drawn = RandomAnnotations(seed).draw(temp / "images");
    write_coco(temp / "a.json", drawn, temp / "images");
    const BoxAnnotations read =
        read_coco(temp / "a.json", temp / "images", {.check_files = false});
    EXPECT_EQ(read.classes, drawn.classes);
    EXPECT_EQ(read.category_ids, drawn.category_ids);
    ASSERT_EQ(read.images.size(), drawn.images.size());
    for (size_t i = 0; i < drawn.images.size(); ++i) {
      EXPECT_EQ(read.images[i].path, drawn.images[i].path);
      EXPECT_EQ(read.images[i].id, drawn.images[i].id);
      EXPECT_EQ(read.images[i].objects.boxes, drawn.images[i].objects.boxes);
      EXPECT_EQ(read.images[i].objects.image, drawn.images[i].objects.image);
    }
  });
}

TEST(WriteCoco, NumbersClassesFrom0AndComputesMissingAreas) {
  const TempFolder temp;
  BoxAnnotations given{.classes = {"cat", "dog"}};
  given.images.push_back(
      {.path = (temp / "a.jpg").string(),
       .objects = {
           {{.x1 = 1, .y1 = 2, .x2 = 4, .y2 = 6.5, .label = "dog"}},
           ImageSize(10, 20)}});
  write_coco(temp / "a.json", given, temp.path());
  EXPECT_EQ(
      text_of(temp / "a.json"),
      "{\"images\": [\n"
      "{\"id\": 0, \"file_name\": \"a.jpg\", \"width\": 20, \"height\": 10}\n"
      "],\n"
      "\"annotations\": [\n"
      "{\"id\": 1, \"image_id\": 0, \"category_id\": 1, \"bbox\": "
      "[1, 2, 3, 4.5], \"area\": 13.5, \"iscrowd\": 0}\n"
      "],\n"
      "\"categories\": [\n"
      "{\"id\": 0, \"name\": \"cat\"},\n"
      "{\"id\": 1, \"name\": \"dog\"}\n"
      "]}\n");
}

TEST(WriteCoco, RejectsWhatTheFormatCannotRepresent) {
  const TempFolder temp;
  BoxAnnotations given{.classes = {"cat"}};
  given.images.push_back({.path = "/elsewhere/a.jpg"});
  const auto write = [&] { write_coco(temp / "a.json", given, temp.path()); };
  expect_error<c10::ValueError>(
      write,
      {"[write_coco] the image '/elsewhere/a.jpg' is not in the folder",
       "expected images inside the folder"});
  given.images[0].path = (temp / "a.jpg").string();
  given.images[0].objects.boxes = {{.x2 = 1, .y2 = 1, .label = "dog"}};
  expect_error<c10::ValueError>(
      write,
      {"has the class 'dog'; expected one of the 1 classes"});
  given.images[0].objects.boxes.clear();
  given.images.push_back(given.images[0]);
  expect_error<c10::ValueError>(
      write,
      {"the id 0 of",
       "also belongs to another image",
       "Set AnnotatedImage::id"});
  given.images.pop_back();
  given.category_ids = {1, 2};
  expect_error<c10::ValueError>(
      write,
      {"2 category ids and 1 classes; expected one id per class"});
  EXPECT_FALSE(std::filesystem::exists(temp / "a.json"));
}

/// Two images with ids 7 and 3; categories 1 and 18.
BoxAnnotations two_images() {
  BoxAnnotations annotations{
      .classes = {"person", "dog"},
      .category_ids = {1, 18}};
  annotations.images.resize(2);
  annotations.images[0].id = 7;
  annotations.images[0].path = "a.jpg";
  annotations.images[1].id = 3;
  annotations.images[1].path = "b.jpg";
  return annotations;
}

ImageDetections two_detections() {
  return {
      torch::tensor(
          {{1.f, 2.f, 4.f, 6.5f}, {NAN, 0.f, 0.f, 0.f}},
          torch::kFloat),
      torch::tensor({0.75f, 0.f}, torch::kFloat),
      torch::tensor({1, -1}, torch::kLong)};
}

TEST(WriteCocoPredictions, WritesIdsAndBoxSizesAndSkipsPadding) {
  const TempFolder temp;
  write_coco_predictions(
      temp / "r.json",
      two_images(),
      {two_detections(), ImageDetections()});
  EXPECT_EQ(
      text_of(temp / "r.json"),
      "[\n{\"image_id\": 7, \"category_id\": 18, \"bbox\": [1, 2, 3, 4.5], "
      "\"score\": 0.75}\n]\n");
  write_coco_predictions(temp / "r.json", two_images(), {{}, {}});
  EXPECT_EQ(text_of(temp / "r.json"), "[\n]\n");
}

TEST(WriteCocoPredictions, RejectsTensorsOfWrongShapeAndKeepsTheOldFile) {
  const TempFolder temp;
  write_file(temp / "r.json", "old");
  const auto fault = [&](const ImageDetections& found) {
    return error_of<c10::ValueError>([&] {
      write_coco_predictions(temp / "r.json", two_images(), {found, {}});
    });
  };
  const auto starts = [&](const ImageDetections& found,
                          const std::string& begin) {
    EXPECT_EQ(fault(found).substr(0, begin.size()), begin);
  };
  ImageDetections found = two_detections();
  found.boxes = torch::zeros({2, 5});
  starts(
      found,
      "[write_coco_predictions] boxes, scores and labels of 'a.jpg' are [2, 5] "
      "Float, [2] Float, [2] Long; expected [D, 4] and [D] of a floating-point "
      "dtype, and [D] Long.");
  found = two_detections();
  found.labels = found.labels.to(torch::kInt);
  starts(found, "[write_coco_predictions] boxes, scores and labels of 'a.jpg'");
  found = two_detections();
  found.scores = torch::Tensor();
  starts(found, "[write_coco_predictions] boxes, scores and labels of 'a.jpg'");
  found = two_detections();
  found.labels[0] = 2;
  starts(
      found,
      "[write_coco_predictions] labels[0] of 'a.jpg' is 2; expected the index "
      "of one of 2 classes, or -1 for no object.");
  found = two_detections();
  found.labels[1] = 0;
  starts(
      found,
      "[write_coco_predictions] detection 1 of 'a.jpg' has the box [nan, 0, 0, "
      "0] and the score 0; expected finite numbers. Check whether the model "
      "has diverged.");
  EXPECT_NE(
      error_of<c10::ValueError>(
          [&] { write_coco_predictions(temp / "r.json", two_images(), {{}}); })
          .find("got predictions of 1 images; expected one per annotated "
                "image, 2, in their order."),
      std::string::npos);
  EXPECT_EQ(text_of(temp / "r.json"), "old");
}

// For check_coco.py, which reads the same files with pycocotools.
TEST(WriteCocoPredictions, WritesFilesForPycocotools) {
  const TempFolder temp;
  const char* const given = std::getenv("TERN_COCO_FOLDER");
  const std::filesystem::path out = given != nullptr ? given : temp.path();
  make_folders(out);
  RandomAnnotations random(5);
  for (int n = 0; n < 20; ++n) {
    const std::string name = std::to_string(n);
    const BoxAnnotations drawn = random.draw("images");
    write_coco(out / (name + ".json"), drawn, "images");
    const BoxAnnotations read =
        read_coco(out / (name + ".json"), "images", {.check_files = false});
    const std::vector<ImageDetections> found = random.detect(read);
    write_coco_predictions(out / (name + "_found.json"), read, found);
    std::string boxes, detections;
    const auto row = [](std::string& rows,
                        int64_t image,
                        int64_t category,
                        double x1,
                        double y1,
                        double x2,
                        double y2,
                        double last) {
      rows += (rows.empty() ? "[" : ", [") + std::to_string(image) + ", " +
              std::to_string(category);
      for (const double value : {x1, y1, x2, y2, last}) {
        rows += ", " + json_number(value);
      }
      rows += "]";
    };
    for (size_t i = 0; i < read.images.size(); ++i) {
      const AnnotatedImage& image = read.images[i];
      for (const Box& box : image.objects.boxes) {
        const auto at = std::ranges::find(read.classes, box.label);
        row(boxes,
            image.id,
            read.category_ids[static_cast<size_t>(at - read.classes.begin())],
            box.x1,
            box.y1,
            box.x2,
            box.y2,
            box.crowd ? -box.area : box.area);
      }
      const ImageDetections& detected = found[i];
      if (!detected.labels.defined()) continue;
      for (int64_t k = 0; k < detected.labels.size(0); ++k) {
        const auto label = detected.labels[k].item<int64_t>();
        if (label < 0) continue;
        const torch::Tensor box = detected.boxes[k];
        row(detections,
            image.id,
            read.category_ids[static_cast<size_t>(label)],
            box[0].item<double>(),
            box[1].item<double>(),
            box[2].item<double>(),
            box[3].item<double>(),
            detected.scores[k].item<double>());
      }
    }
    write_file(
        out / (name + "_expected.json"),
        fmt::format(
            R"({{"boxes": [{}], "detections": [{}]}})",
            boxes,
            detections));
  }
}

}  // namespace
}  // namespace tern::write_coco_test
