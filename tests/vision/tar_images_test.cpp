#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/archives/tar_write.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/datasets/shard_images.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/transforms/get_transforms.h"

namespace tern::tar_images_test {
namespace {

class TarImageData : public testing::Test {
 protected:
  TarImageData() {
    for (int i = 0; i < 20; ++i) {
      const std::string name = std::to_string(10 + i) + ".png";
      const char* const kind = i % 2 == 0 ? "cat" : "dog";
      write_image(temp_ / "train" / kind / name, 20 + i, 30);
      if (i < 6) write_image(temp_ / "valid" / kind / name, 30, 20 + i);
    }
    // In the order of the folder, so that samples can be compared.
    shard_images(
        temp_ / "train",
        temp_ / "tar",
        {.max_samples = 6, .shuffle = false});
    shard_images(
        temp_ / "valid",
        temp_ / "tar",
        {.name = "valid", .shuffle = false});
  }

  std::string tar(const std::string& name) const {
    return (temp_ / "tar" / name).string();
  }
  DataBunch from_tar(
      ImageTar tar_options = {},
      ImageDataBunchOptions options = {}) const {
    return ImageDataBunch::from_tar(
        {tar("train-{000000..000003}.tar")},
        {tar("valid-000000.tar")},
        tar_options,
        options);
  }

  TempFolder temp_;
};

std::vector<Batch> all_batches(const DataLoader& loader, int64_t first = 0) {
  std::vector<Batch> batches;
  auto pass = loader.epoch(/*epoch=*/1, first);
  while (auto batch = pass.next()) batches.push_back(std::move(*batch));
  return batches;
}

void expect_equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].inputs[0].equal(b[i].inputs[0])) << i;
    EXPECT_TRUE(a[i].targets[0].equal(b[i].targets[0])) << i;
  }
}

TEST_F(TarImageData, ReturnsTheSameBatchesAsTheFolder) {
  ImageDataBunchOptions options = {
      .size = ImageSize{16, 16},
      .transforms = get_transforms(),
      .batch_size = 4,
      .workers = 2};
  const DataBunch folder = ImageDataBunch::from_folder(temp_.path(), options);
  options.workers = 1;
  const DataBunch shards = from_tar({}, options);
  EXPECT_EQ(shards.classes, (std::vector<std::string>{"cat", "dog"}));
  expect_equal(all_batches(*folder.train), all_batches(*shards.train));
  expect_equal(all_batches(*folder.valid), all_batches(*shards.valid));
  expect_equal(all_batches(*folder.train, 3), all_batches(*shards.train, 3));
}

TEST_F(TarImageData, ShufflesOnlyWithinTheShuffleBuffer) {
  const ImageDataBunchOptions options = {
      .size = ImageSize{8, 8},
      .batch_size = 2,
      .workers = 0};
  const DataBunch data = from_tar({.shuffle_buffer = 3}, options);
  const auto order = data.train->sampler()->indices(1, 0);
  ASSERT_EQ(order.size(), 20u);
  // The shards have 6, 6, 6 and 2 samples.
  EXPECT_EQ(order[0] / 6, order[1] / 6);
  EXPECT_EQ(all_batches(*data.train).size(), 10u);
}

TEST_F(TarImageData, SplitsAtRandomWithoutValidationShards) {
  const DataBunch data = ImageDataBunch::from_tar(
      {tar("train-{000000..000003}.tar")},
      {},
      {},
      {.valid_pct = 0.25, .size = ImageSize{8, 8}, .batch_size = 5});
  EXPECT_EQ(data.train->dataset().size(), 15);
  EXPECT_EQ(data.valid->dataset().size(), 5);
}

