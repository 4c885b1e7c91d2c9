// Every network, alone and in each of the two learners, with each target type:
// predictions of the exported file are bit-identical to the Learner's.

#include <gtest/gtest.h>
#include <opencv2/core.hpp>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/file_io.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/export/export_model.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/data_block.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/predict/predictor.h"
#include "tern/vision/vision_learner.h"

namespace tern::predictor_matrix_test {
namespace {

namespace fs = std::filesystem;
using testing_support::quiet;

constexpr int kOutputs = 3;
constexpr int kSide = 32;  // minimum of ConvNeXt, and a ViT's patch

std::vector<std::string> all_networks() {
  std::vector<std::string> names;
  for (const auto& [name, builder] : network_builders()) names.push_back(name);
  return names;
}

class PredictorMatrix : public testing::Test {
 protected:
  PredictorMatrix() {
    cv::RNG rng(7);
    for (int i = 0; i < 6; ++i) {
      const std::string name = std::to_string(i) + ".png";
      cv::Mat image(kSide, kSide, CV_8UC3), mask(kSide, kSide, CV_8UC1);
      rng.fill(image, cv::RNG::UNIFORM, 0, 256);
      rng.fill(mask, cv::RNG::UNIFORM, 0, kOutputs);
      make_folders(temp_ / "masks");
      make_folders(temp_ / "images");
      write_file(temp_ / "masks" / name, encode(mask, ".png"));
      write_file(temp_ / "images" / name, encode(image, ".png"));
    }
  }

  DataBunch data(TargetKind kind) const {
    const fs::path masks = temp_ / "masks";
    const std::vector<std::string> classes = {"a", "b", "c"};
    const auto label = [=](const ImageItem& item) -> std::vector<std::string> {
      if (kind == TargetKind::mask) {
        return {(masks / fs::path(item.path).filename()).string()};
      }
      if (kind == TargetKind::number) return {"1", "2.5", "-3"};
      if (kind == TargetKind::multi_category) return {"a", "c"};
      return {"b"};
    };
    const DataBlock block{
        .items = items_from_folder(temp_ / "images"),
        .split = split_by_func([](const ImageItem& item) {
          return fs::path(item.path).stem().string() >= "3";
        }),
        .label = label,
        .target = kind,
        .classes = classes};
    return block.bunch({.batch_size = 3, .workers = 0, .device = torch::kCPU});
  }

  /// Expects a Predictor to return the target type and predictions of
  /// `get_preds`.
  /// \param differ  Predictions differ between images; for other types all may
  /// be 1.
  void expect_same(Learner& learn, TargetKind kind, bool differ) const {
    const fs::path file = temp_ / "model.safetensors";
    learn.export_model(file);
    // Loads by architecture; a graph would have to be trusted.
    const auto predictor =
        Predictor::load(file, {.device = torch::kCPU, .exact = true});
    const Predictions expected = learn.get_preds();
    EXPECT_TRUE(expected.preds.isfinite().all().item<bool>());
    if (differ) {
      EXPECT_FALSE(torch::equal(expected.preds[0], expected.preds[1]));
    }
    const auto& images =
        dynamic_cast<const ImageDataset&>(learn.data().valid->dataset());
    const auto predictions = predictor.predict_batch(
        std::vector<fs::path>(images.paths().begin(), images.paths().end()));
    ASSERT_EQ(predictions.size(), 3u);
    for (size_t i = 0; i < predictions.size(); ++i) {
      const Prediction& prediction = predictions[i];
      const Prediction one = decode(expected, static_cast<int64_t>(i));
      EXPECT_TRUE(torch::equal(prediction.probabilities, one.probabilities));
      EXPECT_EQ(prediction.kind, kind);
      EXPECT_EQ(one.kind, kind);
      EXPECT_EQ(prediction.labels, one.labels);
      EXPECT_EQ(prediction.numbers, one.numbers);
      ASSERT_EQ(prediction.mask.defined(), one.mask.defined());
      if (one.mask.defined()) {
        EXPECT_TRUE(torch::equal(prediction.mask, one.mask));
      }
    }
  }

