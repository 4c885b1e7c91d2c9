#include "tern/vision/datasets/box_targets.h"

#include <cmath>

#include <gtest/gtest.h>
#include <opencv2/imgproc.hpp>
#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/data_block.h"
#include "tern/vision/datasets/presize.h"
#include "tern/vision/transforms/augment_batch.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/pixels.h"

// Boxes and points must match the transformed image: each test draws white
// rectangles and dots and finds them in the batch.
namespace tern::box_targets_test {
namespace {

const cv::Scalar kWhite(255, 255, 255);

std::vector<float> values_of(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous().view({-1});
  const float* first = flat.const_data_ptr<float>();
  return {first, first + flat.numel()};
}

/// Returns the box around all bright pixels of [H, W, C] kByte as x1, y1, x2,
/// y2, or nothing if there are none.
std::vector<float> bright_box(const torch::Tensor& image) {
  // A sharp corner covers only a small part of its pixel.
  const torch::Tensor bright = image.select(2, 0) > 60;
  const torch::Tensor rows = bright.any(1).nonzero();
  const torch::Tensor columns = bright.any(0).nonzero();
  if (rows.numel() == 0) return {};
  return {
      columns.min().item<float>(),
      rows.min().item<float>(),
      columns.max().item<float>() + 1,
      rows.max().item<float>() + 1};
}

/// Returns the center of all bright pixels.
std::pair<float, float> bright_center(const torch::Tensor& image) {
  const torch::Tensor weight = image.select(2, 0).to(torch::kFloat);
  const auto center = [&](int dim) {
    const torch::Tensor sums = weight.sum(1 - dim);
    const torch::Tensor places = torch::arange(sums.numel()) + 0.5;
    return ((sums * places).sum() / sums.sum()).item<float>();
  };
  return {center(1), center(0)};
}

struct Drawing {
  ImageSize size;
  Box box;
};

/// Converts a box of the upright image to pixels of the image as stored.
Box as_stored(const Box& box, int orientation, ImageSize stored) {
  const Matrix3 matrix = stored_from_upright(orientation, stored);
  const auto [x1, y1] = matrix.apply(box.x1, box.y1);
  const auto [x2, y2] = matrix.apply(box.x2, box.y2);
  Box moved = box;
  moved.x1 = std::min(x1, x2);
  moved.y1 = std::min(y1, y2);
  moved.x2 = std::max(x1, x2);
  moved.y2 = std::max(y1, y2);
  return moved;
}

/// Writes an image, stored with an EXIF orientation, in which the box is white.
void write_drawing(
    const std::filesystem::path& file,
    const Drawing& drawing,
    int orientation = 1) {
  const ImageSize stored =
      orientation >= 5 ? ImageSize{drawing.size.width, drawing.size.height}
                       : drawing.size;
  cv::Mat image(
      static_cast<int>(stored.height),
      static_cast<int>(stored.width),
      CV_8UC3,
      cv::Scalar(0, 0, 0));
  const Box box = as_stored(drawing.box, orientation, stored);
  cv::rectangle(
      image,
      cv::Rect(
          cv::Point(static_cast<int>(box.x1), static_cast<int>(box.y1)),
          cv::Point(static_cast<int>(box.x2), static_cast<int>(box.y2))),
      kWhite,
      cv::FILLED);
  const auto jpeg = encode(image, ".jpg", {cv::IMWRITE_JPEG_QUALITY, 98});
  write_file(file, with_orientation(jpeg, static_cast<uint8_t>(orientation)));
}

/// All transforms that move pixels, most with a probability near 1/2.
Transforms all_geometry() {
  return {
      rand_crop(),
      dihedral(0.5f),
      rotate({-40, 40}, 0.5f),
      rand_zoom({1, 1.3f}, 0.5f),
      squish({0.8f, 1.25f}, 0.3f),
      symmetric_warp({-0.2f, 0.2f}, 0.5f),
      perspective(0.15f, 0.3f),
      random_affine(
          {.degrees = {-20, 20}, .translate = 0.1f, .shear = {-5, 5}},
          0.3f)};
}

class BoxTargetsTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const {
    return (temp_ / name).string();
  }
  /// Returns a training batch of images that all have one box.
  Batch batch_of(
      const std::vector<std::string>& paths,
      const std::vector<ImageBoxes>& boxes,
      const ImageDatasetOptions& options,
      const AnnotationOptions& annotations = {},
      uint64_t seed = 1) const {
    const ImageDataset images(
        {paths,
         std::make_shared<BoxTargets>(
             paths,
             boxes,
             std::vector<std::string>{"cat", "dog"},
             annotations)},
        options);
    return images.get_batch(
        indices_of(paths),
        {.seed = seed, .training = true});
  }
  static std::vector<int64_t> indices_of(
      const std::vector<std::string>& paths) {
    std::vector<int64_t> indices;
    for (size_t i = 0; i < paths.size(); ++i) {
      indices.push_back(static_cast<int64_t>(i));
    }
    return indices;
  }

