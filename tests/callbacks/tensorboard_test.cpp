#include "tern/callbacks/tensorboard.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/lr_find.h"
#include "tern/callbacks/tensorboard_event.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/png_write.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tensorboard_reader.h"
#include "tern/tests/support/tiny.h"

namespace tern::tensorboard_test {
namespace {

using namespace testing_support;  // NOLINT
using Scalars = std::map<std::string, std::vector<std::pair<int64_t, float>>>;

Scalars scalars_of(const std::vector<ProtoMessage>& events) {
  Scalars scalars;
  for (const ProtoMessage& event : events) {
    if (!event.has(5)) continue;
    const ProtoMessage value = event.message(5).message(1);
    if (!value.has(2)) continue;
    scalars[value.bytes(1)].emplace_back(
        event.number<int64_t>(2),
        value.number<float>(2));
  }
  return scalars;
}

std::unique_ptr<Learner> learner(
    const std::filesystem::path& path,
    Sink sink = silent()) {
  return std::make_unique<Learner>(
      point_data(),
      point_net(),
      LearnerOptions{
          .metrics = {accuracy()},
          .path = path,
          .sink = std::move(sink)});
}

// RFC 3720, B.4, and the value that everybody tests with.
TEST(TensorBoardEvent, HasTheChecksumOfCastagnoli) {
  EXPECT_EQ(tensorboard::crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(tensorboard::crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(tensorboard::crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(tensorboard::crc32c(""), 0u);
}

TEST(TensorBoardWriter, WritesScalarsTextAndImages) {
  const TempFolder folder;
  TensorBoardWriter writer(folder / "a/b", silent());
  writer.add_scalar("loss", 0.25, 7);
  writer.add_scalar("loss", NAN, int64_t{1} << 40);
  writer.add_text("notes", "**hello**", 3);
  const std::vector<uint8_t> pixels(2 * 3 * 3, 200);
  const auto png = encode_png(pixels, 3, 2, 3);
  writer.add_image("picture", png, 4);
  writer.flush();
  const auto events = read_events(writer.file());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].bytes(3), "brain.Event:2");
  EXPECT_GT(events[0].number<double>(1), 1.6e9);
  const auto loss = scalars_of(events).at("loss");
  EXPECT_EQ(loss[0], std::make_pair(int64_t{7}, 0.25f));
  EXPECT_EQ(loss[1].first, int64_t{1} << 40);
  EXPECT_TRUE(std::isnan(loss[1].second));
  const ProtoMessage text = events[3].message(5).message(1);
  EXPECT_EQ(text.bytes(1), "notes/text_summary");
  EXPECT_EQ(text.message(8).bytes(8), "**hello**");
  EXPECT_EQ(text.message(9).message(1).bytes(1), "text");
  const ProtoMessage image = events[4].message(5).message(1).message(4);
  EXPECT_EQ(image.number<int64_t>(1), 2);
  EXPECT_EQ(image.number<int64_t>(2), 3);
  EXPECT_EQ(image.number<int64_t>(3), 3);
  EXPECT_EQ(image.bytes(4), std::string(png.begin(), png.end()));
}

TEST(TensorBoardWriter, WritesHistograms) {
  const TempFolder folder;
  TensorBoardWriter writer(folder / "", silent());
  const torch::Tensor values =
      torch::tensor({-2.0, 0.0, 0.5, 0.5, 3.0, double(NAN)});
  writer.add_histogram("h", values, 1);
  writer.add_histogram("nothing", torch::full({3}, NAN), 1);
  writer.flush();
  const auto events = read_events(writer.file());
  ASSERT_EQ(events.size(), 2u);
  const ProtoMessage histogram = events[1].message(5).message(1).message(5);
  EXPECT_EQ(histogram.number<double>(1), -2);
  EXPECT_EQ(histogram.number<double>(2), 3);
  EXPECT_EQ(histogram.number<double>(3), 5);
  EXPECT_EQ(histogram.number<double>(4), 2);
  EXPECT_EQ(histogram.number<double>(5), 13.5);
  const auto limits = histogram.reals(6), counts = histogram.reals(7);
  ASSERT_EQ(limits.size(), counts.size());
  const auto counted = [&](double value) {
    const auto at = std::lower_bound(limits.begin(), limits.end(), value);
    return counts.at(at - limits.begin());
  };
  EXPECT_EQ(counted(-2), 1);
  EXPECT_EQ(counted(0), 1);
  EXPECT_EQ(counted(0.5), 2);
  EXPECT_EQ(counted(3), 1);
  EXPECT_EQ(counted(1), 0);
}

// check_tensorboard.py reads it.
TEST(TensorBoardWriter, LeavesAFileForPython) {
  const char* folder = std::getenv("TERN_TENSORBOARD_FOLDER");
  if (!folder) GTEST_SKIP() << "no folder for Python's TensorBoard";
  std::filesystem::remove_all(folder);
  TensorBoardWriter writer(folder, silent());
  writer.add_scalar("loss", 1, 0);
  writer.add_scalar("loss", 0.5, 1);
  writer.add_scalar("loss", 0.25, int64_t{1} << 40);
  writer.add_text("notes", "**hello**", 3);
  writer.add_image("picture", encode_png(std::vector<uint8_t>(18), 3, 2, 3), 4);
  writer.add_histogram("weights", torch::tensor({-2.0, 0.0, 0.5, 0.5, 3.0}), 5);
}

TEST(TensorBoardWriter, RefusesWhatItCannotShow) {
  const TempFolder folder;
  TensorBoardWriter writer(folder / "", silent());
  const std::vector<uint8_t> none = {1, 2, 3};
  expect_error<c10::ValueError>(
      [&] { writer.add_image("x", none, 0); },
      {"3 bytes of \"x\" are no PNG"});
  expect_error<c10::ValueError>(
      [&] { writer.add_histogram("x", torch::arange(3), 0); },
      {"add_histogram"});
}

TEST(TensorBoard, WritesBatchesAndEpochsOfAllFits) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<TensorBoard>("runs/first").fit(2).fit(1);
  const auto scalars =
      scalars_of(read_events(learn->find<TensorBoard>()->writer().file()));
  const auto& losses = learn->recorder().losses();
  const auto& written = scalars.at("train/loss");
  ASSERT_EQ(written.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(written[i].first, static_cast<int64_t>(i));
    EXPECT_FLOAT_EQ(written[i].second, static_cast<float>(losses[i]));
  }
  EXPECT_EQ(scalars.at("train/lr").size(), losses.size());
  const auto& accuracy = scalars.at("valid/accuracy");
  ASSERT_EQ(accuracy.size(), 3u);
  EXPECT_EQ(accuracy[2].first, 24);
  EXPECT_FLOAT_EQ(
      accuracy[2].second,
      static_cast<float>(learn->recorder().epochs()[2].metrics[0].value));
}

TEST(TensorBoard, WritesEachNthBatchAndHistogramsIfAsked) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<TensorBoard>({.every = 3, .histograms = true}).fit(2);
  const auto events = read_events(learn->find<TensorBoard>()->writer().file());
  EXPECT_EQ(scalars_of(events).at("train/loss").size(), 6u);
  int histograms = 0;
  for (const auto& event : events) {
    histograms += event.has(5) && event.message(5).message(1).has(5);
  }
  EXPECT_EQ(histograms, 2 * 6);
}

TEST(TensorBoard, ReadsNothingFromTheDeviceByItself) {
  const TempFolder folder;
  const auto reads = [&](bool with) {
    const auto learn = learner(folder / "");
    if (with) learn->add<TensorBoard>();
    test::HostReads reads;
    learn->fit(2);
    return reads.count();
  };
  EXPECT_EQ(reads(true), reads(false));
}

TEST(TensorBoard, StaysQuietInATrial) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<TensorBoard>();
  learn->lr_find({.num_it = 8});
  EXPECT_EQ(folder.entries(), 0);
  learn->fit(1);
  learn->lr_find({.num_it = 8});
  learn->fit(1);
  const auto scalars =
      scalars_of(read_events(learn->find<TensorBoard>()->writer().file()));
  EXPECT_EQ(scalars.at("train/loss").size(), 16u);
}

TEST(TensorBoard, CannotStartInAFolderThatCannotBeMade) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  const auto learn = learner(folder / "file");
  learn->add<TensorBoard>();
  expect_error<IoError>([&] { learn->fit(1); }, {"file/runs"});
  expect_error<c10::Error>(
      [&] { learn->find<TensorBoard>()->writer(); },
      {"before the first fit"});
  expect_error<c10::ValueError>(
      [] { TensorBoard callback({.every = 0}); },
      {"every is 0"});
}

}  // namespace
}  // namespace tern::tensorboard_test
