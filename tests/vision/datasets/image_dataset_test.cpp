#include "tern/vision/datasets/image_dataset.h"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/upsampling.h>

#include "tern/data/data_loader.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/presize.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/pixels.h"

namespace tern::image_dataset_test {
namespace {

TEST(ImageDataset, PutsEachImageAtItsPositionInTheBatch) {
  const TempFolder temp;
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    paths.push_back((temp / (std::to_string(i) + ".png")).string());
    write_file(paths[i], encode(cv::Mat(4, 5, CV_8UC1, cv::Scalar(i)), ".png"));
  }
  const ImageDataset images(paths, {7, 8, 9});
  EXPECT_EQ(images.size(), 3);
  EXPECT_EQ(images.image_size(), (ImageSize{4, 5}));
  const Batch batch = images.get_batch({2, 0}, {});
  ASSERT_EQ(batch.inputs.at(0).sizes(), (std::vector<int64_t>{2, 4, 5, 3}));
  EXPECT_EQ(batch.inputs[0].scalar_type(), torch::kByte);
  EXPECT_TRUE((batch.inputs[0][0] == 2).all().item<bool>());
  EXPECT_TRUE((batch.inputs[0][1] == 0).all().item<bool>());
  EXPECT_TRUE(
      torch::equal(batch.targets.at(0), torch::tensor({9, 7}, torch::kLong)));
}

TEST(ImageDataset, ReturnsOneChannelOnRequest) {
  const TempFolder temp;
  write_image(temp / "a.png", 4, 5);
  const ImageDataset images(
      {(temp / "a.png").string()},
      {0},
      {.decode = {.channels = 1}});
  EXPECT_EQ(
      images.get_batch({0}, {}).inputs[0].sizes(),
      (std::vector<int64_t>{1, 4, 5, 1}));
}

TEST(ImageDataset, SquishesAllImagesToTheSize) {
  const TempFolder temp;
  write_image(temp / "a.png", 40, 50);
  write_image(temp / "b.png", 8, 9);
  const ImageDataset images(
      {(temp / "a.png").string(), (temp / "b.png").string()},
      {0, 1},
      {.size = ImageSize{16, 12}});
  EXPECT_EQ(
      images.get_batch({0, 1}, {}).inputs[0].sizes(),
      (std::vector<int64_t>{2, 16, 12, 3}));
}

TEST(ImageDataset, ResizesLikePillowInEvaluation) {
  namespace F = torch::nn::functional;
  const TempFolder temp;
  for (const char* suffix : {".png", ".jpg"}) {
    const std::string path = (temp / (std::string("a") + suffix)).string();
    write_file(path, encode(random_image(260, 390), suffix));
    // Shrinks by 3.25 and crops the center; enlarges and pads with black.
    for (const bool is_crop : {true, false}) {
      const int64_t side = is_crop ? 80 : 450;
      const ImageDataset images(
          {path},
          {0},
          {.size = ImageSize{side, side},
           .sizing = {
               .resize = is_crop ? ResizeMethod::crop : ResizeMethod::pad,
               .padding = Padding::zeros}});
      const ImageSize resized =
          is_crop ? ImageSize{80, 120} : ImageSize{300, 450};
      const torch::Tensor whole =
          F::interpolate(
              read_image(path).permute({2, 0, 1}).unsqueeze(0).to(
                  torch::kDouble),
              F::InterpolateFuncOptions()
                  .size(std::vector<int64_t>{resized.height, resized.width})
                  .mode(torch::kBilinear)
                  .align_corners(false)
                  .antialias(true))[0]
              .permute({1, 2, 0});
      torch::Tensor expected = torch::zeros({side, side, 3}, torch::kDouble);
      if (is_crop) {
        expected = whole.slice(1, 20, 100);
      } else {
        expected.slice(0, 75, 375).copy_(whole);
      }
      const torch::Tensor sample = images.get_batch({0}, {}).inputs[0][0];
      EXPECT_LE(
          (sample.to(torch::kDouble) - expected).abs().max().item<double>(),
          1)
          << suffix << " to " << side;
    }
  }
}

TEST(ImageDataset, NamesBothFilesWhenSizesDiffer) {
  const TempFolder temp;
  write_image(temp / "a.png", 4, 5);
  write_image(temp / "b.png", 5, 4);
  const ImageDataset images(
      {(temp / "a.png").string(), (temp / "b.png").string()},
      {0, 1});
  const std::string error = error_of<DataError>([&] {
    images.get_batch({0, 1}, {});
  });
  EXPECT_NE(error.find("b.png: is 5 x 4"), std::string::npos) << error;
  EXPECT_NE(error.find("a.png is 4 x 5"), std::string::npos) << error;
  EXPECT_NE(error.find("Set `size`"), std::string::npos) << error;
}

TEST(ImageDataset, NamesADamagedFile) {
  const TempFolder temp;
  write_image(temp / "a.png");
  write_file(temp / "b.png", "not an image");
  const ImageDataset images(
      {(temp / "a.png").string(), (temp / "b.png").string()},
      {0, 1});
  expect_error<DataError>(
      [&] {
        images.get_batch({0, 1}, {});
      },
      {"b.png: is not an image"});
  EXPECT_EQ(images.describe(1), (temp / "b.png").string());
}

TEST(ImageDataset, NamesAFileThatWasDeleted) {
  const TempFolder temp;
  write_image(temp / "a.png");
  const ImageDataset images({(temp / "a.png").string()}, {0});
  std::filesystem::remove(temp / "a.png");
  expect_error<IoError>([&] { images.get_batch({0}, {}); }, {"a.png"});
}

TEST(ImageDataset, NeedsOneLabelForEachPath) {
  expect_error<c10::ValueError>(
      [&] { ImageDataset({"a.png"}, {}); },
      {"1 paths and 0 labels"});
}

TEST(ImageDataset, NeedsASizeAboveZero) {
  expect_error<c10::ValueError>(
      [&] {
        ImageDataset(TargetedImages{}, {.size = ImageSize{0, 5}});
      },
      {"size is 0 x 5"});
}

TEST(ImageDataset, MayBeEmpty) {
  EXPECT_EQ(ImageDataset(TargetedImages{}).size(), 0);
}

/// Returns the paths of `count` images; those in `bad` are damaged.
std::vector<std::string> write_images(
    const TempFolder& temp,
    int count,
    const std::vector<int>& bad = {}) {
  std::vector<std::string> paths;
  for (int i = 0; i < count; ++i) {
    paths.push_back((temp / (std::to_string(i) + ".jpg")).string());
    write_file(paths.back(), encode(random_image(40 + i, 50), ".jpg"));
  }
  for (const int i : bad) {
    write_file(paths[i], std::string("<html>not found</html>"));
  }
  return paths;
}

std::vector<Batch> all_batches(
    const std::shared_ptr<const Dataset>& images,
    int64_t workers,
    bool training = true) {
  const DataLoader loader(
      images,
      {.batch_size = 5,
       .shuffle = true,
       .training = training,
       .workers = workers});
  std::vector<Batch> batches;
  for (auto epoch = loader.epoch(2); auto batch = epoch.next();) {
    batches.push_back(
        {{batch->inputs[0].clone()}, {batch->targets[0].clone()}});
  }
  return batches;
}

TEST(ImageDataset, AugmentsIdenticallyForAnyNumberOfWorkers) {
  const TempFolder temp;
  const auto paths = write_images(temp, 23);
  Transforms train = get_transforms().train;
  train.push_back(jitter());
  train.push_back(random_erasing());
  const auto images = std::make_shared<ImageDataset>(
      paths,
      std::vector<int64_t>(23),
      ImageDatasetOptions{
          .size = ImageSize{32, 24},
          .transforms = {train, {}},
          .sizing = {.resize = ResizeMethod::crop}});
  const auto expected = all_batches(images, 0);
  for (const int64_t workers : {1, 8}) {
    const auto batches = all_batches(images, workers);
    ASSERT_EQ(batches.size(), expected.size());
    for (size_t i = 0; i < batches.size(); ++i) {
      EXPECT_TRUE(torch::equal(batches[i].inputs[0], expected[i].inputs[0]));
    }
  }
  // Only in training.
  const auto plain = all_batches(images, 0, /*training=*/false);
  EXPECT_FALSE(torch::equal(plain[0].inputs[0], expected[0].inputs[0]));
}

// With balance_classes, an image of a rare class occurs many times per epoch.
TEST(ImageDataset, AugmentsRepeatsOfAnImageInAnEpochDifferently) {
  const TempFolder temp;
  write_image(temp / "a.png", 40, 50);
  write_image(temp / "b.png", 40, 50);
  const auto images = std::make_shared<ImageDataset>(
      std::vector<std::string>{
          (temp / "a.png").string(),
          (temp / "b.png").string()},
      std::vector<int64_t>{0, 1},
      ImageDatasetOptions{
          .size = ImageSize(32),
          .transforms = get_transforms()});
  const DataLoader loader(
      images,
      {.batch_size = 8,
       .training = true,
       .sampler = std::make_shared<WeightedSampler>(
           std::vector<double>{1, 1},
           /*num_samples=*/24),
       .workers = 2});
  std::vector<torch::Tensor> seen;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    auto pass = loader.epoch(epoch);
    while (const auto batch = pass.next()) {
      for (const torch::Tensor& image : batch->inputs[0].unbind()) {
        for (const torch::Tensor& other : seen) {
          EXPECT_FALSE(torch::equal(image, other));
        }
        seen.push_back(image.clone());
      }
    }
  }
  EXPECT_EQ(seen.size(), 48u);
}