  TempFolder temp_;
};

/// Expects a box around all bright pixels.
void expect_around(
    const torch::Tensor& image,
    const torch::Tensor& box,
    double slack) {
  const std::vector<float> seen = bright_box(image), said = values_of(box);
  // A thin sliver may not be bright.
  if (std::min(said[2] - said[0], said[3] - said[1]) < 2 * slack) return;
  ASSERT_FALSE(seen.empty());
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(seen[i], said[i], slack) << i;
}

TEST_F(BoxTargetsTest, BoxesMatchTheTransformedImage) {
  for_random_cases(25, [&](uint64_t seed) {
    SampleRng rng(seed, 0, 0);
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(rng.below(high - low + 1));
    };
    const ImageSize size = {between(60, 160), between(60, 160)};
    const auto draw_box = [&] {
      const auto x = static_cast<double>(between(5, size.width - 30));
      const auto y = static_cast<double>(between(5, size.height - 30));
      return Box{
          x,
          y,
          x + static_cast<double>(between(12, 24)),
          y + static_cast<double>(between(12, 24)),
          rng.below(2) == 0 ? "cat" : "dog"};
    };
    ImageDatasetOptions options;
    options.size = {between(48, 120), between(48, 120)};
    options.sizing.resize = static_cast<ResizeMethod>(rng.below(3));
    options.sizing.padding = Padding::zeros;
    options.transforms.train = all_geometry();
    if (rng.below(3) == 0) {
      options.transforms.train = {random_resized_crop({0.4f, 1}), flip_lr()};
    }
    const int orientation = 1 + static_cast<int>(rng.below(8));
    AnnotationOptions annotations{.min_share = 0};
    const bool of_stored = rng.below(2) == 0;
    annotations.pixels =
        of_stored ? AnnotatedPixels::stored : AnnotatedPixels::upright;
    std::vector<std::string> paths;
    std::vector<ImageBoxes> boxes;
    for (int i = 0; i < 4; ++i) {
      paths.push_back(path(fmt::format("{}.jpg", i)));
      const Drawing drawing = {size, draw_box()};
      write_drawing(paths.back(), drawing, orientation);
      const bool lies = orientation >= 5;
      const ImageSize stored = lies ? ImageSize{size.width, size.height} : size;
      boxes.push_back(
          of_stored ? ImageBoxes(
                          {as_stored(drawing.box, orientation, stored)},
                          stored)
                    : ImageBoxes({drawing.box}, size));
    }
    const auto targets = std::make_shared<BoxTargets>(
        paths,
        boxes,
        std::vector<std::string>{"cat", "dog"},
        annotations);
    const ImageDataset files({paths, targets}, options);
    // Also from a pack that is smaller than the image.
    std::filesystem::remove(temp_ / "p.pack");
    const auto packed =
        files.with_pack(presize_images(files, temp_ / "p.pack", {50, 50}));
    for (const ImageDataset* images : {&files, packed.get()}) {
      const Batch batch = images->get_batch(
          indices_of(paths),
          {.seed = seed, .training = true});
      const auto scale = static_cast<double>(options.size->height) /
                         static_cast<double>(size.height);
      for (int64_t i = 0; i < 4; ++i) {
        const torch::Tensor label = batch.targets[1][i];
        const bool is_packed = images == packed.get();
        // A pixel of the pack may cover several of the image.
        const double packed =
            static_cast<double>(std::min(size.height, size.width)) / 50;
        const double slack =
            2.5 + scale * (is_packed ? 1 + 2 * std::max(packed, 1.0) : 1);
        if (label.item<int64_t>() < 0) {
          // The box has left the image, except for its interpolated edge.
          const std::vector<float> seen = bright_box(batch.inputs[0][i]);
          EXPECT_TRUE(
              seen.empty() ||
              std::min(seen[2] - seen[0], seen[3] - seen[1]) < slack);
          continue;
        }
        EXPECT_EQ(
            label.item<int64_t>(),
            boxes[i].boxes[0].label == "cat" ? 0 : 1);
        expect_around(batch.inputs[0][i], batch.targets[0][i][0], slack);
      }
    }
  });
}

