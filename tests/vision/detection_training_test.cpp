// A detector trained with other features of a Learner.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/metrics/mean_average_precision.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/lora.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/weight_bytes.h"
#include "tern/tests/vision/squares.h"
#include "tern/vision/models/cnn/resnet.h"

namespace tern::detection_training_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

// Without batch statistics, so that the batch size has no effect.
const DetectionLearnerOptions kFrozenNorm = {
    .frozen_norm = true,
    .learner = {
        .optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1))}};

void expect_same_weights(Learner& learn, Learner& expected, double error) {
  const Tensors now = parameters_of(learn), others = parameters_of(expected);
  ASSERT_EQ(now.size(), others.size());
  for (size_t i = 0; i < now.size(); ++i) {
    EXPECT_TRUE(torch::allclose(now[i], others[i], 1e-4, error)) << i;
  }
}

TEST(DetectionTraining, LearnsToLocateAndClassifySquares) {
  const Squares squares;
  Learner learn = squares.learner();
  learn.data().valid = learn.data().train;
  EXPECT_LT(learn.validate()["map_50"], 0.1);
  learn.fit(30, 3e-4);
  EXPECT_GT(learn.validate()["map_50"], 0.9);
}

TEST(DetectionTraining, LossesIn16BitsAreCloseToThoseIn32) {
  const Squares squares;
  const auto losses_of = [&](const auto& convert) {
    Learner learn = squares.learner();
    convert(learn);
    learn.fit(2, 1e-4);
    EXPECT_EQ(
        learn.get_preds(Split::valid).outputs[0].scalar_type(),
        torch::kFloat);
    return learn.recorder().losses();
  };
  const std::vector<double> expected = losses_of([](Learner&) {});
  const std::vector<std::vector<double>> in_16_bits = {
      losses_of([](Learner& learn) { learn.to_fp16(); }),
      losses_of([](Learner& learn) { learn.to_bf16(); }),
      losses_of([](Learner& learn) { learn.to_amp(); })};
  for (const std::vector<double>& losses : in_16_bits) {
    ASSERT_EQ(losses.size(), expected.size());
    EXPECT_NE(losses, expected);
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 0.05 * expected[i]) << i;
    }
  }
}

TEST(DetectionTraining, AccumulatedBatchesEqualOneLargeBatch) {
  const Squares squares;
  Learner whole = squares.learner(kFrozenNorm, /*batch_size=*/4);
  whole.fit(1, 1e-3);
  Learner parts = squares.learner(kFrozenNorm, /*batch_size=*/2);
  parts.add<GradientAccumulation>({.batches = 2});
  parts.fit(1, 1e-3);
  EXPECT_EQ(whole.state().iteration, 2);
  expect_same_weights(parts, whole, 1e-5);
}

TEST(DetectionTraining, TwoReplicasTrainLikeOne) {
  const Squares squares;
  Learner one = squares.learner(kFrozenNorm);
  one.fit(1, 1e-3);
  Learner two = squares.learner(kFrozenNorm);
  two.to_parallel({torch::kCPU, torch::kCPU});
  two.fit(1, 1e-3);
  expect_same_weights(two, one, 1e-5);
  EXPECT_NEAR(two.validate().loss, one.validate().loss, 1e-4);
}

TEST(DetectionTraining, ResumesExactlyInTheMiddleOfAnEpoch) {
  const Squares squares;
  const auto make = [&](const char* name) {
    Learner learn = squares.learner(
        {.learner = {.metrics = {mean_average_precision({.iou = 0.01})}}},
        /*batch_size=*/2);
    learn.data().outputs[0].detection.score_thresh = 0;
    learn.add<SaveCheckpoint>({.folder = squares / name, .every_steps = 2});
    return learn;
  };
  Learner whole = make("whole");
  whole.fit(2, 1e-4);
  {
    Learner cut = make("cut");
    cut.add<LambdaCallback>({.on_batch_end = [](Learner& l) {
      if (l.state().training && l.state().iteration == 3) l.request_stop();
    }});
    cut.fit(2, 1e-4);
    ASSERT_LT(cut.state().iteration, whole.state().iteration);
  }
  Learner resumed = make("cut");
  resumed.resume(squares / "cut");
  resumed.fit(2, 1e-4);
  EXPECT_EQ(resumed.state().iteration, whole.state().iteration);
  EXPECT_TRUE(bytes_of(resumed) == bytes_of(whole));
  EXPECT_GT(whole.state()["map_1"], 0);
  EXPECT_EQ(resumed.state()["map_1"], whole.state()["map_1"]);
}

TEST(
    DetectionTraining,
    LrFindAndFineTuneWorkForANetworkWithPretrainedBackbone) {
  const Squares squares;
  torch::manual_seed(3);
  const Model body = VisionArch(resnet18).make_body(3).module;
  save_safetensors(squares / "body.safetensors", body.state_dict());
  Learner learn = detection_learner(
      squares.data(),
      "retinanet_resnet18_fpn_v2",
      {.pretrained = DetectorWeights::imagenet,
       .file = squares / "body.safetensors",
       .smallest_anchor = 16,
       .learner = quiet({.seed = 1})});
  const auto first = [&] {
    return learn.state_dict()["backbone.body.conv1.weight"].clone();
  };
  const torch::Tensor before = first();
  learn.lr_find({.num_it = 6});
  EXPECT_TRUE(torch::equal(first(), before));
  std::vector<torch::Tensor> after_epochs;
  learn.add<LambdaCallback>(
      {.on_epoch_end = [&](Learner&) { after_epochs.push_back(first()); }});
  learn.fine_tune(2, {.base_lr = 1e-3});
  ASSERT_EQ(after_epochs.size(), 3u);  // one of them frozen
  EXPECT_TRUE(torch::equal(after_epochs[0], before));
  EXPECT_FALSE(torch::equal(after_epochs[2], before));
  const std::vector<double>& losses = learn.recorder().losses();
  EXPECT_LT(losses.back(), losses.front());
}

TEST(DetectionTraining, WithLoraMergesToTheSameDetectorWithFrozenNorm) {
  const Squares squares;
  Learner learn = squares.learner(kFrozenNorm);
  add_lora(learn, {.rank = 2});
  learn.add<Ema>(Ema::Options{.decay = 0.5, .warm_up = false});
  learn.fit(1, 1e-3);
  Model model = learn.model();
  model.eval();
  const torch::NoGradGuard no_grad;
  const Tensors image = {torch::rand({1, 3, 64, 64})};
  const Tensors expected = model.forward(image);
  Model merged = merge_lora(model);
  merged.eval();
  const Tensors outputs = merged.forward(image);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(outputs[i], expected[i], 1e-4, 1e-4)) << i;
  }
  for (const ModelTensor& item : merged.parameters()) {
    const bool is_norm =
        item.name.starts_with("backbone.body") && item.tensor.dim() == 1;
    EXPECT_EQ(item.tensor.requires_grad(), !is_norm) << item.name;
  }
}

}  // namespace
}  // namespace tern::detection_training_test
