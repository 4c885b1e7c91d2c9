#include "tern/vision/data_block.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/sampler.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/transforms/geometry.h"

namespace tern::data_block_test {
namespace {

const ImageDataset& images_of(const std::shared_ptr<DataLoader>& loader) {
  return dynamic_cast<const ImageDataset&>(loader->dataset());
}

std::set<std::string> names_of(const std::shared_ptr<DataLoader>& loader) {
  std::set<std::string> names;
  for (const std::string& path : images_of(loader).paths()) {
    names.insert(std::filesystem::path(path).filename().string());
  }
  return names;
}

/// Returns all targets in dataset order.
torch::Tensor targets_of(const std::shared_ptr<DataLoader>& loader) {
  const ImageDataset& images = images_of(loader);
  std::vector<int64_t> all(static_cast<size_t>(images.size()));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<int64_t>(i);
  }
  return images.get_batch(all, {}).targets[0];
}

class DataBlockTest : public testing::Test {
 protected:
  void write(const std::string& name) { write_image(temp_ / name); }
  void write_table(const std::string& text) {
    write_file(temp_ / "labels.csv", text);
  }
  ImageItems items() const { return items_from_folder(temp_.path()); }

  TempFolder temp_;
  ImageDataBunchOptions options_ = {.batch_size = 2, .workers = 0};
};

TEST_F(DataBlockTest, LabelsByARegularExpression) {
  for (const char* name :
       {"big_cat_1.png",
        "big_cat_2.png",
        "dog_10.png",
        "dog_11.png",
        "dog_12.png"}) {
    write(name);
  }
  const DataBunch data = ImageDataBunch::from_name_re(
      temp_.path(),
      R"(/([^/]+)_\d+\.png$)",
      {.valid_pct = 0.2, .seed = 1, .batch_size = 2, .workers = 0});
  EXPECT_EQ(data.classes, (std::vector<std::string>{"big_cat", "dog"}));
  EXPECT_EQ(data.train->dataset().size(), 4);
  EXPECT_EQ(data.valid->dataset().size(), 1);
}

TEST_F(DataBlockTest, NamesTheFileThatARegularExpressionDoesNotMatch) {
  write("cat_1.png");
  write("readme.png");
  expect_error<DataError>(
      [&] {
        ImageDataBunch::from_name_re(
            temp_.path(),
            R"(/([^/]+)_\d+\.png$)",
            {.valid_pct = 0.5});
      },
      {"readme.png", "does not match"});
  expect_error<c10::ValueError>([] { label_from_re("(x"); }, {"(x"});
  expect_error<c10::ValueError>([] { label_from_re("x"); }, {"no group"});
}

TEST_F(DataBlockTest, ReadsImagesAndClassesFromATable) {
  for (const char* name : {"x/a.png", "x/b.png", "x/c.png"}) {
    write(name);
  }
  write_table("name,label,is_valid\na,cat,0\nb,dog,False\nc,dog,True\n");
  const DataBunch data = ImageDataBunch::from_csv(
      temp_.path(),
      {.folder = "x", .valid_column = "is_valid", .suffix = ".png"},
      options_);
  EXPECT_EQ(data.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(names_of(data.valid), (std::set<std::string>{"c.png"}));
  EXPECT_EQ(targets_of(data.valid)[0].item<int64_t>(), 1);
}

// If the first line names an image, it is a normal row.
TEST_F(DataBlockTest, ReadsATableWithoutAHeader) {
  for (const char* name : {"a.png", "b.png", "c.png", "d.png"}) {
    write(name);
  }
  write_table("a.png\tcat\nb.png\tdog\nc.png\tcat\nd.png\tdog\n");
  options_.valid_pct = 0.4;
  for (const std::optional<bool> header : {std::optional<bool>(), {false}}) {
    const DataBunch data = ImageDataBunch::from_csv(
        temp_.path(),
        {.delimiter = '\t', .header = header},
        options_);
    EXPECT_EQ(data.classes, (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(names_of(data.train).size() + names_of(data.valid).size(), 4U);
  }
  const DataBunch named = ImageDataBunch::from_csv(
      temp_.path(),
      {.path_column = "0",
       .label_column = "1",
       .delimiter = '\t',
       .header = false},
      options_);
  EXPECT_EQ(named.classes, (std::vector<std::string>{"cat", "dog"}));
  const DataBunch suffixed = [&] {
    write_table("a,cat\nb,dog\nc,cat\nd,dog\n");
    return ImageDataBunch::from_csv(temp_.path(), {.suffix = ".png"}, options_);
  }();
  EXPECT_EQ(
      names_of(suffixed.train).size() + names_of(suffixed.valid).size(),
      4U);
  // `header = true` skips the first line even if it names an image.
  const DataBunch left_out = ImageDataBunch::from_csv(
      temp_.path(),
      {.header = true, .suffix = ".png"},
      options_);
  EXPECT_EQ(
      names_of(left_out.train).size() + names_of(left_out.valid).size(),
      3U);
}

TEST_F(DataBlockTest, ErrorNamesTheIndexColumnOfPandas) {
  write("a.png");
  write_table(",name,label\n0,a.png,cat\n");
  expect_error<DataError>(
      [&] { ImageDataBunch::from_csv(temp_.path(), {}, options_); },
      {"labels.csv", "first column without a name", "index=False"});
}

TEST_F(DataBlockTest, RejectsLabelsThatAreNotUtf8) {
  write("a.png");
  write("b.png");
  options_.valid_pct = 0.5;
  write_table("name,label\na.png,tea\nb.png,caf\xe9\n");
  expect_error<DataError>(
      [&] { ImageDataBunch::from_csv(temp_.path(), {}, options_); },
      {"labels.csv:3", "caf\\xe9", "not UTF-8"});
  make_folders(temp_ / "f" / "caf\xe9");
  make_folders(temp_ / "f" / "tea");
  for (const char* name : {"f/caf\xe9/1.png", "f/tea/2.png"}) write(name);
  expect_error<c10::ValueError>(
      [&] { ImageDataBunch::from_folder(temp_ / "f", {.valid_pct = 0.5}); },
      {"caf\\xe9", "not UTF-8"});
}

// With several rows for one image, an image in both splits would leak from
// training into validation.
TEST_F(DataBlockTest, KeepsTheRowsOfAnImageInOneSplit) {
  std::string table = "name,label\n";
  for (int i = 0; i < 12; ++i) {
    const std::string name = std::to_string(i) + ".png";
    write(name.c_str());
    for (int row = 0; row <= i % 3; ++row) {
      table += name + ",x" + std::to_string(row) + "\n";
    }
  }
  write_table(table);
  std::string said;
  options_.sink = [&](const std::string& line) { said += line; };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options_.seed = seed;
    const auto data = DataBlock{
        .items = items_from_csv(temp_.path(), temp_ / "labels.csv"),
        .split = split_at_random(0.25, seed),
        .label = label_from_column({"label"}),
        .classes = {
            "x0",
            "x1",
            "x2"}}.bunch(options_);
    EXPECT_EQ(names_of(data.valid).size(), 3U);
    EXPECT_EQ(names_of(data.train).size(), 9U);
    EXPECT_EQ(said, "");
  }
  const auto of_rows = DataBlock{
      .items = items_from_csv(temp_.path(), temp_ / "labels.csv"),
      .split = split_by_func(
          [](const ImageItem& item) { return item.cell("label") == "x1"; }),
      .label = label_from_column({"label"}),
      .classes = {
          "x0",
          "x1",
          "x2"}}.bunch(options_);
  EXPECT_NE(
      said.find("8 of the validation images are training images too"),
      std::string::npos)
      << said;
}

TEST_F(DataBlockTest, EncodesSeveralClassesAsMultiHot) {
  for (const char* name : {"a.png", "b.png", "c.png"}) {
    write(name);
  }
  write_table(
      "name,tags,part\na.png,sun sea,train\nb.png,,train\nc.png,sea,valid\n");
  const DataBunch data = ImageDataBunch::from_csv(
      temp_.path(),
      {.label_delimiter = " ", .valid_column = "part"},
      options_);
  EXPECT_EQ(data.classes, (std::vector<std::string>{"sea", "sun"}));
  EXPECT_TRUE(torch::equal(
      targets_of(data.train),
      torch::tensor({1.f, 1.f, 0.f, 0.f}).view({2, 2})));
  EXPECT_TRUE(torch::equal(
      targets_of(data.valid),
      torch::tensor({1.f, 0.f}).view({1, 2})));
}

TEST_F(DataBlockTest, ReadsNumbersFromOneOrMoreColumns) {
  for (const char* name : {"a.png", "b.png", "c.png"}) {
    write(name);
  }
  write_table("name,x,y,part\na.png,1.5,2,\nb.png,-3,4e1,\nc.png,0,0,1\n");
  DataBlock block{
      .items = items_from_csv(temp_.path(), temp_ / "labels.csv"),
      .split = split_by_column("part"),
      .label = label_from_column({"x", "y"}),
      .target = TargetKind::number};
  EXPECT_TRUE(torch::equal(
      targets_of(block.bunch(options_).train),
      torch::tensor({1.5f, 2.f, -3.f, 40.f}).view({2, 2})));
  block.label = label_from_column({"x"});
  EXPECT_TRUE(torch::equal(
      targets_of(block.bunch(options_).train),
      torch::tensor({1.5f, -3.f})));
}

TEST_F(DataBlockTest, TakesNumbersFromAFunctionUnchanged) {
  for (const char* name : {"1.png", "2.png", "3.png"}) {
    write(name);
  }
  const auto number_of = [](const ImageItem& item) {
    return std::stod(std::filesystem::path(item.path).stem()) / 3;
  };
  DataBlock block{
      .items = items_from_folder(temp_.path()),
      .split = split_by_list({"3.png"}),
      .label = label_from_func(number_of),
      .target = TargetKind::number,
      .classes = {"thirds"}};
  const DataBunch one = block.bunch(options_);
  EXPECT_TRUE(
      torch::equal(targets_of(one.train), torch::tensor({1 / 3.f, 2 / 3.f})));
  EXPECT_TRUE(one.classes.empty());
  EXPECT_EQ(one.outputs.at(0).names, std::vector<std::string>{"thirds"});
  block.label = label_from_func([&](const ImageItem& item) {
    return std::vector<double>{number_of(item), 1e-9};
  });
  EXPECT_TRUE(torch::equal(
      targets_of(block.bunch(options_).valid),
      torch::tensor({1.f, 1e-9f}).view({1, 2})));
}

TEST_F(DataBlockTest, FindsTheMaskOfEachImage) {
  for (const char* name : {"images/a.png", "images/b.png"}) {
    write(name);
  }
  make_folders(temp_ / "masks");
  for (const char* name : {"a.png", "b.png"}) {
    write_file(
        temp_ / "masks" / name,
        encode(cv::Mat(8, 8, CV_8UC1, cv::Scalar(2)), ".png"));
  }
  const auto mask_of = [this](const ImageItem& item) {
    const std::filesystem::path image = item.path;
    return (temp_ / "masks" / image.filename()).string();
  };
  const DataBlock block{
      .items = items_from_folder(temp_ / "images"),
      .split = split_by_list({"b.png"}),
      .label = label_from_func(mask_of),
      .target = TargetKind::mask,
      .classes = {"sky", "road", "car"}};
  const DataBunch data = block.bunch(options_);
  EXPECT_EQ(data.classes.size(), 3u);
  EXPECT_TRUE(torch::equal(
      targets_of(data.valid),
      torch::full({1, 8, 8}, 2, torch::kLong)));
  std::filesystem::remove(temp_ / "masks/b.png");
  expect_error<DataError>(
      [&] { block.bunch(options_); },
      {"images/b.png", "which is not a file"});
}

TEST_F(DataBlockTest, SplitsByFolderListAndFunction) {
  for (const char* name : {"train/a/1.png", "train/b/2.png", "valid/a/3.png"}) {
    write(name);
  }
  DataBlock block{.items = items(), .split = split_by_folder()};
  for (const Splitter& split :
       {split_by_folder(),
        split_by_list({"valid/a/3.png"}),
        split_by_func([](const ImageItem& item) {
          return item.path.find("/3") != std::string::npos;
        })}) {
    block.split = split;
    EXPECT_EQ(
        names_of(block.bunch(options_).valid),
        (std::set<std::string>{"3.png"}));
  }
  block.split = split_by_folder("no", "such");
  expect_error<DataError>(
      [&] { block.bunch(options_); },
      {"neither of the folders no and such"});
  block.split = split_by_list({"9.png"});
  expect_error<DataError>([&] { block.bunch(options_); }, {"9.png", "list"});
  block.split = split_by_func([](const ImageItem&) { return false; });
  expect_error<DataError>(
      [&] { block.bunch(options_); },
      {"one validation image"});
}

TEST_F(DataBlockTest, RandomSplitsDependOnlyOnTheSeed) {
  for (int i = 0; i < 20; ++i) {
    write("a/" + std::to_string(i) + ".png");
  }
  const auto valid_for = [&](uint64_t seed) {
    return names_of(
        DataBlock{.items = items(), .split = split_at_random(0.25, seed)}
            .bunch(options_)
            .valid);
  };
  EXPECT_EQ(valid_for(1).size(), 5u);
  EXPECT_EQ(valid_for(1), valid_for(1));
  EXPECT_NE(valid_for(1), valid_for(2));
}

TEST(DrawSplit, IsIndependentOfTheOrderOfTheFirstEpoch) {
  std::vector<int64_t> first = RandomSampler(100).indices(1, /*epoch=*/0);
  first.resize(20);
  std::ranges::sort(first);
  EXPECT_NE(draw_split(100, 0.2, 1).valid, first);
}

TEST_F(DataBlockTest, NamesTheInvalidRow) {
  write("a.png");
  write("b.png");
  const auto error_for = [&](const std::string& table,
                             TargetKind target = TargetKind::category) {
    write_table(table);
    return error_of<DataError>([&] {
      DataBlock{
          .items = items_from_csv(temp_.path(), temp_ / "labels.csv"),
          .split = split_by_column("part"),
          .label = label_from_column({"label"}),
          .target = target}
          .bunch(options_);
    });
  };
  const auto has = [](const std::string& error, const std::string& word) {
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  std::string error = error_for("name,label,part\na.png,x,0\nb.png,y,1\n");
  has(error, "labels.csv:3");
  has(error, "'y', which no training image has (x)");
  error = error_for("name,label,part\na.png,,0\nb.png,,1\n");
  has(error, "labels.csv:2");
  has(error, "no label");
  error = error_for("name,label,part\n,x,0\nb.png,x,1\n");
  has(error, "names no file");
  error = error_for("name,label,part\na.png,x,0\nb.png,x,maybe\n");
  has(error, "'maybe' in the column part");
  error = error_for(
      "name,label,part\na.png,1.5,0\nb.png,1.5kg,1\n",
      TargetKind::number);
  has(error, "1.5kg");
  has(error_for("name,label,part\n"), "no rows");
  has(error_for("name,tag,part\na.png,x,0\n"), "no column 'label'");
}

TEST_F(DataBlockTest, KeepsClassesThatAreGiven) {
  write("a/1.png");
  write("a/2.png");
  const DataBunch data = DataBlock{
      .items = items(),
      .split = split_by_list({"2.png"}),
      .classes = {"z", "a"}}.bunch(options_);
  EXPECT_EQ(targets_of(data.train)[0].item<int64_t>(), 1);
  expect_error<c10::ValueError>(
      [&] {
        DataBlock{
            .items = items(),
            .split = split_by_list({"2.png"}),
            .classes = {"a", "a"}}
            .bunch(options_);
      },
      {"'a' is duplicated"});
}

TEST_F(DataBlockTest, TakesListsOfPathsAndLabels) {
  std::vector<std::string> paths, labels;
  for (int i = 0; i < 10; ++i) {
    write(std::to_string(i) + ".png");
    paths.push_back((temp_ / (std::to_string(i) + ".png")).string());
    labels.push_back(i % 2 == 0 ? "even" : "odd");
  }
  const DataBunch data =
      ImageDataBunch::from_lists(paths, labels, {.workers = 0});
  EXPECT_EQ(data.classes, (std::vector<std::string>{"even", "odd"}));
  EXPECT_EQ(data.valid->dataset().size(), 2);
  labels.pop_back();
  expect_error<c10::ValueError>(
      [&] { ImageDataBunch::from_lists(paths, labels); },
      {"10 images and 9 labels"});
}

TEST_F(DataBlockTest, SamplesRareClassesAsOftenAsOthers) {
  for (int i = 0; i < 60; ++i) {
    write(
        "train/" + std::string(i < 5 ? "rare" : "common") + "/" +
        std::to_string(i) + ".png");
  }
  write("valid/common/1.png");
  const DataBunch data = ImageDataBunch::from_folder(
      temp_.path(),
      {.batch_size = 10, .workers = 0, .balance_classes = true});
  int64_t rare = 0, all = 0;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    for (auto batches = data.train->epoch(epoch);
         auto batch = batches.next();) {
      rare += batch->targets[0].sum().item<int64_t>();
      all += batch->size();
    }
  }
  EXPECT_EQ(data.classes[1], "rare");
  EXPECT_NEAR(static_cast<double>(rare) / static_cast<double>(all), 0.5, 0.1);
}

TEST_F(DataBlockTest, KeepsFileNamesWithAnyBytes) {
  for (const char* name :
       {"cafe\xcc\x81/1.png",
        "cafe\xcc\x81/a b\xff.png",
        "\xf0\x9f\x90\xb1/-1.png",
        "\xf0\x9f\x90\xb1/2.png"}) {
    write(name);
  }
  const DataBunch data =
      DataBlock{.items = items(), .split = split_by_list({"1.png"})}.bunch(
          options_);
  EXPECT_EQ(
      data.classes,
      (std::vector<std::string>{"cafe\xcc\x81", "\xf0\x9f\x90\xb1"}));
}

TEST_F(DataBlockTest, SplitsImagesIntoStratifiedFolds) {
  for (int i = 0; i < 9; ++i) {
    write("cat_" + std::to_string(i) + ".png");
    if (i < 6) write("dog_" + std::to_string(i) + ".png");
  }
  const DataBlock pets{
      .items = items(),
      .label = label_from_re(R"(/([^/]+)_\d+\.png$)")};
  options_.transforms.train = {flip_lr(1.f)};
  std::set<std::string> valid;
  for (const DataBunch& fold :
       k_folds(pets, 3, options_, {.stratified = true})) {
    EXPECT_EQ(fold.classes, (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(targets_of(fold.valid).sum().item<int64_t>(), 2);
    EXPECT_EQ(images_of(fold.valid).size(), 5);
    EXPECT_EQ(images_of(fold.train).size(), 10);
    EXPECT_TRUE(fold.train->options().training);
    EXPECT_FALSE(fold.valid->options().training);
    EXPECT_EQ(images_of(fold.train).options().transforms.train.size(), 1u);
    for (const std::string& name : names_of(fold.valid)) {
      EXPECT_FALSE(names_of(fold.train).contains(name));
      EXPECT_TRUE(valid.insert(name).second) << name;
    }
  }
  EXPECT_EQ(valid.size(), 15u);
}

TEST_F(DataBlockTest, KeepsTheRowsOfAnImageInOneFold) {
  write("a.png");
  write("b.png");
  write_table("name,label\na.png,1\na.png,2\nb.png,3\nb.png,4\n");
  const DataBlock block{
      .items = items_from_csv(temp_.path(), temp_ / "labels.csv"),
      .label = label_from_column({"label"}),
      .target = TargetKind::number};
  for (const DataBunch& fold : k_folds(block, 2, options_)) {
    EXPECT_EQ(images_of(fold.valid).size(), 2);
    EXPECT_EQ(names_of(fold.valid).size(), 1u);
  }
  expect_error<c10::ValueError>(
      [&] { k_folds(block, 2, options_, {.stratified = true}); },
      {"one class per image"});
  expect_error<c10::ValueError>([&] { k_folds(block, 3); }, {"3 folds"});
  options_.sampler = std::make_shared<SequentialSampler>(2);
  expect_error<c10::ValueError>(
      [&] { k_folds(block, 2, options_); },
      {"a sampler", "balance_classes"});
  expect_error<c10::ValueError>(
      [] { k_folds(DataBlock{}, 2); },
      {"items or a labeller is missing"});
}

TEST_F(DataBlockTest, BalancesTheClassesOfEachFold) {
  for (int i = 0; i < 8; ++i) {
    write("cat_" + std::to_string(i) + ".png");
    if (i < 4) write("dog_" + std::to_string(i) + ".png");
  }
  options_.balance_classes = true;
  const DataBlock pets{
      .items = items(),
      .label = label_from_re(R"(/([^/]+)_\d+\.png$)")};
  for (const DataBunch& fold : k_folds(pets, 2, options_)) {
    EXPECT_TRUE(fold.train->options().sampler);
  }
  expect_error<c10::ValueError>(
      [&] { k_folds(pets.bunch(options_), 2); },
      {"train loader has a sampler"});
}

}  // namespace
}  // namespace tern::data_block_test