TEST_F(BoxTargetsTest, PointsMatchTheTransformedImage) {
  for_random_cases(25, [&](uint64_t seed) {
    SampleRng rng(seed, 0, 0);
    std::vector<std::string> paths;
    std::vector<std::vector<Point>> points;
    for (int i = 0; i < 4; ++i) {
      const auto x = 20 + static_cast<double>(rng.below(60));
      const auto y = 20 + static_cast<double>(rng.below(50));
      paths.push_back(path(fmt::format("{}.png", i)));
      cv::Mat image(90, 100, CV_8UC3, cv::Scalar(0, 0, 0));
      const auto left = static_cast<int>(x), top = static_cast<int>(y);
      cv::rectangle(image, cv::Rect(left - 3, top - 3, 6, 6), kWhite, -1);
      write_file(paths.back(), encode(image, ".png"));
      points.push_back({{x, y}, {50, 50}});
    }
    ImageDatasetOptions options;
    options.size = {80, 110};
    options.sizing = {ResizeMethod::pad, Padding::zeros};
    options.transforms.train = all_geometry();
    const ImageDataset images(
        {paths, std::make_shared<PointTargets>(paths, points)},
        options);
    const Batch batch =
        images.get_batch({0, 1, 2, 3}, {.seed = seed, .training = true});
    for (int64_t i = 0; i < 4; ++i) {
      const std::vector<float> place = values_of(batch.targets[0][i][0]);
      const bool visible = batch.targets[1][i][0].item<bool>();
      EXPECT_EQ(
          visible,
          place[0] >= 0 && place[0] <= 110 && place[1] >= 0 && place[1] <= 80);
      const bool is_whole =
          place[0] > 8 && place[0] < 102 && place[1] > 8 && place[1] < 72;
      if (!is_whole) continue;
      const auto [x, y] = bright_center(batch.inputs[0][i]);
      EXPECT_NEAR(place[0], x, 0.5);
      EXPECT_NEAR(place[1], y, 0.5);
    }
  });
}