TEST(ImageDataset, SkipsBadImagesAndNamesThem) {
  const TempFolder temp;
  const auto paths = write_images(temp, 20, {3, 7});
  std::vector<int64_t> labels(20);
  std::iota(labels.begin(), labels.end(), int64_t{0});
  std::string heard;
  const auto make = [&](double max_fraction) {
    return std::make_shared<ImageDataset>(
        paths,
        labels,
        ImageDatasetOptions{
            .size = ImageSize{16, 16},
            .bad_images = BadImagePolicy::skip(max_fraction),
            .sink = [&](const std::string& line) { heard += line + "\n"; }});
  };
  const auto images = make(0.1);
  const auto first = all_batches(images, 0);
  const auto second = all_batches(make(0.1), 8);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i].targets[0], second[i].targets[0]));
    EXPECT_FALSE((first[i].targets[0] == 3).any().item<bool>());
  }
  const std::vector<BadImage> bad = images->bad_images();
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[1].path, paths[7]);
  EXPECT_NE(bad[1].reason.find("not an image"), std::string::npos);
  EXPECT_NE(heard.find("3.jpg"), std::string::npos);

  const std::string error =
      error_of<DataError>([&] { all_batches(make(0.05), 0); });
  for (const char* const word :
       {"not an image", "one of 2 bad images among 20", "max_fraction"}) {
    EXPECT_NE(error.find(word), std::string::npos) << error;
  }
  for (const size_t named : {3, 7}) {  // each once
    const size_t at = error.find(paths[named]);
    EXPECT_NE(at, std::string::npos) << error;
    EXPECT_EQ(error.find(paths[named], at + 1), std::string::npos) << error;
  }
}