  /// Sets running statistics from images, as in a trained network, or the
  /// outputs of a deep network overflow. Also fills layers of zeros, as in a
  /// new ViT.
  static void see_images(Model& model) {
    const torch::NoGradGuard no_grad;
    for (const auto& module : model.module()->modules()) {
      if (auto* norm = module->as<torch::nn::BatchNorm2d>()) {
        norm->options.momentum(1);
      }
      if (auto* norm = module->as<torch::nn::BatchNorm1d>()) {
        norm->options.momentum(1);
      }
    }
    for (const auto& p : model.parameters()) {
      if (p.tensor.dim() > 1 && !p.tensor.any().item<bool>()) {
        p.tensor.normal_(0, 0.1);
      }
    }
    model.train();
    model.forward({torch::randn({4, 3, kSide, kSide})});
  }

  /// For one class, multi-label and regression targets.
  void expect_same_of_images(Model model) const {
    see_images(model);
    for (const auto& [kind, loss] :
         {std::pair<TargetKind, Loss>(
              TargetKind::category,
              torch::nn::CrossEntropyLoss()),
          {TargetKind::multi_category, torch::nn::BCEWithLogitsLoss()},
          {TargetKind::number, torch::nn::MSELoss()}}) {
      SCOPED_TRACE(static_cast<int>(kind));
      Learner learn(data(kind), model, quiet({.loss = loss}));
      expect_same(learn, kind, /*differ=*/kind == TargetKind::number);
    }
  }

  /// The same for pixels.
  void expect_same_of_pixels(Model model) const {
    see_images(model);
    for (const auto& [activation, loss] :
         {std::pair<Activation, Loss>(
              Activation::softmax,
              torch::nn::CrossEntropyLoss()),
          {Activation::sigmoid, torch::nn::BCEWithLogitsLoss()},
          {Activation::none, torch::nn::MSELoss()}}) {
      SCOPED_TRACE(static_cast<int>(activation));
      DataBunch masks = data(TargetKind::mask);
      const bool has_classes = activation != Activation::none;
      masks.outputs[0] = {
          .kind = has_classes ? TargetKind::mask : TargetKind::number};
      Learner learn(masks, model, quiet({.loss = loss}));
      expect_same(learn, masks.outputs[0].kind, /*differ=*/!has_classes);
    }
  }

  TempFolder temp_;
};

TEST_F(PredictorMatrix, SimpleCnnPredictsLikeItsLearner) {
  torch::manual_seed(3);
  expect_same_of_images(simple_cnn({3, 8, kOutputs}, {.batch_norm = true}));
}

class EachNetwork : public PredictorMatrix,
                    public testing::WithParamInterface<std::string> {
 protected:
  EachNetwork() { torch::manual_seed(3); }
};

TEST_P(EachNetwork, PredictsLikeItsLearner) {
  const Model model = build_model({GetParam(), R"({"num_classes": 3})"});
  EXPECT_EQ(architecture_of(model)->name, GetParam());
  expect_same_of_images(model);
}

TEST_P(EachNetwork, PredictsLikeItsVisionLearner) {
  auto learn = vision_learner(
      data(TargetKind::category),
      GetParam(),
      {.head = {.hidden = {8}}, .learner = quiet()});
  expect_same_of_images(learn.model());
  auto ranged = vision_learner(
      data(TargetKind::number),
      GetParam(),
      {.outputs = kOutputs,
       .head = {.hidden = {8}, .y_range = {-3, 3}},
       .learner = quiet()});
  see_images(ranged.model());
  expect_same(ranged, TargetKind::number, /*differ=*/false);
}

TEST_P(EachNetwork, PredictsLikeItsUnetLearner) {
  if (!VisionArch(GetParam()).make_body(3).backbone->has_maps()) {
    GTEST_SKIP() << "has no feature maps for a U-Net";
  }
  auto learn =
      unet_learner(data(TargetKind::mask), GetParam(), {.learner = quiet()});
  expect_same_of_pixels(learn.model());
}

INSTANTIATE_TEST_SUITE_P(
    All,
    EachNetwork,
    testing::ValuesIn(all_networks()),
    [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tern::predictor_matrix_test