TEST_F(BoxTargetsTest, BatchTransformsMoveThemLikeTheLoader) {
  for_random_cases(10, [&](uint64_t seed) {
    torch::manual_seed(static_cast<int64_t>(seed));
    const int64_t count = 5, size = 96;
    torch::Tensor images = torch::zeros({count, size, size, 3}, torch::kByte);
    torch::Tensor dots = torch::zeros_like(images);
    torch::Tensor boxes = torch::zeros({count, 2, 4});
    torch::Tensor labels = torch::full({count, 2}, -1, torch::kLong);
    torch::Tensor points = torch::zeros({count, 1, 2});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t x = torch::randint(10, 60, {1}).item<int64_t>();
      const int64_t y = torch::randint(10, 60, {1}).item<int64_t>();
      images[i].slice(0, y, y + 16).slice(1, x, x + 22).fill_(255);
      boxes[i][1] = torch::tensor({x, y, x + 22, y + 16}).to(torch::kFloat);
      labels[i][1] = 4;
      dots[i].slice(0, y, y + 6).slice(1, x, x + 6).fill_(255);
      points[i][0] = torch::tensor({x + 3, y + 3}).to(torch::kFloat);
    }
    const auto augmented = [&](TargetKind kind, const Tensors& targets) {
      Batch batch{{kind == TargetKind::boxes ? images : dots}, targets};
      augment_batch(all_geometry(), Padding::zeros, {}, kind)(
          batch,
          {.training = true, .seed = seed});
      return batch;
    };
    const Tensors given = {boxes.clone(), labels.clone()};
    const Batch with_boxes = augmented(TargetKind::boxes, given);
    // The given tensors may be memory of the loader, so they must not change.
    EXPECT_TRUE(torch::equal(given[0], boxes));
    EXPECT_TRUE(torch::equal(given[1], labels));
    const Batch with_points = augmented(
        TargetKind::points,
        {points, torch::ones({count, 1}, torch::kBool)});
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(with_boxes.targets[1][i][0].item<int64_t>(), -1);
      if (with_boxes.targets[1][i][1].item<int64_t>() >= 0) {
        const torch::Tensor box = with_boxes.targets[0][i][1];
        expect_around(with_boxes.inputs[0][i], box, 2.5);
      }
      const std::vector<float> place = values_of(with_points.targets[0][i]);
      const bool is_whole =
          place[0] > 8 && place[1] > 8 && place[0] < 88 && place[1] < 88;
      if (!is_whole) continue;
      const auto [x, y] = bright_center(with_points.inputs[0][i]);
      EXPECT_NEAR(place[0], x, 0.5);
      EXPECT_NEAR(place[1], y, 0.5);
    }
  });
}

TEST_F(BoxTargetsTest, ABatchIsPaddedToItsLargestNumberOfBoxes) {
  for (const char* name : {"a.jpg", "b.jpg", "c.jpg"}) {
    write_drawing(path(name), {{40, 60}, {10, 10, 20, 20}});
  }
  Box crowd{5, 5, 30, 30, "dog"};
  crowd.crowd = true;
  const Box cat{1, 2, 11, 12, "cat"}, dog{3, 4, 23, 24, "dog"};
  Box outlined = dog;
  outlined.area = 99;
  const Batch batch = batch_of(
      {path("a.jpg"), path("b.jpg"), path("c.jpg")},
      {{{cat}}, {}, {{crowd, outlined, cat}}},
      {});
  ASSERT_EQ(batch.targets.size(), 5u);
  EXPECT_TRUE(torch::equal(
      batch.targets[0],
      torch::tensor({1, 2, 11, 12, 0, 0, 0,  0,  0, 0, 0,  0,
                     0, 0, 0,  0,  3, 4, 23, 24, 1, 2, 11, 12})
          .view({3, 2, 4})
          .to(torch::kFloat)));
  EXPECT_TRUE(torch::equal(
      batch.targets[1],
      torch::tensor({0, -1, -1, -1, 1, 0}).view({3, 2})));
  EXPECT_EQ(batch.targets[2][2][0].item<float>(), 99);
  EXPECT_EQ(batch.targets[2][2][1].item<float>(), 0);
  EXPECT_TRUE(
      torch::equal(batch.targets[4], torch::tensor({-1, -1, 1}).view({3, 1})));
  EXPECT_EQ(values_of(batch.targets[3][2]), (std::vector<float>{5, 5, 30, 30}));
  EXPECT_TRUE(torch::equal(
      pack_boxes(batch.targets),
      torch::tensor(
          {0, 0, 1, 2, 11, 12, 2, 1, 3, 4, 23, 24, 2, 0, 1, 2, 11, 12})
          .view({3, 6})
          .to(torch::kFloat)));
}