// A replacement would be counted twice.
TEST(ImageDataset, OmitsBadImagesFromEvaluation) {
  const TempFolder temp;
  const auto paths = write_images(temp, 9, {3, 4, 5, 7});
  std::vector<int64_t> labels(9);
  std::iota(labels.begin(), labels.end(), int64_t{0});
  const auto images = std::make_shared<ImageDataset>(
      paths,
      labels,
      ImageDatasetOptions{
          .size = ImageSize{16, 16},
          .bad_images = BadImagePolicy::skip(0.5),
          .sink = silent()});
  for (const bool is_packed : {false, true}) {
    const auto source =
        is_packed ? images->with_pack(
                        presize_images(*images, temp / "pack", 16, silent()))
                  : images;
    const DataLoader loader(source, {.batch_size = 3, .workers = 2});
    auto pass = loader.epoch(0);
    std::vector<std::vector<int64_t>> seen;
    while (auto batch = pass.next()) {
      EXPECT_EQ(batch->inputs[0].size(0), std::ssize(batch->indices));
      EXPECT_TRUE(torch::equal(
          batch->targets[0],
          torch::tensor(batch->indices, torch::kLong)));
      for (int64_t row = 0; row < batch->size(); ++row) {
        EXPECT_TRUE(torch::equal(
            batch->inputs[0][row],
            source->get_batch({batch->indices[row]}, {}).inputs[0][0]));
      }
      seen.push_back(batch->indices);
    }
    EXPECT_EQ(seen, (std::vector<std::vector<int64_t>>{{0, 1, 2}, {}, {6, 8}}));
  }
}

TEST(ImageDataset, FailsIfAllImagesAreBad) {
  const TempFolder temp;
  const auto paths = write_images(temp, 3, {0, 1, 2});
  const ImageDataset images(
      paths,
      {0, 1, 2},
      {.size = 8, .bad_images = BadImagePolicy::skip(1), .sink = silent()});
  EXPECT_THROW(images.get_batch({0}, {.training = true}), DataError);
  const ImageDataset evaluated(
      paths,
      {0, 1, 2},
      {.size = 8, .bad_images = BadImagePolicy::skip(1), .sink = silent()});
  EXPECT_EQ(evaluated.get_batch({0, 1}, {}).size(), 0);
  EXPECT_THROW(evaluated.get_batch({2}, {}), DataError);
}