TEST_F(TarImageData, WarnsAboutASkippedShardThroughItsSink) {
  std::filesystem::resize_file(tar("train-000001.tar"), 3000);
  std::string of_bunch, of_shards;
  const ImageDataBunchOptions options = {
      .size = ImageSize{8, 8},
      .sink = [&](const std::string& line) { of_bunch += line; }};
  from_tar({.shards = {.skip_bad_shards = true}}, options);
  EXPECT_NE(of_bunch.find("train-000001.tar"), std::string::npos) << of_bunch;
  of_bunch.clear();
  const ShardSetOptions shards = {
      .skip_bad_shards = true,
      .sink = [&](const std::string& line) { of_shards += line; }};
  from_tar({.shards = shards}, options);
  EXPECT_NE(of_shards.find("train-000001.tar"), std::string::npos) << of_shards;
  EXPECT_EQ(of_bunch, "");
}

TEST_F(TarImageData, PresizesLikeAFolder) {
  const ImageDataBunchOptions options = {
      .size = ImageSize{8, 8},
      .batch_size = 4,
      .workers = 0};
  DataBunch folder = ImageDataBunch::from_folder(temp_.path(), options);
  DataBunch shards = from_tar({}, options);
  folder.presize(temp_ / "folder_packs", {10, 10});
  shards.presize(temp_ / "tar_packs", {10, 10});
  expect_equal(all_batches(*folder.train), all_batches(*shards.train));
}

TEST_F(TarImageData, NamesTheInvalidSample) {
  const auto error_for = [&](const std::string& field,
                             const std::string& text) {
    TarWriter shard(temp_ / "tar/bad-0.tar");
    shard.add("a/1." + field, encode(random_image(8, 8), ".png"));
    shard.add("a/1.cls", text);
    shard.finish();
    return error_of<DataError>([&] {
      ImageDataBunch::from_tar({tar("bad-0.tar")}, {tar("valid-000000.tar")});
    });
  };
  const auto expect_words = [](const std::string& error, const char* words) {
    EXPECT_NE(error.find("bad-0.tar, sample 'a/1'"), error.npos) << error;
    EXPECT_NE(error.find(words), error.npos) << error;
  };
  expect_words(error_for("tiff16", "0"), "has no image");
  expect_words(error_for("png", "2"), "expected an index from 0 to 1");
  expect_words(error_for("png", "-1"), "is of class -1");
  expect_words(error_for("png", "cat"), "expected a whole number");
}

TEST_F(TarImageData, NamesShardAndSampleOfABrokenImage) {
  TarWriter shard(temp_ / "tar/bad-0.tar");
  shard.add("1.png", encode(random_image(8, 8), ".png"));
  shard.add("1.cls", "0");
  shard.add("2.png", "no picture at all");
  shard.add("2.cls", "0");
  shard.finish();
  const DataBunch data = ImageDataBunch::from_tar(
      {tar("bad-0.tar")},
      {tar("valid-000000.tar")},
      {},
      {.size = ImageSize{8, 8}, .batch_size = 1, .workers = 1});
  expect_error<DataError>(
      [&] { all_batches(*data.train); },
      {"bad-0.tar, sample '2'"});
}