TEST_F(
    BoxTargetsTest,
    RejectsAnImageRotatedByExifUnlessAnnotatedPixelsAreKnown) {
  const std::vector<std::string> paths = {path("a.jpg")};
  const Drawing drawing = {{40, 60}, {10, 10, 20, 20}};
  const auto batch = [&](int orientation,
                         ImageSize said,
                         const AnnotationOptions& options = {}) {
    write_drawing(paths[0], drawing, orientation);
    Box box = drawing.box;
    box.label = "cat";
    return batch_of(paths, {ImageBoxes({box}, said)}, {}, options);
  };
  const auto refused = [&](int orientation, ImageSize said) {
    expect_error<DataError>(
        [&] { batch(orientation, said); },
        {"a.jpg", "has the EXIF orientation", "annotations.pixels"});
  };
  refused(6, {});
  refused(3, {40, 60});
  EXPECT_EQ(
      values_of(batch(6, {40, 60}).targets[0]),
      (std::vector<float>{10, 10, 20, 20}));
  EXPECT_EQ(
      values_of(batch(3, {}, {.pixels = AnnotatedPixels::upright}).targets[0]),
      (std::vector<float>{10, 10, 20, 20}));
  EXPECT_EQ(
      values_of(batch(3, {}, {.pixels = AnnotatedPixels::stored}).targets[0]),
      (std::vector<float>{40, 20, 50, 30}));
  // The stored image is 60 high and 40 wide; orientation 6 rotates it by 90
  // degrees.
  EXPECT_EQ(
      values_of(batch(6, {60, 40}).targets[0]),
      (std::vector<float>{40, 10, 50, 20}));
}

TEST_F(BoxTargetsTest, TheReaderMayKnowTheAnnotatedPixels) {
  const std::vector<std::string> paths = {path("a.jpg")};
  const Drawing drawing = {{40, 60}, {10, 10, 20, 20}};
  write_drawing(paths[0], drawing, 3);
  Box box = drawing.box;
  box.label = "cat";
  const auto boxes = [&](AnnotatedPixels known,
                         const AnnotationOptions& options) {
    return values_of(
        batch_of(paths, {ImageBoxes({box}, {40, 60}, known)}, {}, options)
            .targets[0]);
  };
  const std::vector<float> as_stored = {40, 20, 50, 30};
  const std::vector<float> as_upright = {10, 10, 20, 20};
  EXPECT_EQ(boxes(AnnotatedPixels::upright, {}), as_upright);
  EXPECT_EQ(boxes(AnnotatedPixels::stored, {}), as_stored);
  EXPECT_EQ(
      boxes(AnnotatedPixels::stored, {.pixels = AnnotatedPixels::upright}),
      as_upright);
}

TEST_F(BoxTargetsTest, OfUprightImagesNeedImagesThatAreRotated) {
  write_drawing(path("a.jpg"), {{40, 60}, {10, 10, 20, 20}}, 3);
  write_drawing(path("b.jpg"), {{40, 60}, {10, 10, 20, 20}}, 3);
  const auto bunch = [&](AnnotatedPixels pixels, bool rotates) {
    const DataBlock block{
        .items = {{path("a.jpg")}, {path("b.jpg")}},
        .split =
            [](const ImageItems&) {
              return std::vector<Split>{Split::train, Split::valid};
            },
        .boxes =
            [&](const ImageItem&) {
              return ImageBoxes({{1, 2, 3, 4, "cat"}}, {40, 60}, pixels);
            }};
    return block.bunch({.decode = {.exif_orientation = rotates}, .workers = 0});
  };
  bunch(AnnotatedPixels::upright, /*rotates=*/true);
  bunch(AnnotatedPixels::stored, /*rotates=*/false);
  expect_error<c10::ValueError>(
      [&] { bunch(AnnotatedPixels::upright, /*rotates=*/false); },
      {"[ImageDataBunch]", "upright", "YoloOptions::exif_orientation"});
}

