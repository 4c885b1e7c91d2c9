#include "tern/vision/image_data_bunch.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/k_folds.h"
#include "tern/data/sampler.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/image_items.h"
#include "tern/vision/datasets/presize.h"
#include "tern/vision/transforms/geometry.h"

namespace tern::image_data_bunch_test {
namespace {

namespace fs = std::filesystem;

void write_class(const fs::path& folder, int count) {
  for (int i = 0; i < count; ++i) {
    write_image(folder / (std::to_string(i) + ".png"));
  }
}

const std::vector<std::string>& paths_of(const DataLoader& loader) {
  return dynamic_cast<const ImageDataset&>(loader.dataset()).paths();
}

std::vector<int64_t> labels_of(const DataLoader& loader) {
  const torch::Tensor values =
      dynamic_cast<const ImageDataset&>(loader.dataset()).target_values();
  const auto* const first = values.const_data_ptr<int64_t>();
  return {first, first + values.numel()};
}

std::string error_for(
    const fs::path& path,
    const ImageDataBunchOptions& options = {}) {
  return error_of<DataError>(
      [&] { ImageDataBunch::from_folder(path, options); });
}

TEST(ImageDataBunch, ReadsTheFoldersTrainAndValid) {
  const TempFolder temp;
  write_class(temp / "train/3", 4);
  write_class(temp / "train/7", 3);
  write_class(temp / "valid/7", 2);
  const DataBunch data =
      ImageDataBunch::from_folder(temp.path(), {.batch_size = 2});
  EXPECT_EQ(data.classes, (std::vector<std::string>{"3", "7"}));
  EXPECT_EQ(data.train->dataset().size(), 7);
  // The label stays 1 although valid lacks class 3.
  EXPECT_EQ(labels_of(*data.valid), (std::vector<int64_t>{1, 1}));
}

TEST(ImageDataBunch, WarnsOnlyThroughItsSink) {
  const TempFolder temp;
  write_class(temp / "train/cat", 4);
  write_class(temp / "valid/cat", 4);
  fs::create_symlink("nowhere.png", temp / "train/cat/lost.png");
  fs::copy_file(temp / "train/cat/1.png", temp / "valid/cat/copy.png");
  // OpenCV and libjpeg write to stderr unless it is captured.
  write_file(temp / "train/cat/bad.jpg", std::string("no image"));
  std::vector<uint8_t> damaged = encode(random_image(8, 8), ".tif");
  damaged.resize(damaged.size() / 2);
  write_file(temp / "train/cat/bad.tif", damaged);
  std::string said;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  DataBunch data = ImageDataBunch::from_folder(
      temp.path(),
      {.size = 8,
       .bad_images = BadImagePolicy::skip(0.9),
       .report_duplicates = true,
       .batch_size = 2,
       .workers = 2,
       .sink = [&](const std::string& line) { said += line + "\n"; }});
  auto batches = data.train->epoch(0);
  while (batches.next()) {
  }
  make_folders(temp / "cache");
  write_file(temp / "cache/train.pack", std::string(1000, 'x'));
  data.presize(temp / "cache", 8);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  for (const char* const words :
       {"warning: ",
        "broken links",
        "training images too",
        "bad.jpg",
        "bad.tif",
        "is created again"}) {
    EXPECT_NE(said.find(words), std::string::npos) << words << '\n' << said;
  }
}

TEST(ImageDataBunch, FollowsLinksInsideTheDatasetFolder) {
  const TempFolder temp;
  write_class(temp / "pets/images", 4);
  write_class(temp / "pets/dogs", 2);
  for (const char* const name : {"train/cat", "valid/cat"}) {
    fs::create_directories(temp / "pets" / name);
  }
  fs::create_symlink("../../images/0.png", temp / "pets/train/cat/a.png");
  fs::create_symlink("a.png", temp / "pets/train/cat/b.png");
  fs::create_symlink(temp / "pets/images/2.png", temp / "pets/valid/cat/c.png");
  fs::create_directory_symlink("../dogs", temp / "pets/train/dog");
  fs::create_directory_symlink("pets", temp / "here");
  for (const char* const folder : {"pets", "here"}) {
    const DataBunch data =
        ImageDataBunch::from_folder(temp / folder, {.batch_size = 1});
    EXPECT_EQ(labels_of(*data.train), (std::vector<int64_t>{0, 0, 1, 1}));
    EXPECT_EQ(labels_of(*data.valid), std::vector<int64_t>{0});
  }
  const auto from_items = [&](const ImageFolderOptions& options) {
    return items_from_folder(temp / "pets/train", options).size();
  };
  EXPECT_EQ(from_items({.boundary = temp / "pets"}), 4);
  expect_error<DataError>(
      [&] { from_items({}); },
      {"is a link to", "outside of", "boundary", "links_outside"});
}

TEST(ImageDataBunch, FollowsLinksOutOfTheDatasetFolderOnlyIfAllowed) {
  const TempFolder temp;
  write_class(temp / "elsewhere", 2);
  write_class(temp / "pets/train/cat", 2);
  write_class(temp / "pets/valid/cat", 2);
  fs::create_directory_symlink(temp / "elsewhere", temp / "pets/train/dog");
  const std::string error = error_for(temp / "pets");
  EXPECT_NE(error.find("links_outside"), std::string::npos) << error;
  const DataBunch data =
      ImageDataBunch::from_folder(temp / "pets", {.links_outside = true});
  EXPECT_EQ(data.train->dataset().size(), 4);
}

TEST(ImageDataBunch, AcceptsAClassWithoutImagesOnlyIfAllowed) {
  const TempFolder temp;
  write_class(temp / "train/cat", 2);
  write_class(temp / "valid/cat", 2);
  fs::create_directories(temp / "train/dog");
  const std::string error = error_for(temp.path());
  EXPECT_NE(error.find("allow_empty"), std::string::npos) << error;
  const DataBunch data =
      ImageDataBunch::from_folder(temp.path(), {.allow_empty = true});
  EXPECT_EQ(data.classes, (std::vector<std::string>{"cat", "dog"}));
}

TEST(ImageDataBunch, KeepsNumericTargetsUnchanged) {
  const TempFolder temp;
  std::vector<std::string> paths;
  for (int i = 0; i < 4; ++i) {
    paths.push_back((temp / (std::to_string(i) + ".png")).string());
    write_image(paths.back());
  }
  const DataBunch data = ImageDataBunch::from_lists(
      paths,
      std::vector<double>{1.5, -2, 0.1, 40},
      {.valid_pct = 0.25});
  EXPECT_TRUE(data.classes.empty());
  EXPECT_EQ(data.outputs.at(0).kind, TargetKind::number);
  const auto& train = dynamic_cast<const ImageDataset&>(data.train->dataset());
  for (int64_t i = 0; i < train.size(); ++i) {
    const char name = train.paths()[i].at(train.paths()[i].size() - 5);
    const float expected[] = {1.5f, -2, 0.1f, 40};
    EXPECT_EQ(train.target_values()[i].item<float>(), expected[name - '0']);
  }
}

TEST(ImageDataBunch, SortsNumericClassNamesByValue) {
  const TempFolder temp;
  std::vector<std::string> paths;
  for (int i = 0; i < 6; ++i) {
    paths.push_back((temp / (std::to_string(i) + ".png")).string());
    write_image(paths.back());
  }
  const DataBunch data = ImageDataBunch::from_lists(
      paths,
      std::vector<int>{10, 9, 100, 10, 9, 100},
      {.valid_pct = 0.34});
  EXPECT_EQ(data.classes, (std::vector<std::string>{"9", "10", "100"}));
  EXPECT_EQ(data.outputs.at(0).kind, TargetKind::category);
}

TEST(ImageDataBunch, ReadsNumericTargetsFromATable) {
  const TempFolder temp;
  std::string table = "file,age\n";
  for (int i = 0; i < 4; ++i) {
    write_image(temp / (std::to_string(i) + ".png"));
    table += fmt::format("{}.png,{}.5 {}\n", i, i, -i);
  }
  write_file(temp / "labels.csv", table);
  const DataBunch data = ImageDataBunch::from_csv(
      temp.path(),
      {.label_delimiter = " ", .target = TargetKind::number},
      {.valid_pct = 0.25});
  const auto& train = dynamic_cast<const ImageDataset&>(data.train->dataset());
  EXPECT_EQ(train.target_values().sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(data.outputs.at(0).kind, TargetKind::number);
}

TEST(ImageDataBunch, OneNumberAsSizeMeansASquare) {
  const TempFolder temp;
  write_class(temp / "train/a", 2);
  write_class(temp / "valid/a", 1);
  const auto sizes = [](const DataBunch& data) {
    return data.valid->epoch(0).next()->inputs[0].sizes().vec();
  };
  EXPECT_EQ(
      sizes(ImageDataBunch::from_folder(temp.path(), {.size = 12})),
      (std::vector<int64_t>{1, 12, 12, 3}));
  const int64_t side = 16;
  EXPECT_EQ(
      sizes(ImageDataBunch::from_folder(
          temp.path(),
          {.size = side, .batch_size = 1})),
      (std::vector<int64_t>{1, 16, 16, 3}));
  EXPECT_EQ(
      sizes(
          ImageDataBunch::from_folder(temp.path(), {.size = ImageSize{8, 12}})),
      (std::vector<int64_t>{1, 8, 12, 3}));
}

TEST(ImageDataBunch, ShufflesAndDropsTheLastBatchOnlyInTraining) {
  const TempFolder temp;
  write_class(temp / "train/a", 5);
  write_class(temp / "valid/a", 5);
  const DataBunch data =
      ImageDataBunch::from_folder(temp.path(), {.batch_size = 2});
  EXPECT_TRUE(data.train->options().shuffle);
  EXPECT_TRUE(data.train->options().drop_last);
  EXPECT_TRUE(data.train->options().training);
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_FALSE(data.valid->options().shuffle);
  EXPECT_FALSE(data.valid->options().drop_last);
  EXPECT_FALSE(data.valid->options().training);
  EXPECT_EQ(data.valid->size(), 3);
}

TEST(ImageDataBunch, KeepsTheOnlyBatchWhenItIsShort) {
  const TempFolder temp;
  write_class(temp / "train/a", 5);
  write_class(temp / "valid/a", 5);
  const DataBunch data = ImageDataBunch::from_folder(temp.path());
  EXPECT_EQ(data.train->size(), 1);
}

TEST(ImageDataBunch, AcceptsASeparateBatchSizeForValidation) {
  const TempFolder temp;
  write_class(temp / "train/a", 5);
  write_class(temp / "valid/a", 5);
  EXPECT_EQ(
      ImageDataBunch::from_folder(temp.path(), {.batch_size = 2})
          .valid->options()
          .batch_size,
      2);
  EXPECT_EQ(
      ImageDataBunch::from_folder(
          temp.path(),
          {.batch_size = 2, .valid_batch_size = 4})
          .valid->options()
          .batch_size,
      4);
}

TEST(ImageDataBunch, SplitsAtRandomWithoutTrainAndValid) {
  const TempFolder temp;
  write_class(temp / "a", 30);
  write_class(temp / "b", 20);
  const DataBunch data = ImageDataBunch::from_folder(temp.path());
  const auto& train = paths_of(*data.train);
  const auto& valid = paths_of(*data.valid);
  EXPECT_EQ(train.size(), 40);
  EXPECT_EQ(valid.size(), 10);
  std::set<std::string> all(train.begin(), train.end());
  all.insert(valid.begin(), valid.end());
  EXPECT_EQ(all.size(), 50);
  EXPECT_EQ(paths_of(*ImageDataBunch::from_folder(temp.path()).valid), valid);
  EXPECT_NE(
      paths_of(*ImageDataBunch::from_folder(temp.path(), {.seed = 1}).valid),
      valid);
}

TEST(ImageDataBunch, ValidPctSplitsAllFoldersTogether) {
  const TempFolder temp;
  write_class(temp / "train/a", 6);
  write_class(temp / "valid/a", 4);
  const DataBunch data =
      ImageDataBunch::from_folder(temp.path(), {.valid_pct = 0.5});
  EXPECT_EQ(data.train->dataset().size(), 5);
  EXPECT_EQ(data.valid->dataset().size(), 5);
}

TEST(ImageDataBunch, RejectsAValidPctThatLeavesASplitEmpty) {
  const TempFolder temp;
  write_class(temp / "a", 3);
  for (const double share : {0.0, 1.0, -1.0, 0.1}) {
    expect_error<c10::ValueError>(
        [&] { ImageDataBunch::from_folder(temp.path(), {.valid_pct = share}); },
        {"valid_pct is"});
  }
}

TEST(ImageDataBunch, NamesAMissingFolderAndWhatWasExpected) {
  const std::string error = error_for("/nowhere/mnist");
  EXPECT_EQ(error.find("/nowhere/mnist: there is no such folder"), 0) << error;
  EXPECT_NE(error.find("train and valid"), std::string::npos) << error;
}

TEST(ImageDataBunch, NamesTheFolderThatIsMissingOfTrainAndValid) {
  const TempFolder temp;
  write_class(temp / "train/a", 1);
  write_class(temp / "validation/a", 1);
  const std::string error = error_for(temp.path());
  EXPECT_NE(error.find("/valid: there is no such folder"), std::string::npos);
  EXPECT_NE(error.find("train, validation"), std::string::npos) << error;
  EXPECT_NO_THROW(
      ImageDataBunch::from_folder(temp.path(), {.valid = "validation"}));
}

TEST(ImageDataBunch, NamesAClassThatOccursOnlyInValid) {
  const TempFolder temp;
  write_class(temp / "train/a", 1);
  write_class(temp / "valid/a", 1);
  write_class(temp / "valid/b", 1);
  EXPECT_NE(
      error_for(temp.path()).find("valid/b: is a class"),
      std::string::npos);
}

TEST(SetImageSize, ChangesTheSizeOfLaterBatches) {
  const TempFolder temp;
  write_class(temp / "train/a", 2);
  write_class(temp / "valid/a", 2);
  DataBunch data = ImageDataBunch::from_folder(
      temp.path(),
      {.size = 8, .batch_size = 2, .workers = 0});
  const auto sizes = [&](Split split) {
    return data.loader(split).epoch(0).next()->inputs[0].sizes().vec();
  };
  EXPECT_EQ(sizes(Split::train), (std::vector<int64_t>{2, 8, 8, 3}));
  set_image_size(data, ImageSize{12, 16});
  EXPECT_EQ(sizes(Split::train), (std::vector<int64_t>{2, 12, 16, 3}));
  EXPECT_EQ(sizes(Split::valid), (std::vector<int64_t>{2, 12, 16, 3}));
  ASSERT_TRUE(data.preprocessing);
  EXPECT_EQ(data.preprocessing->height, 12);
  EXPECT_EQ(data.preprocessing->width, 16);
  EXPECT_EQ(labels_of(*data.train), (std::vector<int64_t>{0, 0}));

  expect_error<c10::ValueError>(
      [&] { set_image_size(data, -1); },
      {"ImageDataset::with_size"});
  const auto numbers = std::make_shared<TensorDataset>(
      Tensors{torch::zeros({2, 3})},
      Tensors{torch::zeros({2})});
  DataBunch other = DataBunch::create(numbers, nullptr, {.workers = 0});
  expect_error<c10::ValueError>(
      [&] { set_image_size(other, 8); },
      {"[set_image_size] the train dataset is not an ImageDataset"});
}

TEST(ImageDataBunch, NormalizesOnTheDevice) {
  const TempFolder temp;
  fs::create_directories(temp / "train/a");
  write_class(temp / "valid/a", 1);
  write_file(
      temp / "train/a/1.png",
      encode(cv::Mat(2, 2, CV_8UC1, cv::Scalar(255)), ".png"));
  const DataBunch data = ImageDataBunch::from_folder(
      temp.path(),
      {.stats = {{0.5}, {0.25}}, .workers = 0});
  auto epoch = data.train->epoch(0);
  Batch batch = *epoch.next();
  for (const BatchTransform& transform : data.batch_transforms) {
    transform(batch, {});
  }
  EXPECT_EQ(batch.inputs[0].sizes(), (std::vector<int64_t>{1, 3, 2, 2}));
  EXPECT_TRUE(torch::allclose(batch.inputs[0], torch::full({1}, 2.0f)));
}

TEST(ImageDataBunch, ReadsTrainingImagesInSamplerOrder) {
  const TempFolder temp;
  write_class(temp / "train/3", 4);
  write_class(temp / "train/7", 4);
  write_class(temp / "valid/7", 2);
  const std::vector<double> only_the_last = {0, 0, 0, 0, 0, 0, 0, 1};
  ImageDataBunchOptions options{
      .batch_size = 2,
      .workers = 0,
      .sampler = std::make_shared<WeightedSampler>(only_the_last, 5)};
  const DataBunch data = ImageDataBunch::from_folder(temp.path(), options);
  EXPECT_EQ(data.train->size(), 2);  // a short batch is dropped, as always
  for (const Batch& batch : *data.train) {
    EXPECT_EQ(batch.indices, (std::vector<int64_t>{7, 7}));
    EXPECT_FALSE(torch::equal(batch.targets[0], torch::zeros({2})));
  }
  EXPECT_EQ(data.valid->options().sampler, nullptr);
  // A single batch is kept even if it is short.
  options.sampler = std::make_shared<SequentialSampler>(1);
  EXPECT_EQ(ImageDataBunch::from_folder(temp.path(), options).train->size(), 1);
}

TEST(ImageDataBunch, RejectsASamplerOfADifferentSize) {
  const TempFolder temp;
  write_class(temp / "train/3", 4);
  write_class(temp / "valid/3", 2);
  ImageDataBunchOptions options{
      .balance_classes = true,
      .sampler = std::make_shared<SequentialSampler>(4)};
  expect_error<c10::ValueError>(
      [&] { ImageDataBunch::from_folder(temp.path(), options); },
      {"sampler", "balance_classes"});
  options.balance_classes = false;
  options.sampler = std::make_shared<SequentialSampler>(6);  // of all images
  expect_error<c10::ValueError>(
      [&] { ImageDataBunch::from_folder(temp.path(), options); },
      {"index 4 for 4 training images", "without the validation images"});
}

TEST(KFolds, AppliesTheTransformsOfTheirSplitToImagesOfBothFolders) {
  const TempFolder temp;
  write_class(temp / "train/3", 6);
  write_class(temp / "valid/3", 3);
  const DataBunch data = ImageDataBunch::from_folder(
      temp.path(),
      {.transforms = {.train = {flip_lr(1.f)}, .valid = {}},
       .batch_size = 1,
       .workers = 0});
  std::set<std::string> valid;
  for (const DataBunch& fold : k_folds(data, 3)) {
    for (const auto& loader : {fold.train, fold.valid}) {
      for (const Batch& batch : *loader) {
        const std::string path =
            loader->dataset().describe(batch.indices.at(0));
        const torch::Tensor plain =
            ImageDataset({path}, {0}).get_batch({0}, {}).inputs[0];
        const bool is_training = loader == fold.train;
        EXPECT_TRUE(
            torch::equal(batch.inputs[0], is_training ? plain.flip(2) : plain))
            << path;
        if (!is_training) valid.insert(path);
      }
    }
  }
  EXPECT_EQ(valid.size(), 9u);
}

TEST(KFolds, RejectsImagesThatWouldLeakOrHaveTwoTransforms) {
  const TempFolder temp;
  write_class(temp / "3", 4);
  const std::string file = (temp / "3/0.png").string();
  const auto images = [&](const ImageDatasetOptions& options) {
    return std::make_shared<ImageDataset>(
        std::vector<std::string>(4, file),
        std::vector<int64_t>(4, 0),
        options);
  };
  const auto folds_of = [](std::shared_ptr<const Dataset> train,
                           std::shared_ptr<const Dataset> valid) {
    return k_folds(
        DataBunch::create(
            std::move(train),
            std::move(valid),
            {.batch_size = 2, .workers = 0}),
        2);
  };
  expect_error<c10::ValueError>(
      [&] {
        folds_of(images({.bad_images = BadImagePolicy::skip(0.5)}), nullptr);
      },
      {"BadImagePolicy::skip", "a validation image of the fold", "DataBlock"});
  const TransformLists augmenting = {.train = {flip_lr(1.f)}, .valid = {}};
  const auto augmented = images({.transforms = augmenting});
  expect_error<c10::ValueError>(
      [&] { folds_of(augmented, images({})); },
      {"differ in transforms", "the same ImageDatasetOptions for both"});
  // Also within one loader, wrapped in Subsets.
  expect_error<c10::ValueError>(
      [&] {
        const auto part =
            std::make_shared<Subset>(images({}), std::vector<int64_t>{0, 1});
        folds_of(
            std::make_shared<Concat>(
                std::vector<std::shared_ptr<const Dataset>>{augmented, part}),
            nullptr);
      },
      {"differ in transforms"});
  EXPECT_EQ(folds_of(augmented, images({.transforms = augmenting})).size(), 2u);
}

}  // namespace
}  // namespace tern::image_data_bunch_test