TEST(ImageDataset, RotatesMasksWithTheirImages) {
  const TempFolder temp;
  // The mask is the image's brightness.
  const cv::Mat mask = random_image(30, 40, CV_8UC1) / 64;
  write_file(temp / "mask.png", encode(mask, ".png"));
  write_file(temp / "image.png", encode(mask * 60, ".png"));
  const ImageDataset images(
      TargetedImages{
          {(temp / "image.png").string()},
          std::make_shared<MaskTargets>(
              std::vector<std::string>{(temp / "mask.png").string()},
              5)},
      {.size = ImageSize{30, 40}, .transforms = {{flip_lr(1)}, {}}});
  const Batch batch = images.get_batch({0}, {.training = true});
  ASSERT_EQ(batch.targets[0].sizes(), (std::vector<int64_t>{1, 30, 40}));
  EXPECT_TRUE(torch::equal(
      batch.targets[0] * 60,
      batch.inputs[0].select(3, 0).to(torch::kLong)));
}

// Only the annotator knows if the mask matches the pixels as stored or as
// shown.
TEST(ImageDataset, RejectsAMaskIfTheImagesExifOrientationMayNotApplyToIt) {
  const TempFolder temp;
  for (const ImageSize stored : {ImageSize{24, 24}, ImageSize{24, 32}}) {
    cv::Mat pixels(stored.height, stored.width, CV_8UC1, cv::Scalar(0));
    pixels(cv::Rect(0, 0, 8, 8)) = 200;  // the upper left corner, as stored
    for (int orientation = 1; orientation <= 8; ++orientation) {
      write_file(
          temp / "image.jpg",
          with_orientation(
              encode(pixels, ".jpg"),
              static_cast<uint8_t>(orientation)));
      const bool lies = orientation >= 5;
      const auto upright = read_image((temp / "image.jpg").string());
      const cv::Mat shown = cv::Mat(
          static_cast<int>(upright.size(0)),
          static_cast<int>(upright.size(1)),
          CV_8UC3,
          upright.data_ptr());
      cv::Mat gray;
      cv::extractChannel(shown, gray, 0);
      const auto check = [&](const cv::Mat& mask,
                             const DecodeOptions& decode,
                             bool is_packed,
                             const char* error) {
        SCOPED_TRACE(fmt::format(
            "{} x {}, orientation {}{}",
            stored.height,
            stored.width,
            orientation,
            is_packed ? ", packed" : ""));
        write_file(temp / "mask.png", encode(mask, ".png"));
        auto images = std::make_shared<const ImageDataset>(
            TargetedImages{
                {(temp / "image.jpg").string()},
                std::make_shared<MaskTargets>(
                    std::vector<std::string>{(temp / "mask.png").string()},
                    2)},
            ImageDatasetOptions{.decode = decode});
        if (is_packed) {
          std::filesystem::remove(temp / "pack");
          images = images->with_pack(presize_images(
              *images,
              temp / "pack",
              ImageSize{stored.height, stored.width},
              silent()));
        }
        if (error) {
          expect_error<DataError>([&] { images->get_batch({0}, {}); }, {error});
          return;
        }
        const Batch batch = images->get_batch({0}, {});
        EXPECT_TRUE(torch::equal(
            batch.targets[0] > 0,
            batch.inputs[0].select(3, 0) > 100));
      };
      for (const bool is_packed : {false, true}) {
        // The mask and the image are both read as stored.
        check(pixels / 200, {.exif_orientation = false}, is_packed, nullptr);
        const bool is_open =
            orientation > 1 && (!lies || stored.height == stored.width);
        check(
            cv::Mat((gray > 100) / 255),
            {},
            is_packed,
            is_open ? "EXIF orientation" : nullptr);
      }
    }
  }
}

TEST(ImageDataset, NamesAMaskWithAWrongShapeOrClass) {
  const TempFolder temp;
  write_file(temp / "image.png", encode(random_image(30, 40), ".png"));
  write_file(temp / "shape.png", encode(random_image(30, 30, CV_8UC1), ".png"));
  write_file(
      temp / "class.png",
      encode(cv::Mat(30, 40, CV_8UC1, cv::Scalar(7)), ".png"));
  for (const auto& [name, word] :
       {std::pair{"shape.png", "30 x 30"}, {"class.png", "class index 7"}}) {
    const ImageDataset images(TargetedImages{
        {(temp / "image.png").string()},
        std::make_shared<MaskTargets>(
            std::vector<std::string>{(temp / name).string()},
            5)});
    expect_error<DataError>([&] { images.get_batch({0}, {}); }, {name, word});
  }
}

}  // namespace
}  // namespace tern::image_dataset_test
