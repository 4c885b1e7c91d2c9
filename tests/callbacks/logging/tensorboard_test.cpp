#include "tern/callbacks/logging/tensorboard.h"

#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/schedules/lr_find.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/samples/png.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
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

// Test vectors of RFC 3720, B.4, and the usual CRC-32C check value.
TEST(TensorBoardEvent, HasTheCrc32cChecksum) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
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

// Copies the file for check_tensorboard.py.
void leave_for_python(
    const std::filesystem::path& file,
    const std::string& run) {
  const char* folder = std::getenv("TERN_TENSORBOARD_FOLDER");
  if (!folder) return;
  const std::filesystem::path place = std::filesystem::path(folder) / run;
  std::filesystem::remove_all(place);
  std::filesystem::create_directories(place);
  std::filesystem::copy(file, place);
}

// check_tensorboard.py reads the file.
TEST(TensorBoardWriter, WritesAFileForPython) {
  const char* folder = std::getenv("TERN_TENSORBOARD_FOLDER");
  if (!folder) GTEST_SKIP() << "TERN_TENSORBOARD_FOLDER is not set";
  const std::filesystem::path place = std::filesystem::path(folder) / "written";
  std::filesystem::remove_all(place);
  TensorBoardWriter writer(place, silent());
  writer.add_scalar("loss", 1, 0);
  writer.add_scalar("loss", 0.5, 1);
  writer.add_scalar("loss", 0.25, int64_t{1} << 40);
  writer.add_text("notes", "**hello**", 3);
  writer.add_image("picture", encode_png(std::vector<uint8_t>(18), 3, 2, 3), 4);
  writer.add_histogram("weights", torch::tensor({-2.0, 0.0, 0.5, 0.5, 3.0}), 5);
}

TEST(TensorBoardWriter, RejectsInvalidImagesAndHistograms) {
  const TempFolder folder;
  TensorBoardWriter writer(folder / "", silent());
  const std::vector<uint8_t> none = {1, 2, 3};
  expect_error<c10::ValueError>(
      [&] { writer.add_image("x", none, 0); },
      {"3 bytes of \"x\" are not a PNG"});
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
  const auto& written = scalars.at("batch/loss");
  ASSERT_EQ(written.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(written[i].first, static_cast<int64_t>(i));
    EXPECT_FLOAT_EQ(written[i].second, static_cast<float>(losses[i]));
  }
  EXPECT_EQ(scalars.at("batch/lr").size(), losses.size());
  const auto& accuracy = scalars.at("epoch/accuracy");
  ASSERT_EQ(accuracy.size(), 3u);
  EXPECT_EQ(accuracy[2].first, 24);
  EXPECT_FLOAT_EQ(
      accuracy[2].second,
      static_cast<float>(learn->recorder().epochs()[2].metrics[0].value));
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files.push_back(entry.path());
  }
  return files;
}

void expect_each_step_once(const std::filesystem::path& file, int64_t batches) {
  const Scalars scalars = scalars_of(read_events(file));
  for (const char* tag : {"batch/loss", "batch/lr"}) {
    const auto& written = scalars.at(tag);
    ASSERT_EQ(static_cast<int64_t>(written.size()), batches) << tag;
    for (int64_t i = 0; i < batches; ++i) EXPECT_EQ(written[i].first, i);
  }
  const auto& epochs = scalars.at("epoch/valid_loss");
  ASSERT_EQ(static_cast<int64_t>(epochs.size()), batches / 8);
  for (int64_t i = 0; i < batches / 8; ++i) {
    EXPECT_EQ(epochs[i].first, 8 * (i + 1));
  }
}

// Dies at step 20, after saving a checkpoint at `step`.
void train_and_die(
    const TempFolder& folder,
    int64_t step,
    int order,
    bool resumes = false) {
  const auto learn = learner(folder / "");
  learn->add<TensorBoard>();
  if (resumes) learn->resume(folder / "run");
  const auto save = [&](Learner& l) {
    if (l.state().iteration != step) return;
    if (!has_checkpoint(folder / "run")) l.save_checkpoint(folder / "run");
  };
  LambdaCallbackOptions options{.order = order};
  (step % 8 ? options.on_batch_end : options.on_epoch_end) = save;
  options.on_step = [](Learner& l) {
    if (l.state().iteration == 20) throw std::runtime_error("killed");
  };
  learn->add(std::make_shared<LambdaCallback>(options));
  EXPECT_THROW(learn->fit(3), std::runtime_error);
}