TEST_F(TarImageData, NumbersClassesWithoutAClassList) {
  std::filesystem::remove(temp_ / "tar/classes.txt");
  const ImageDataBunchOptions options = {.size = ImageSize{8, 8}};
  EXPECT_EQ(
      from_tar({}, options).classes,
      (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(
      from_tar({.classes = {"c", "d"}}, options).classes,
      (std::vector<std::string>{"c", "d"}));
}

// ---- Boxes ----

class TarBoxes : public testing::Test {
 protected:
  TarBoxes() {
    for (int i = 0; i < 16; ++i) {
      const auto path = temp_ / "images" / (std::to_string(10 + i) + ".png");
      write_image(path, 30 + i, 40);
      ImageBoxes objects({}, ImageSize{30 + i, 40});
      for (int k = 0; k < i % 4; ++k) {
        objects.boxes.push_back(
            {k + 1.0 / 3,
             2.25 + k,
             20.1 + i,
             18.7 + k,
             k == 1 ? "dog" : "cat",
             /*crowd=*/k == 2,
             k == 0 ? 100.0 / 7 : 0});
      }
      if (i % 5 == 0) objects.image = {};
      auto& side = i < 12 ? train_ : valid_;
      side.images.push_back({path.string(), objects, i});
    }
    train_.classes = {"horse", "dog", "cat"};
    valid_.classes = {"cat", "dog"};
    // In the order of the annotations, so that samples can be compared.
    shard_images(train_, temp_ / "tar", {.max_samples = 5, .shuffle = false});
    shard_images(valid_, temp_ / "tar", {.name = "valid", .shuffle = false});
  }

  DataBunch of_block(const ImageDataBunchOptions& options) const {
    BoxAnnotations all = train_;
    all.images.insert(
        all.images.end(),
        valid_.images.begin(),
        valid_.images.end());
    const size_t count = train_.images.size();
    const DataBlock block{
        .items = all.items(),
        .split =
            [count](const ImageItems& items) {
              std::vector<Split> splits(items.size(), Split::valid);
              std::fill_n(splits.begin(), count, Split::train);
              return splits;
            },
        .classes = train_.classes,
        .boxes = all.labeller()};
    return block.bunch(options);
  }

  std::string tar(const std::string& name) const {
    return (temp_ / "tar" / name).string();
  }
  DataBunch of_shards(const ImageDataBunchOptions& options) const {
    return ImageDataBunch::from_tar(
        {tar("train-{000000..000002}.tar")},
        {tar("valid-000000.tar")},
        {.boxes = "json"},
        options);
  }

  /// Returns the error for a shard with one sample of 8 x 8 pixels.
  std::string error_for(const std::string& json, ImageTar options = {}) const {
    const auto path = temp_ / "bad" / "bad.tar";
    make_folders(path.parent_path());
    {
      TarWriter shard(path);
      shard.add("000.png", encode(random_image(8, 8), ".png"));
      shard.add("000.json", json);
      shard.finish();
    }
    options.boxes = "json";
    if (options.classes.empty()) options.classes = {"cat"};
    return error_of<DataError>([&] {
      ImageDataBunch::from_tar({path.string()}, {path.string()}, options);
    });
  }

  TempFolder temp_;
  BoxAnnotations train_, valid_;
};

void expect_equal_boxes(const DataLoader& a, const DataLoader& b) {
  const auto batches = all_batches(a), others = all_batches(b);
  expect_equal(batches, others);
  for (size_t i = 0; i < batches.size(); ++i) {
    ASSERT_EQ(batches[i].targets.size(), 5u);
    for (size_t k = 0; k < 5; ++k) {
      EXPECT_TRUE(batches[i].targets[k].equal(others[i].targets[k]))
          << i << " " << k;
    }
  }
}

TEST_F(TarBoxes, BatchesAreBitIdenticalToThoseOfADataBlock) {
  ImageDataBunchOptions options = {
      .size = ImageSize{24, 24},
      .transforms = get_transforms(),
      .resize = ResizeMethod::pad,
      .batch_size = 5,
      .workers = 1};
  const DataBunch block = of_block(options);
  for (const int64_t workers : {0, 2}) {
    options.workers = workers;
    const DataBunch shards = of_shards(options);
    EXPECT_EQ(shards.classes, train_.classes);
    ASSERT_EQ(shards.outputs.size(), 1u);
    EXPECT_EQ(shards.outputs[0].kind, TargetKind::boxes);
    expect_equal_boxes(*block.train, *shards.train);
    expect_equal_boxes(*block.valid, *shards.valid);
  }
  const Batch batch = *block.valid->epoch(0).next();
  EXPECT_GT(batch.targets[1].max().item<int64_t>(), 0);
  EXPECT_GE(batch.targets[4].max().item<int64_t>(), 0);  // has a crowd
}

TEST_F(TarBoxes, TakesClassesFromTheTrainingShardsWithoutAClassList) {
  std::filesystem::remove(tar("classes.txt"));
  const DataBunch data = of_shards({.size = ImageSize{8, 8}, .workers = 0});
  EXPECT_EQ(data.classes, (std::vector<std::string>{"cat", "dog"}));
}

TEST_F(TarBoxes, NamesSampleFieldAndValueOfAnInvalidMember) {
  const auto box = [&](const std::string& fields) {
    return error_for(R"({"width":8,"height":8,"boxes":[{)" + fields + "}]}");
  };
  const auto expect_words = [](const std::string& error,
                               std::initializer_list<const char*> words) {
    EXPECT_NE(error.find("bad.tar, sample '000', field 'json'"), error.npos)
        << error;
    for (const char* const word : words) {
      EXPECT_NE(error.find(word), error.npos) << word << " in: " << error;
    }
  };
  expect_words(
      box(R"("bbox":[1,2,3,9.5],"label":"cat")"),
      {"[1, 2, 3, 9.5]", "reaches beyond the image", "Correct it"});
  expect_words(
      box(R"("bbox":[3,2,3,4],"label":"cat")"),
      {"[3, 2, 3, 4]", "has no width"});
  expect_words(
      box(R"("bbox":[1,2,3,4],"label":"cow")"),
      {"class 'cow'", "one of the 1 classes", "Correct the label"});
  expect_words(
      error_for(R"({"width":8.5,"height":8,"boxes":[]})"),
      {"whole number, not '8.5'", "Correct it"});
  expect_words(
      error_for(R"({"width":8,"height":8,"boxes":[],"mask":1})"),
      {"field 'mask' is unknown"});
  expect_words(error_for(R"({"width":8,)"), {"byte 11", "Correct it"});
  EXPECT_NE(
      box(R"("bbox":[1,2,3,9.5],"label":"cat")")
          .find("create the shards "
                "again"),
      std::string::npos);
}

TEST_F(TarBoxes, RejectsASampleWithoutTheFieldAndAnImageOfADifferentSize) {
  expect_error<DataError>(
      [&] {
        ImageDataBunch::from_tar(
            {tar("train-000000.tar")},
            {},
            {.boxes = "boxes.json"});
      },
      {"train-000000.tar, sample '00000000'", "no field 'boxes.json'"});
  const auto path = temp_ / "bad" / "size.tar";
  make_folders(path.parent_path());
  {
    TarWriter shard(path);
    shard.add("000.png", encode(random_image(8, 8), ".png"));
    shard.add("000.json", R"({"width":9,"height":8,"boxes":[]})");
    shard.finish();
  }
  const DataBunch data = ImageDataBunch::from_tar(
      {path.string()},
      {path.string()},
      {.boxes = "json", .classes = {"cat"}},
      {.size = ImageSize{8, 8}, .workers = 0});
  expect_error<DataError>(
      [&] { data.train->epoch(0).next(); },
      {"size.tar, sample '000'", "annotations are for an image of 9 x 8"});
}

TEST_F(TarBoxes, ClipsBoxesToTheImageIfEnabled) {
  const auto path = temp_ / "bad" / "clip.tar";
  make_folders(path.parent_path());
  {
    TarWriter shard(path);
    shard.add("000.png", encode(random_image(8, 8), ".png"));
    shard.add("000.json", R"({"boxes":[{"bbox":[2,-5,11,4],"label":"cat"}]})");
    shard.finish();
  }
  const DataBunch data = ImageDataBunch::from_tar(
      {path.string()},
      {path.string()},
      {.boxes = "json", .annotations = {.clip = true}, .classes = {"cat"}},
      {.size = ImageSize{8, 8}, .workers = 0});
  const Batch batch = *data.valid->epoch(0).next();
  EXPECT_TRUE(batch.targets[0][0][0].equal(torch::tensor({2.f, 0.f, 8.f, 4.f})))
      << batch.targets[0];
}

// ---- Points ----

TEST(TarPoints, BatchesAreBitIdenticalToThoseOfADataBlock) {
  const TempFolder temp;
  ImageItems items;
  for (int i = 0; i < 9; ++i) {
    const auto path = temp / "images" / (std::to_string(10 + i) + ".png");
    write_image(path, 30 + i, 40);
    items.push_back({path.string()});
  }
  const PointLabeller points = [](const ImageItem& item) {
    const auto size = static_cast<double>(item.path.size());
    const bool is_known = item.path.find("/13.png") == item.path.npos;
    return std::vector<Point>{
        {size / 7, 20.1},
        {11, 12, is_known},
        {0.25, size / 3}};
  };
  const AnnotationOptions pairs = {.flip_pairs = {{0, 1}}};
  const ImageDataBunchOptions options = {
      .size = ImageSize{24, 24},
      .transforms = get_transforms(),
      .resize = ResizeMethod::pad,
      .batch_size = 3,
      .workers = 1};
  const DataBlock block{
      .items = items,
      .split =
          [](const ImageItems& all) {
            std::vector<Split> splits(all.size(), Split::valid);
            std::fill_n(splits.begin(), 6, Split::train);
            return splits;
          },
      .classes = {"a", "b", "c"},
      .points = points,
      .annotations = pairs};
  const auto shard = [&](size_t begin, size_t end, const char* name) {
    return shard_images(
               ImageItems(items.begin() + begin, items.begin() + end),
               points,
               temp / "tar",
               {.name = name, .shuffle = false})
        .shards[0]
        .string();
  };
  const std::string train = shard(0, 6, "train"), valid = shard(6, 9, "valid");
  const DataBunch data = ImageDataBunch::from_tar(
      {train},
      {valid},
      {.points = "json", .annotations = pairs, .classes = {"a", "b", "c"}},
      options);
  const DataBunch expected = block.bunch(options);
  EXPECT_EQ(data.outputs.at(0).kind, TargetKind::points);
  EXPECT_EQ(data.outputs[0].names, expected.outputs.at(0).names);
  EXPECT_EQ(data.classes, expected.classes);
  for (const auto& [a, b] :
       {std::pair{data.train, expected.train}, {data.valid, expected.valid}}) {
    const auto batches = all_batches(*a), others = all_batches(*b);
    expect_equal(batches, others);
    for (size_t i = 0; i < batches.size(); ++i) {
      ASSERT_EQ(batches[i].targets.size(), 2u);
      EXPECT_TRUE(batches[i].targets[0].equal(others[i].targets[0])) << i;
      EXPECT_TRUE(batches[i].targets[1].equal(others[i].targets[1])) << i;
    }
  }
  expect_error<c10::ValueError>(
      [&] {
        ImageDataBunch::from_tar(
            {train},
            {valid},
            {.boxes = "json", .points = "json"},
            options);
      },
      {"[ImageDataBunch::from_tar]", "boxes and one for points"});
  expect_error<DataError>(
      [&] {
        ImageDataBunch::from_tar({train}, {valid}, {.points = "xml"}, options);
      },
      {"00000000", "xml"});
}

TEST(TarPoints, AreOnlyWrittenIfTheyCanBeReadBack) {
  const TempFolder temp;
  write_image(temp / "a.png", 8, 8);
  write_image(temp / "b.png", 8, 8);
  const ImageItems items = {
      {(temp / "a.png").string()},
      {(temp / "b.png").string()}};
  const auto write = [&](const ImageItems& some, const PointLabeller& points) {
    shard_images(some, points, temp / "tar");
  };
  const PointLabeller one = [](const ImageItem&) {
    return std::vector<Point>{{1, 2}};
  };
  expect_error<DataError>(
      [&] {
        write(items, [&](const ImageItem& item) {
          return std::vector<Point>(item.path.ends_with("a.png") ? 1 : 2);
        });
      },
      {"b.png", "has 2 points, but the first image has 1"});
  expect_error<DataError>(
      [&] {
        write(items, [](const ImageItem&) {
          return std::vector<Point>{{NAN, 2}};
        });
      },
      {"a.png", "finite"});
  expect_error<c10::ValueError>(
      [&] { write({}, one); },
      {"[shard_images]", "at least one image"});
  expect_error<c10::ValueError>(
      [&] {
        write(
            {{.path = "a.png",
              .bytes = std::make_shared<std::vector<uint8_t>>()}},
            one);
      },
      {"[shard_images]", "'a.png' is in memory"});
  EXPECT_FALSE(std::filesystem::exists(temp / "tar" / "train-000000.tar"));
}

}  // namespace
}  // namespace tern::tar_images_test