TEST_F(BoxTargetsTest, AcceptsAnImageRotatedByExifThatHasNoBoxes) {
  const std::vector<std::string> paths = {path("a.jpg")};
  for (const int orientation : {3, 6}) {
    write_drawing(paths[0], {{40, 60}, {10, 10, 20, 20}}, orientation);
    for (const ImageSize size : {ImageSize{}, ImageSize{40, 60}}) {
      const Batch batch = batch_of(paths, {ImageBoxes({}, size)}, {});
      EXPECT_EQ(batch.targets[1].item<int64_t>(), -1);
    }
    const ImageDataset with_points(
        {paths,
         std::make_shared<PointTargets>(
             paths,
             std::vector<std::vector<Point>>{{{.visible = false}}})},
        {});
    EXPECT_FALSE(with_points.get_batch({0}, {}).targets[1].item<bool>());
  }
}

TEST_F(BoxTargetsTest, FlipsSwapThePointsOfAPair) {
  const std::vector<std::string> paths = {path("a.png")};
  write_image(paths[0], 20, 20);
  const std::vector<std::vector<Point>> points = {
      {{2, 5}, {18, 5}, {9, 9}, {0, 0, false}}};
  const auto moved = [&](const Transforms& transforms) {
    ImageDatasetOptions options;
    options.transforms.train = transforms;
    AnnotationOptions annotations;
    annotations.flip_pairs = {{0, 1}, {2, 3}};
    const ImageDataset images(
        {paths, std::make_shared<PointTargets>(paths, points, annotations)},
        options);
    return images.get_batch({0}, {.seed = 1, .training = true}).targets;
  };
  const Tensors plain = moved({});
  EXPECT_EQ(values_of(plain[0]), (std::vector<float>{2, 5, 18, 5, 9, 9, 0, 0}));
  const Tensors mirrored = moved({flip_lr(1)});
  EXPECT_EQ(
      values_of(mirrored[0]),
      (std::vector<float>{2, 5, 18, 5, 0, 0, 11, 9}));
  EXPECT_TRUE(torch::equal(
      mirrored[1],
      torch::tensor({true, true, false, true}).view({1, 4})));
  // A rotation by 180 degrees flips nothing.
  const Tensors turned = moved({rotate({180, 180}, 1)});
  EXPECT_NEAR(turned[0][0][0][0].item<float>(), 18, 1e-4);
}

TEST_F(BoxTargetsTest, ErrorsOfInvalidBoxesNameTheImageAndTheRemedy) {
  const std::vector<std::string> paths = {path("a.jpg")};
  write_drawing(paths[0], {{40, 60}, {10, 10, 20, 20}});
  const auto refused = [&](const ImageBoxes& boxes,
                           std::initializer_list<const char*> words) {
    std::vector<std::string> all = {"a.jpg"};
    all.insert(all.end(), words.begin(), words.end());
    try {
      batch_of(paths, {boxes}, {});
      ADD_FAILURE() << "no error for " << all.back();
    } catch (const DataError& error) {
      for (const std::string& word : all) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
            << error.what();
      }
    }
  };
  refused({{Box{5, 5, 5, 9, "cat"}}}, {"5, 5, 5, 9", "x1 below x2"});
  refused({{Box{NAN, 5, 6, 9, "cat"}}}, {"expected finite numbers"});
  refused({{Box{1, 5, 6, 9, "cow"}}}, {"the class 'cow'", "2 classes"});
  refused(
      {{Box{1, 5, 62, 9, "cat"}}},
      {"1, 5, 62, 9", "beyond the image of 60 x 40", "annotations.clip"});
  refused({{Box{-2, 5, 6, 9, "cat"}}}, {"beyond the image"});
  refused(
      {{Box{1, 5, 6, 9, "cat"}}, {80, 120}},
      {"is 60 x 40 pixels", "for an image of 120 x 80"});
  // One pixel too many counts as rounding; more is clipped only on request.
  EXPECT_EQ(
      values_of(
          batch_of(paths, {{{Box{-0.5, 5, 61, 9, "cat"}}}}, {}).targets[0]),
      (std::vector<float>{0, 5, 60, 9}));
  EXPECT_EQ(
      values_of(
          batch_of(paths, {{{Box{1, 5, 99, 9, "cat"}}}}, {}, {.clip = true})
              .targets[0]),
      (std::vector<float>{1, 5, 60, 9}));
  expect_error<c10::ValueError>(
      [&] { batch_of(paths, {{}}, {}, {.min_share = 2}); },
      {"[BoxTargets] min_share is 2", "from 0 to 1"});
}