TEST(TensorBoard, WritesEachStepOnceToOneFileAcrossKills) {
  for (const int order : {callback_order::kProgress, callback_order::kLast}) {
    for (const int64_t step : {3, 8, 11, 16}) {
      SCOPED_TRACE(fmt::format("order {}, step {}", order, step));
      const TempFolder folder;
      train_and_die(folder, step, order);
      train_and_die(folder, step, order, /*resumes=*/true);
      const auto learn = learner(folder / "");
      learn->add<TensorBoard>().resume(folder / "run").fit(3);
      const auto files = files_in(folder / "runs");
      ASSERT_EQ(files.size(), 1u);
      expect_each_step_once(files[0], 24);
      leave_for_python(files[0], fmt::format("resumed/{}_{}", order, step));
    }
  }
}

TEST(TensorBoard, StartsANewFileIfTheCheckpointsFileWasRemovedOrReplaced) {
  for (const bool is_gone : {true, false}) {
    const TempFolder folder;
    train_and_die(folder, 8, callback_order::kLast);
    const auto first = files_in(folder / "runs").at(0);
    if (is_gone) {
      std::filesystem::remove(first);
    } else {
      std::ofstream(first) << std::string(1 << 16, 'x');
    }
    const auto learn = learner(folder / "");
    learn->add<TensorBoard>().resume(folder / "run").fit(3);
    const auto file = learn->find<TensorBoard>()->writer().file();
    EXPECT_NE(file, first);
    const Scalars scalars = scalars_of(read_events(file));
    const auto& written = scalars.at("batch/loss");
    ASSERT_EQ(written.size(), 16u);
    EXPECT_EQ(written[0].first, 8);
  }
}

TEST(TensorBoard, StartsWhereACallbackAddsIt) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<LambdaCallback>({.on_epoch_begin = [](Learner& l) {
    if (l.state().epoch == 1) l.add<TensorBoard>();
  }});
  learn->fit(3);
  const auto scalars =
      scalars_of(read_events(learn->find<TensorBoard>()->writer().file()));
  EXPECT_EQ(scalars.at("batch/loss").size(), 16u);
  EXPECT_EQ(scalars.at("batch/loss")[0].first, 8);
  EXPECT_EQ(scalars.at("epoch/valid_loss").size(), 2u);
}

TEST(TensorBoard, WritesEachNthBatchAndHistogramsOnRequest) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn->add<TensorBoard>({.every = 3, .histograms = true}).fit(2);
  const auto events = read_events(learn->find<TensorBoard>()->writer().file());
  EXPECT_EQ(scalars_of(events).at("batch/loss").size(), 6u);
  int histograms = 0;
  for (const auto& event : events) {
    histograms += event.has(5) && event.message(5).message(1).has(5);
  }
  EXPECT_EQ(histograms, 2 * 6);
}

TEST(TensorBoard, WritesGradientsAndWeightsEachNthBatch) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn
      ->add<TensorBoard>(
          {.histograms = true,
           .gradient_histograms = true,
           .histogram_every = 4})
      .fit(1);
  std::map<std::string, std::vector<int64_t>> steps;
  for (const ProtoMessage& event :
       read_events(learn->find<TensorBoard>()->writer().file())) {
    if (!event.has(5) || !event.message(5).message(1).has(5)) continue;
    steps[event.message(5).message(1).bytes(1)].push_back(
        event.number<int64_t>(2));
  }
  for (const char* tag : {"weights/0.weight", "gradients/0.weight"}) {
    EXPECT_EQ(steps[tag], (std::vector<int64_t>{0, 4})) << tag;
  }
}

TEST(TensorBoard, WritesValuesLoggedByCallbacksPerBatchAndEpoch) {
  const TempFolder folder;
  const auto learn = learner(folder / "");
  learn
      ->add<LambdaCallback>(
          {.on_step =
               [](Learner& l) {
                 l.log("twice", 2.0 * static_cast<double>(l.state().batch));
               }})
      .add<TensorBoard>()
      .fit(1);
  const auto scalars =
      scalars_of(read_events(learn->find<TensorBoard>()->writer().file()));
  EXPECT_EQ(scalars.at("logged/twice").at(3), std::pair(int64_t{3}, 6.f));
  EXPECT_EQ(scalars.at("epoch/twice").at(0), std::pair(int64_t{8}, 7.f));
}

TEST(TensorBoard, AddsNoReadsFromTheDevice) {
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

TEST(TensorBoard, WritesNothingInADryRun) {
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
  EXPECT_EQ(scalars.at("batch/loss").size(), 16u);
}

TEST(TensorBoard, RejectsAFolderThatCannotBeCreated) {
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
