#include "tern/vision/matting/matting_data.h"

#include <gtest/gtest.h>

#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/data/formats/error.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/matting/scenes.h"
#include "tern/vision/matting/matting_loss.h"

namespace tern::matting_data_test {
namespace {

using namespace testing_support;  // NOLINT
namespace fs = std::filesystem;

MattingDataOptions tiny_options() {
  return {
      .dataset = {.size = 24},
      .augment = {.min_shadow_blur = 3, .max_shadow_blur = 5},
      .batch_size = 2,
      .workers = 0,
      .device = torch::kCPU};
}

TEST(MattingData, SplitsFoldersWithoutTrainAndValid) {
  const Scenes scenes(10, 20);
  const DataBunch data =
      matting_data(scenes.pairs(), scenes.backgrounds(), tiny_options());
  EXPECT_EQ(data.train->dataset().size(), 16);  // of 8 pairs
  EXPECT_EQ(data.valid->dataset().size(), 4);
  EXPECT_TRUE(data.train->options().training);
  EXPECT_FALSE(data.valid->options().training);

  MattingDataOptions half = tiny_options();
  half.valid_pct = 0.5;
  const DataBunch halves =
      matting_data(scenes.pairs(), scenes.backgrounds(), half);
  EXPECT_EQ(halves.train->dataset().size(), 10);
  EXPECT_EQ(halves.valid->dataset().size(), 10);
}

TEST(MattingData, UsesTheFoldersTrainAndValid) {
  const Scenes scenes(2, 3);
  for (const std::string folder : {"pairs", "backgrounds"}) {
    for (const std::string side : {"train", "valid"}) {
      fs::create_directories(scenes / ("split/" + folder));
      fs::copy(
          scenes / folder,
          scenes / ("split/" + folder + "/" + side),
          fs::copy_options::recursive);
    }
    if (folder == "pairs") {
      expect_error<DataError>(
          [&] { matting_data(scenes / "split/pairs", scenes.backgrounds()); },
          {"backgrounds: has no folders train and valid"});
    }
  }
  const DataBunch data = matting_data(
      scenes / "split/pairs",
      scenes / "split/backgrounds",
      tiny_options());
  EXPECT_EQ(data.train->dataset().size(), 3);
  EXPECT_EQ(data.valid->dataset().size(), 3);
}

TEST(MattingData, ValidSamplesSelectsAnEvenSubset) {
  const Scenes scenes(10, 20);
  MattingDataOptions options = tiny_options();
  options.valid_samples = 2;
  const DataBunch data =
      matting_data(scenes.pairs(), scenes.backgrounds(), options);
  EXPECT_EQ(data.valid->dataset().size(), 2);
  EXPECT_NE(data.valid->dataset().describe(0), "");
}

/// Trains on `scenes` for a few epochs, or until `stop_after` batches.
struct Training {
  Training(const Scenes& scenes, int64_t stop_after)
      : learn(
            matting_data(scenes.pairs(), scenes.backgrounds(), tiny_options()),
            net(),
            quiet(
                {.loss = matting_base_loss,
                 .optimizer = optimizer<optim::Adam>(),
                 .metrics = matting_metrics()})) {
    learn.add<LambdaCallback>({.on_batch_end = [=, this](Learner& l) {
      const TrainState& state = l.state();
      if (!state.training) return;
      scenes_sum += state.batch_data.inputs[0].sum().item<double>();
      if (state.iteration == stop_after) l.request_stop();
    }});
  }

  static TinyMatting net() {
    torch::manual_seed(7);
    return TinyMatting();
  }

  double scenes_sum = 0;  // of all training batches
  Learner learn;
};

TEST(MattingData, LearnsAlpha) {
  const Scenes scenes(10, 20);
  Training run(scenes, 0);
  const double before = run.learn.validate().metrics[0].value;
  run.learn.fit(4, 0.02);
  const EpochRecord last = run.learn.recorder().epochs().back();
  EXPECT_LT(last.metrics[0].value, 0.7 * before);
  EXPECT_TRUE(std::isfinite(last.metrics[3].value));
}

TEST(MattingData, AResumedRunSeesTheSameScenes) {
  const Scenes scenes(10, 20);
  Training whole(scenes, 0);
  whole.learn.fit(2, 0.02);

  Training first(scenes, 11);  // in the second epoch
  first.learn.add<SaveCheckpoint>({.folder = scenes / "run"});
  first.learn.fit(2, 0.02);
  Training second(scenes, 0);
  second.learn.resume(scenes / "run").fit(2, 0.02);
  EXPECT_EQ(first.scenes_sum + second.scenes_sum, whole.scenes_sum);
  EXPECT_TRUE(
      all_equal(parameters_of(second.learn), parameters_of(whole.learn)));
}

}  // namespace
}  // namespace tern::matting_data_test