TEST_F(BoxTargetsTest, ErrorsOfInvalidPointsNameTheImageAndTheRemedy) {
  const std::vector<std::string> paths = {path("a.png"), path("b.png")};
  expect_error<DataError>(
      [&] {
        PointTargets(paths, {{{1, 2}}, {}});
      },
      {"b.png", "has 0 points, but the first image has 1", "visible = false"});
  expect_error<DataError>(
      [&] {
        PointTargets(paths, {{{1, 2}}, {{NAN, 2}}});
      },
      {"b.png", "expected finite numbers"});
  expect_error<c10::ValueError>(
      [&] {
        PointTargets(paths, {{{1, 2}}, {{1, 2}}}, {.flip_pairs = {{0, 1}}});
      },
      {"pair 0 and 1", "1 points"});
  expect_error<c10::ValueError>(
      [&] {
        PointTargets(paths, {{{1, 2}}, {{1, 2}}}, {.flip_pairs = {{0, 0}}});
      },
      {"has a point twice"});
}

TEST_F(BoxTargetsTest, DataBlockGetsThemFromALabeller) {
  BoxAnnotations all;
  for (int i = 0; i < 6; ++i) {
    const std::string name = path(fmt::format("{}.jpg", i));
    write_drawing(name, {{40, 60}, {10, 10, 20, 20}});
    all.images.push_back(
        {name, {{{10, 10, 20, 20, i % 2 == 0 ? "dog" : "cat"}}, {40, 60}}});
  }
  DataBlock block{
      .items = all.items(),
      .split = split_by_list({"4.jpg", "5.jpg"}),
      .boxes = all.labeller()};
  ImageDataBunchOptions options;
  options.batch_size = 2;
  options.workers = 0;
  options.batch_transforms = {flip_lr(1)};
  const DataBunch data = block.bunch(options);
  EXPECT_EQ(data.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(data.outputs.at(0).kind, TargetKind::boxes);
  Batch batch = *data.valid->begin();
  EXPECT_TRUE(
      torch::equal(batch.targets[1], torch::tensor({1, 0}).view({2, 1})));
  for (const BatchTransform& transform : data.batch_transforms) {
    transform(batch, {.training = true});
  }
  EXPECT_EQ(
      values_of(batch.targets[0][0]),
      (std::vector<float>{40, 10, 50, 20}));

  block.target = TargetKind::mask;
  expect_error<c10::ValueError>(
      [&] { block.bunch(options); },
      {"[DataBlock]", "a target that matches the labeller"});
  block.boxes = {};
  block.target = TargetKind::boxes;
  expect_error<c10::ValueError>(
      [&] { block.bunch(options); },
      {"no labeller for them", "DataBlock::boxes"});

  block.target = TargetKind::category;
  block.points = [](const ImageItem&) {
    return std::vector<Point>{{10, 10}, {20, 20}};
  };
  block.classes = {"left", "right"};
  const DataBunch points = block.bunch(options);
  EXPECT_EQ(points.outputs.at(0).kind, TargetKind::points);
  EXPECT_EQ(points.outputs[0].names, block.classes);
  EXPECT_TRUE(points.classes.empty());
}

}  // namespace
}  // namespace tern::box_targets_test
