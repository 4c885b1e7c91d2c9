#include "tern/vision/predict/predictor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <opencv2/core/check.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/export/export_model.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/datasets/image_dataset.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/models/cnn/mobilenet_v2.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/predict/image_predict.h"
#include "tern/vision/predict/predictor_queue.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"
#include "tern/vision/transforms/pixels.h"
#include "tern/vision/vision_learner.h"

namespace tern::predictor_test {
namespace {

namespace fs = std::filesystem;
using testing_support::quiet;

/// Images of several sizes and formats in two classes, and a network trained
/// for one epoch.
class PredictorTest : public testing::Test {
 protected:
  PredictorTest() {
    for (int i = 0; i < 12; ++i) {
      const std::string suffix = i % 3 == 0 ? ".jpg" : ".png";
      const fs::path path = temp_ / (std::to_string(i) + suffix);
      write_file(path, encode(random_image(20 + 3 * i, 30 + i), suffix));
      paths_.push_back(path.string());
      labels_.push_back(i % 2 ? "dog" : "cat");
    }
  }

  DataBunch data(ImageDataBunchOptions options = {}) const {
    if (!options.size) options.size = ImageSize{16, 16};
    options.valid_pct = 0.5;
    options.batch_size = 6;
    options.workers = 0;
    options.device = torch::kCPU;
    return ImageDataBunch::from_lists(paths_, labels_, options);
  }

  std::unique_ptr<Learner> trained(const DataBunch& data) const {
    torch::manual_seed(3);
    auto learn = std::make_unique<Learner>(
        data,
        simple_cnn({3, 8, 2}, {.batch_norm = true}),
        quiet({.metrics = {accuracy()}}));
    learn->fit(1);
    return learn;
  }

  static std::vector<fs::path> valid_paths(Learner& learn) {
    const auto& images =
        dynamic_cast<const ImageDataset&>(learn.data().valid->dataset());
    return {images.paths().begin(), images.paths().end()};
  }

  /// Expects that a Predictor returns the predictions of `get_preds`.
  void expect_predictions_of(Learner& learn, double tolerance = 1e-6) const {
    learn.export_model(file_);
    const Predictor predictor = Predictor::load(file_, cpu_);
    const torch::Tensor expected = learn.get_preds().preds;
    const std::vector<Prediction> predictions =
        predictor.predict_batch(valid_paths(learn));
    ASSERT_EQ(static_cast<int64_t>(predictions.size()), expected.size(0));
    for (size_t i = 0; i < predictions.size(); ++i) {
      const torch::Tensor row = expected[static_cast<int64_t>(i)];
      EXPECT_TRUE(
          torch::allclose(predictions[i].probabilities, row, 0, tolerance));
      EXPECT_EQ(predictions[i].index, row.argmax().item<int64_t>());
      EXPECT_EQ(
          predictions[i].label,
          predictions[i].index == 0 ? "cat" : "dog");
    }
  }

  TempFolder temp_;
  std::vector<std::string> paths_, labels_;
  const fs::path file_ = temp_ / "out" / "pets.safetensors";
  const PredictorOptions cpu_{.device = torch::kCPU, .exact = true};
};

TEST_F(PredictorTest, PredictsLikeTheLearnerForEachResizeMethod) {
  for (const ResizeMethod resize :
       {ResizeMethod::squish,
        ResizeMethod::crop,
        ResizeMethod::pad,
        ResizeMethod::none}) {
    SCOPED_TRACE(static_cast<int>(resize));
    expect_predictions_of(*trained(data(
        {.transforms = get_transforms(),
         .resize = resize,
         .padding = Padding::border})));
  }
  expect_predictions_of(
      *trained(data({.transforms = {.train = {}, .valid = {center_crop()}}})));
}

/// `vision_learner` normalizes unnormalized data like the body's training data.
TEST_F(PredictorTest, PredictsLikeALearnerOnAPretrainedBody) {
  torch::manual_seed(2);
  const VisionBody body = VisionArch(mobilenet_v2).make_body(3);
  // Sets running statistics, as in a pretrained body, or the head would receive
  // nothing of the image.
  for (const auto& module : body.module->modules()) {
    auto* norm = module->as<torch::nn::BatchNorm2d>();
    if (norm) norm->options.momentum(1);
  }
  body.backbone->features(torch::randn({4, 3, 32, 32}));
  const fs::path weights = temp_ / "body.safetensors";
  save_safetensors(weights, Model(body.module).state_dict());
  DataBunch raw = data({.stats = stats::none()});
  raw.batch_transforms.clear();
  auto learn = vision_learner(
      raw,
      mobilenet_v2,
      {.pretrained = weights, .head = {.hidden = {8}}, .learner = quiet()});
  expect_predictions_of(learn);
  const torch::Tensor preds = learn.get_preds().preds;
  EXPECT_GT((preds[0] - preds[1]).abs().max().item<double>(), 1e-3);
}

TEST_F(PredictorTest, PredictsLikeAGrayLearnerOfOneSize) {
  std::vector<std::string> paths;
  for (int i = 0; i < 6; ++i) {
    paths.push_back((temp_ / ("gray" + std::to_string(i) + ".png")).string());
    write_file(paths.back(), encode(random_image(14, 12 + 0 * i), ".png"));
  }
  const DataBunch data = ImageDataBunch::from_lists(
      paths,
      {"a", "b", "a", "b", "a", "b"},
      {.valid_pct = 0.5,
       .decode = {.channels = 1},
       .batch_size = 3,
       .workers = 0,
       .device = torch::kCPU});
  Learner learn(data, simple_cnn({1, 4, 2}), quiet());
  learn.export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  const auto predictions = predictor.predict_batch(valid_paths(learn));
  const torch::Tensor expected = learn.get_preds().preds;
  EXPECT_TRUE(torch::allclose(predictions[2].probabilities, expected[2]));
  expect_error<DataError>(
      [&] { predictor.predict(fs::path(paths_[0])); },
      {paths_[0], "20 x 30", "14 x 12"});
}

TEST_F(PredictorTest, AcceptsFilesMatsAndTensorsAlike) {
  auto learn = trained(data());
  learn->export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  const std::string path = paths_[1];
  const torch::Tensor expected = predictor.predict(path).probabilities;

  const cv::Mat bgr = cv::imread(path);
  EXPECT_TRUE(torch::equal(predictor.predict(bgr).probabilities, expected));
  cv::Mat wide;
  cv::copyMakeBorder(bgr, wide, 2, 3, 4, 5, cv::BORDER_CONSTANT);
  const cv::Mat part = wide(cv::Rect(4, 2, bgr.cols, bgr.rows));
  EXPECT_TRUE(torch::equal(predictor.predict(part).probabilities, expected));

  const torch::Tensor rgb = read_image(path);
  EXPECT_TRUE(torch::equal(predictor.predict(rgb).probabilities, expected));
  EXPECT_TRUE(torch::equal(
      predictor.predict_batch(rgb.unsqueeze(0))[0].probabilities,
      expected));

  // The model's own input, which Learner::predict also accepts.
  const torch::Tensor input = torch::randn({3, 16, 16});
  EXPECT_TRUE(torch::allclose(
      predictor.predict(input).probabilities,
      learn->predict(input).probabilities));
}

TEST_F(PredictorTest, Reads16BitMatsLikeTheirFiles) {
  auto learn = trained(data());
  learn->export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  for (const int type : {CV_16UC1, CV_16UC3, CV_16UC4}) {
    SCOPED_TRACE(cv::typeToString(type));
    const std::string path = (temp_ / "deep.png").string();
    write_file(path, encode(random_image(16, 16, type), ".png"));
    const cv::Mat deep = cv::imread(path, cv::IMREAD_UNCHANGED);
    ASSERT_EQ(deep.type(), type);
    EXPECT_TRUE(torch::equal(predictor.prepare(deep), predictor.prepare(path)));
    EXPECT_TRUE(torch::allclose(
        predictor.predict(deep).probabilities,
        learn->predict(deep).probabilities));
  }
}

TEST_F(PredictorTest, RejectsInvalidSamples) {
  trained(data())->export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  expect_error<c10::ValueError>(
      [&] {
        predictor.predict(torch::zeros({8, 8}, torch::kByte));
      },
      {"[8, 8] Byte", "[H, W, 3]"});
  expect_error<c10::ValueError>(
      [&] { predictor.predict(torch::Tensor()); },
      {"undefined"});
  expect_error<c10::ValueError>(
      [&] { predictor.predict(cv::Mat(4, 4, CV_32FC3)); },
      {"[Predictor::predict]", "4 x 4 of CV_32FC3", "8 or 16 bits"});
  expect_error<c10::ValueError>(
      [&] { predictor.predict(cv::Mat(4, 4, CV_16UC2)); },
      {"CV_16UC2", "gray, BGR or BGRA"});
  expect_error<IoError>(
      [&] { predictor.predict(temp_ / "none.png"); },
      {"none.png"});
}

TEST_F(PredictorTest, EightThreadsGetEqualPredictions) {
  trained(data())->export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  std::vector<torch::Tensor> expected;
  for (const std::string& path : paths_) {
    expected.push_back(predictor.predict(path).probabilities);
  }
  std::atomic<int> differences = 0;
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 8; ++first) {
    threads.emplace_back([&, first] {
      for (size_t i = 0; i < 3 * paths_.size(); ++i) {
        const size_t at = (first + i) % paths_.size();
        const Prediction prediction = predictor.predict(paths_[at]);
        if (!torch::equal(prediction.probabilities, expected[at])) {
          ++differences;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differences, 0);
}

TEST_F(PredictorTest, PredictsAFolderExceptItsBadFiles) {
  auto learn = trained(data());
  learn->export_model(file_);
  write_file(temp_ / "bad.png", "no picture");
  const Predictor predictor = Predictor::load(
      file_,
      {.device = torch::kCPU, .batch_size = 5, .exact = true});
  const auto files = predictor.predict_folder(temp_.path());
  ASSERT_EQ(files.size(), paths_.size() + 1);
  for (const FilePrediction& file : files) {
    SCOPED_TRACE(file.path);
    if (file.path.ends_with("bad.png")) {
      EXPECT_NE(file.error.find("bad.png"), std::string::npos);
      continue;
    }
    EXPECT_EQ(file.error, "");
    EXPECT_TRUE(torch::allclose(
        file.prediction.probabilities,
        predictor.predict(file.path).probabilities));
  }
}

TEST_F(PredictorTest, PredictionsMatchTheirFilesInAFolderWithBadOnes) {
  trained(data())->export_model(file_);
  for (const char* const name : {"00.png", "30.png", "31.png", "99.png"}) {
    write_file(temp_ / name, std::string("no image"));
  }
  for (const int64_t batch_size : {1, 2, 3, 64}) {
    const Predictor predictor = Predictor::load(
        file_,
        {.device = torch::kCPU, .batch_size = batch_size, .exact = true});
    const auto files = predictor.predict_folder(temp_.path());
    ASSERT_EQ(files.size(), paths_.size() + 4);
    for (const FilePrediction& file : files) {
      if (std::ranges::count(paths_, file.path) == 0) {
        EXPECT_NE(file.error.find("is not an image"), std::string::npos);
        continue;
      }
      EXPECT_EQ(file.error, "");
      EXPECT_TRUE(torch::allclose(
          file.prediction.probabilities,
          predictor.predict(file.path).probabilities));
    }
  }
}

TEST_F(PredictorTest, CardDescribesTheTraining) {
  auto learn = trained(data());
  learn->export_model(file_);
  const ModelCard card = Predictor::load(file_, cpu_).card();
  EXPECT_EQ(card.classes, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(card.architecture.name, "simple_cnn");
  EXPECT_EQ(card.activation, Activation::softmax);
  EXPECT_EQ(card.preprocessing, learn->data().preprocessing);
  ASSERT_EQ(card.metrics.size(), 3U);
  EXPECT_EQ(card.metrics[2].name, "accuracy");
  EXPECT_EQ(
      card.metrics[2].value,
      learn->recorder().epochs().back().metrics[0].value);
}

TEST_F(PredictorTest, A16BitRunExportsItsMasterWeights) {
  auto learn = trained(data());
  learn->to_bf16().fit(1);
  learn->export_model(file_);
  const StateDict file = load_weights(file_);
  for (const auto& item : learn->state_dict()) {
    EXPECT_TRUE(torch::equal(file[item.key()], item.value())) << item.key();
  }
}

TEST_F(PredictorTest, HalfWeightsHalveTheFile) {
  Learner learn(data(), resnet18({.num_classes = 2}), quiet());
  learn.export_model(temp_ / "whole.safetensors");
  learn.export_model(file_, {.half = true});
  EXPECT_LT(
      static_cast<double>(fs::file_size(file_)),
      0.52 * static_cast<double>(fs::file_size(temp_ / "whole.safetensors")));
}

TEST_F(PredictorTest, UsesAFusedGraphUnlessExactIsSet) {
  auto learn = trained(data());
  learn->export_model(file_);
  const auto fused_in = [&](const Predictor& predictor) {
    predictor.predict_batch(paths_);
    const test::OpCalls calls("mkldnn::_convolution_pointwise");
    predictor.predict_batch(paths_);
    return calls.count();
  };
  const Predictor exact = Predictor::load(file_, cpu_);
  const Predictor fused = Predictor::load(file_, {.device = torch::kCPU});
  EXPECT_EQ(fused_in(exact), 0);
  EXPECT_EQ(fused_in(fused), 2);
  for (const std::string& path : paths_) {
    EXPECT_TRUE(torch::allclose(
        fused.predict(path).probabilities,
        exact.predict(path).probabilities,
        0,
        1e-4));
  }
}

TEST_F(PredictorTest, HalfWeightsAndLowerPrecisionPredictNearlyTheSame) {
  auto learn = trained(data());
  learn->export_model(file_);
  learn->export_model(temp_ / "half.safetensors", {.half = true});
  const auto probabilities_of = [&](const fs::path& file,
                                    torch::ScalarType precision) {
    return Predictor::load(
               file,
               {.device = torch::kCPU, .precision = precision})
        .predict(paths_[0])
        .probabilities;
  };
  const torch::Tensor expected = probabilities_of(file_, torch::kFloat);
  const auto is_near = [&](const torch::Tensor& actual, double tolerance) {
    return torch::allclose(actual, expected, 0, tolerance);
  };
  EXPECT_TRUE(is_near(
      probabilities_of(temp_ / "half.safetensors", torch::kFloat),
      2e-3));
  EXPECT_TRUE(is_near(probabilities_of(file_, torch::kBFloat16), 2e-2));
  expect_error<c10::ValueError>(
      [&] { probabilities_of(file_, torch::kDouble); },
      {"precision is Double"});
  expect_error<c10::ValueError>(
      [&] {
        Predictor::load(file_, {.device = torch::Device(torch::kCUDA, 99)});
      },
      {"cuda:99", "PredictorOptions::device"});
}

TEST_F(PredictorTest, SaysWhatAPrecisionCosts) {
  auto learn = trained(data());
  learn->export_model(file_);
  const Predictor exact = Predictor::load(file_, cpu_);
  const Predictor bf16 = Predictor::load(
      file_,
      {.device = torch::kCPU, .precision = torch::kBFloat16});
  const std::vector<fs::path> images(paths_.begin(), paths_.end());
  const PredictionDifference cost = bf16.compare(exact, images);
  EXPECT_EQ(cost.samples, 12);
  EXPECT_GT(cost.largest_difference, 0);
  EXPECT_LT(cost.largest_difference, 2e-2);
  ASSERT_TRUE(cost.equal_labels);
  EXPECT_EQ(
      std::ssize(cost.changed),
      std::lround(12 * (1 - *cost.equal_labels)));
  EXPECT_EQ(exact.compare(exact, images).largest_difference, 0);
  const torch::Tensor inputs = torch::rand({4, 3, 16, 16});
  EXPECT_EQ(bf16.compare(exact, inputs).samples, 4);
  EXPECT_EQ(bf16.compare(exact, inputs.unbind()).samples, 4);
  EXPECT_EQ(bf16.compare(exact, {images[0], images[1]}).samples, 2);
}

// The first batch of each size is computed without fusion, and is exact.
TEST_F(PredictorTest, ComparesPredictionsOfTheFusedNetwork) {
  auto learn = trained(data());
  learn->export_model(file_);
  const Predictor exact = Predictor::load(file_, cpu_);
  const Predictor fused = Predictor::load(file_, {.device = torch::kCPU});
  const PredictionDifference cost =
      fused.compare(exact, std::vector<fs::path>(paths_.begin(), paths_.end()));
  EXPECT_GT(cost.largest_difference, 0);
  EXPECT_LT(cost.largest_difference, 1e-4);
}

/// Writes to the folder of check_python_loader.py if TERN_EXPORT_FOLDER is set.
TEST_F(PredictorTest, WritesAPythonScriptWithTheSamePredictions) {
  const char* const shared = std::getenv("TERN_EXPORT_FOLDER");
  const fs::path folder = shared ? fs::path(shared) : temp_.path() / "python";
  const std::map<std::string, ImageDataBunchOptions> kinds = {
      {"squish", {.resize = ResizeMethod::squish}},
      {"crop", {.transforms = get_transforms(), .resize = ResizeMethod::crop}},
      {"pad", {.resize = ResizeMethod::pad, .padding = Padding::zeros}},
      {"none", {.resize = ResizeMethod::none}},
      {"middle", {.transforms = {.train = {}, .valid = {center_crop()}}}},
      {"large", {.size = ImageSize{40, 50}, .resize = ResizeMethod::crop}}};
  for (size_t i = 0; i < paths_.size(); ++i) {
    make_folders(folder / "images");
    fs::copy_file(
        paths_[i],
        folder / "images" / fs::path(paths_[i]).filename(),
        fs::copy_options::overwrite_existing);
  }
  const auto write =
      [&](Learner& learn, const std::string& name, bool traced = false) {
        const fs::path file = folder / (name + ".safetensors");
        learn.export_model(file, {.python_loader = true, .traced = traced});
        EXPECT_TRUE(fs::exists(folder / (name + ".py")));
        StateDict expected;
        for (const FilePrediction& predicted :
             Predictor::load(
                 file,
                 {.device = torch::kCPU, .trusted = traced, .exact = true})
                 .predict_folder(folder / "images")) {
          expected.insert(
              fs::path(predicted.path).filename().string(),
              predicted.prediction.probabilities);
        }
        EXPECT_EQ(expected.size(), paths_.size());
        save_pth(folder / (name + ".pth"), expected);
      };
  for (const auto& [name, options] : kinds)
    write(*trained(data(options)), name);
  torch::manual_seed(1);
  // With small logits, although its running statistics are initial.
  Learner deep(
      data(),
      resnet18({.num_classes = 2, .zero_init_residual = true}),
      quiet());
  write(deep, "deep");
  auto tuned = vision_learner(
      data(),
      resnet18,
      {.head = {.hidden = {8}}, .learner = quiet()});
  write(tuned, "tuned");
  for (const char* body :
       {"densenet121", "mobilenet_v3_small", "regnet_y_400mf"}) {
    auto learn = vision_learner(
        data({.size = ImageSize{32, 32}}),
        VisionArch(body),
        {.head = {.hidden = {8}}, .learner = quiet()});
    write(learn, body);
  }
  const DataBunch small = data({.size = ImageSize{32, 32}});
  const char* const options = R"({"num_classes": 2, "image_size": 32})";
  for (const char* name : {"efficientnet_b0", "mobilenet_v2", "vit_b_32"}) {
    const bool is_vit = name == std::string("vit_b_32");
    const Architecture how = {name, is_vit ? options : R"({"num_classes": 2})"};
    Learner bare(small, build_model(how), quiet());
    bare.fit(1);  // a new ViT's classifier is 0
    write(bare, "bare_" + how.name);
  }
  Learner own(data(), xresnet18({.num_classes = 2}), quiet());
  write(own, "graph", /*traced=*/true);

  DataBunch labels = data();
  labels.outputs = {{.kind = TargetKind::multi_category, .threshold = 0.3}};
  auto tags = vision_learner(
      labels,
      mobilenet_v3_small,
      {.head = {.hidden = {8}},
       .learner = quiet({.loss = torch::nn::BCEWithLogitsLoss()})});
  write(tags, "tags");
  DataBunch numbers = data();
  numbers.outputs = {{.kind = TargetKind::number, .names = {"age"}}};
  auto ages = vision_learner(
      numbers,
      resnet18,
      {.outputs = 1,
       .head = {.hidden = {8}, .y_range = {0, 90}},
       .learner = quiet({.loss = torch::nn::MSELoss()})});
  write(ages, "ages");
  DataBunch pixels = data();
  pixels.outputs = {{.kind = TargetKind::mask}};
  auto masks = unet_learner(pixels, mobilenet_v2, {.learner = quiet()});
  write(masks, "masks", /*traced=*/true);
}

// Regression: the scripts failed when run.
TEST_F(PredictorTest, WritesNoPythonForUnknownNetworks) {
  const auto refuses = [&](Learner&& learn, const char* network) {
    expect_error<c10::ValueError>(
        [&] { learn.export_model(file_, {.python_loader = true}); },
        {network, "torchvision", "set traced"});
    EXPECT_FALSE(fs::exists(file_));
    EXPECT_FALSE(fs::exists(fs::path(file_).replace_extension(".py")));
  };
  refuses(vision_learner(data(), xresnet18, {.learner = quiet()}), "xresnet18");
  refuses(
      Learner(data(), resnet18({.output_stride = 8}), quiet()),
      "\"output_stride\": 8");
  refuses(
      Learner(data(), mobilenet_v2({.output_stride = 16}), quiet()),
      "\"output_stride\": 16");
  refuses(Learner(data(), vit_b_16(), quiet()), "\"image_size\": 224");
  refuses(Learner(data(), resnet18({.num_classes = 0}), quiet()), "resnet18");
  Learner points(testing_support::point_data(), simple_cnn({3, 2}), quiet());
  expect_error<c10::ValueError>(
      [&] { points.export_model(file_, {.python_loader = true}); },
      {"the preprocessing of an image is unknown",
       "ExportOptions::preprocessing"});
}

TEST_F(PredictorTest, AcceptsListsOfPathsMatsAndTensors) {
  trained(data())->export_model(file_);
  const Predictor predictor = Predictor::load(
      file_,
      {.device = torch::kCPU, .batch_size = 5, .exact = true});
  std::vector<cv::Mat> mats;
  Tensors tensors;
  for (const std::string& path : paths_) {
    mats.push_back(cv::imread(path));
    tensors.push_back(read_image(path));
  }
  const auto of_paths = predictor.predict_batch(paths_);
  const auto of_mats = predictor.predict_batch(mats);
  const auto of_tensors = predictor.predict_batch(tensors);
  ASSERT_EQ(of_mats.size(), paths_.size());
  for (size_t i = 0; i < paths_.size(); ++i) {
    const torch::Tensor mat = of_mats[i].probabilities;
    EXPECT_TRUE(torch::equal(mat, of_tensors[i].probabilities)) << paths_[i];
    EXPECT_TRUE(torch::equal(mat, of_paths[i].probabilities)) << paths_[i];
  }
  EXPECT_EQ(predictor.predict_batch({paths_[0], paths_[1]}).size(), 2u);
  expect_error<c10::ValueError>(
      [&] {
        predictor.predict_batch(
            Tensors{torch::zeros({3, 16, 16}), torch::zeros({3, 16, 20})});
      },
      {"[3, 16, 20]", "equal sizes"});
}

TEST_F(PredictorTest, NamesLabelsAboveTheThresholdOfTheFile) {
  DataBunch bunch = data();
  bunch.outputs = {{.kind = TargetKind::multi_category, .threshold = 0.3}};
  torch::manual_seed(3);
  Learner learn(
      bunch,
      simple_cnn({3, 8, 2}),
      quiet({.loss = torch::nn::BCEWithLogitsLoss()}));
  for (const double threshold : {0.0, 0.3, 0.5, 1.0}) {
    learn.data().outputs[0].threshold = threshold;
    learn.export_model(file_);
    const Predictor predictor = Predictor::load(file_, cpu_);
    EXPECT_EQ(predictor.card().outputs[0].threshold, threshold);
    const Prediction prediction = predictor.predict(paths_[1]);
    EXPECT_EQ(prediction.kind, TargetKind::multi_category);
    EXPECT_EQ(prediction.labels, learn.predict(paths_[1]).labels);
    if (threshold == 0) EXPECT_EQ(prediction.label, "cat, dog");
    if (threshold == 1) EXPECT_EQ(prediction.label, "");
  }
}

TEST_F(PredictorTest, PredictsNumbers) {
  std::vector<float> ages;
  for (size_t i = 0; i < paths_.size(); ++i) ages.push_back(0.5f * i);
  DataBunch bunch = ImageDataBunch::from_lists(
      paths_,
      ages,
      {.size = 16, .batch_size = 6, .workers = 0, .device = torch::kCPU});
  bunch.outputs[0].names = {"age"};
  Learner learn(bunch, simple_cnn({3, 8, 1}), quiet());
  learn.fit(1);
  learn.export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  const Prediction prediction = predictor.predict(paths_[1]);
  EXPECT_EQ(prediction.kind, TargetKind::number);
  ASSERT_EQ(prediction.numbers.size(), 1u);
  EXPECT_EQ(prediction.numbers[0], prediction.probabilities[0].item<double>());
  EXPECT_EQ(prediction.numbers, learn.predict(paths_[1]).numbers);
  EXPECT_EQ(prediction.label, fmt::format("age {:.4g}", prediction.numbers[0]));
}

/// Takes an image and a number; returns a class and a number.
struct TwoHeadsImpl : torch::nn::Module, HasArchitecture {
  Architecture architecture() const override { return {"two_heads", "{}"}; }
  std::tuple<torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& image,
      const torch::Tensor& number) {
    const torch::Tensor mean = image.mean({1, 2, 3});
    return {
        torch::stack({mean * scale, -mean}, 1),
        (number + mean).unsqueeze(1)};
  }
  torch::Tensor scale = register_parameter("scale", torch::ones({1}));
};

TEST_F(PredictorTest, SupportsSeveralInputsAndOutputs) {
  register_architecture("two_heads", [](const Architecture&) {
    return Model(std::make_shared<TwoHeadsImpl>());
  });
  DataBunch bunch = data();
  bunch.outputs = {
      {.kind = TargetKind::category},
      {.kind = TargetKind::number, .names = {"age"}}};
  const auto loss = [](const Tensors& outputs, const Tensors&) {
    return outputs[1].mean();
  };
  Learner learn(
      bunch,
      std::make_shared<TwoHeadsImpl>(),
      quiet({.loss = Loss(loss).activation(Activation::softmax)}));
  learn.export_model(file_);
  const Predictor predictor = Predictor::load(file_, cpu_);
  std::vector<Tensors> samples;
  for (const std::string& path : {paths_[1], paths_[2]}) {
    samples.push_back({prepare_image(learn.data(), path), torch::tensor(0.5f)});
  }
  const auto predictions = predictor.predict_batch(samples);
  PredictorQueue queue(predictor);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Prediction expected = learn.predict(samples[i]);
    for (const Prediction& prediction :
         {predictions[i],
          predictor.predict(samples[i]),
          queue.submit(samples[i]).get()}) {
      ASSERT_EQ(prediction.outputs.size(), 2u);
      EXPECT_TRUE(
          torch::allclose(prediction.probabilities, expected.probabilities));
      EXPECT_EQ(prediction.label, expected.label);
      EXPECT_NEAR(
          prediction.outputs[1].numbers.at(0),
          expected.outputs[1].numbers.at(0),
          1e-5);
      EXPECT_TRUE(prediction.outputs[1].label.starts_with("age "));
    }
  }
}

struct NamedNetImpl : torch::nn::Module, HasArchitecture {
  NamedNetImpl() : linear(register_module("linear", torch::nn::Linear(2, 2))) {}
  Architecture architecture() const override { return {"named_net"}; }
  torch::Tensor forward(const torch::Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear;
};

TEST_F(PredictorTest, ExportsACustomNetworkByItsRegisteredName) {
  using testing_support::point_data;
  Learner learn(point_data(), std::make_shared<NamedNetImpl>(), quiet());
  learn.export_model(file_);
  expect_error<c10::ValueError>(
      [&] { Predictor::load(file_, cpu_); },
      {"'named_net'", "simple_cnn", "register_architecture"});
  register_architecture("named_net", [](const Architecture&) {
    return Model(std::make_shared<NamedNetImpl>());
  });
  expect_error<c10::ValueError>(
      [] { register_architecture("named_net", build_model); },
      {"named_net", "already registered"});
  const Predictor predictor = Predictor::load(file_, cpu_);
  const torch::Tensor point = torch::tensor({0.5f, -2.f});
  EXPECT_TRUE(torch::allclose(
      predictor.predict(point).probabilities,
      learn.predict(point).probabilities));
  expect_error<c10::ValueError>(
      [&] { predictor.predict(fs::path(paths_[0])); },
      {"ExportOptions::preprocessing"});
}

/// A network without a registered name.
struct OwnNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = norm->forward(conv->forward(x)).relu();
    return last->forward(dropout->forward(y.mean({2, 3})));
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(3, 8, 3));
  torch::nn::BatchNorm2d norm =
      register_module("norm", torch::nn::BatchNorm2d(8));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout());
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 2));
};

TEST_F(PredictorTest, ExportsAModelWithoutAnArchitectureAsItsGraph) {
  const auto sink = std::make_shared<testing_support::MemorySink>();
  const auto expect_same = [&](Learner&& learn, const char* name) {
    SCOPED_TRACE(name);
    learn.fit(1);
    learn.export_model(file_);
    EXPECT_NE(sink->lines.back().find("a program"), std::string::npos);
    expect_error<c10::ValueError>(
        [&] { Predictor::load(file_, cpu_); },
        {"TorchScript graph", "PredictorOptions::trusted"});
    const auto predictor = Predictor::load(
        file_,
        {.device = torch::kCPU, .trusted = true, .exact = true});
    const std::vector<fs::path> paths = valid_paths(learn);
    const torch::Tensor expected = learn.get_preds().preds;
    const auto predictions = predictor.predict_batch(paths);
    for (size_t i = 0; i < paths.size(); ++i) {
      EXPECT_TRUE(torch::equal(
          predictions[i].probabilities,
          expected[static_cast<int64_t>(i)]));
    }
    EXPECT_TRUE(torch::allclose(  // a single sample
        predictor.predict(paths[0]).probabilities,
        expected[0],
        0,
        1e-5));
    EXPECT_EQ(predictor.card().classes, learn.data().classes);
  };
  LearnerOptions options = quiet();
  options.sink = sink;
  expect_same(
      Learner(data(), std::make_shared<OwnNetImpl>(), options),
      "one's own");
  Learner in_16_bits(data(), std::make_shared<OwnNetImpl>(), options);
  in_16_bits.to_bf16();
  in_16_bits.fit(1);
  expect_same(std::move(in_16_bits.to_fp32()), "once in 16 bits");
  const VisionArch own(
      "mine",
      [](int64_t channels) {
        ResNetOptions bare;
        bare.num_classes = 0;
        bare.in_channels = channels;
        return VisionBody(resnet18(bare).ptr());
      },
      "layer3",
      "fc");
  expect_same(
      vision_learner(
          data(),
          own,
          {.head = {.hidden = {8}}, .learner = options}),
      "a body of one's own");
}

TEST_F(PredictorTest, AGraphOfHalfWeightsIsClose) {
  Learner learn(data(), std::make_shared<OwnNetImpl>(), quiet());
  learn.fit(1);
  const torch::Tensor expected = learn.get_preds().preds;
  learn.export_model(file_, {.half = true});
  const auto predictor = Predictor::load(
      file_,
      {.device = torch::kCPU, .trusted = true, .exact = true});
  const auto predictions = predictor.predict_batch(valid_paths(learn));
  EXPECT_TRUE(
      torch::allclose(predictions[0].probabilities, expected[0], 0, 2e-3));
  EXPECT_FALSE(torch::equal(predictions[0].probabilities, expected[0]));
}

TEST_F(PredictorTest, RejectsAGraphThatSupportsOnlyOneBatchSize) {
  struct FixedImpl : OwnNetImpl {
    torch::Tensor forward(const torch::Tensor& x) {
      const auto others = static_cast<double>(x.size(0) - 1);
      return OwnNetImpl::forward(x) * others;
    }
  };
  Learner learn(data(), std::make_shared<FixedImpl>(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.export_model(file_); },
      {"traced with two samples", "HasArchitecture"});
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(PredictorTest, RejectsAModelWithNaNWeights) {
  auto learn = trained(data());
  {
    const torch::NoGradGuard no_grad;
    learn->model().parameters()[0].tensor.fill_(NAN);
  }
  expect_error<c10::ValueError>(
      [&] { learn->export_model(file_); },
      {"0.weight", "not finite"});
}

TEST_F(PredictorTest, UnsupportedTransformsDisablePreprocessing) {
  EXPECT_FALSE(
      data({.transforms = {.train = {}, .valid = {brightness({0.4f, 0.6f})}}})
          .preprocessing);
}

/// Writes an exported file with a different value in its metadata.
void export_with(
    const fs::path& from,
    const fs::path& to,
    const std::string& key,
    const std::string& text) {
  auto metadata = safetensors_metadata(from);
  metadata[key] = text;
  save_safetensors(to, load_weights(from), metadata);
}

TEST_F(PredictorTest, RejectsFilesThatAreNotWholeExportedModels) {
  trained(data())->export_model(file_);
  const fs::path other = temp_ / "other.safetensors";
  export_with(file_, other, "tern.model", "2");
  expect_error<DataError>(
      [&] { Predictor::load(other, cpu_); },
      {"version '2'", "reads version 1"});
  export_with(file_, other, "tern.classes", R"(["dog", "cat"])");
  expect_error<DataError>(
      [&] { Predictor::load(other, cpu_); },
      {"other.safetensors", "checksum"});
  save_safetensors(other, load_weights(file_));
  expect_error<DataError>(
      [&] { Predictor::load(other, cpu_); },
      {"tern.model", "Learner::export_model"});
}

/// Files of every format version stay readable. golden/write.py wrote this
/// file, and PyTorch computed the output.
TEST_F(PredictorTest, ReadsExportedModelsOfEveryVersion) {
  const fs::path golden = in_tests_folder("vision/golden");
  const torch::Tensor input = torch::linspace(-1, 1, 3 * 256).view({3, 16, 16});
  for (const std::string version : {"1"}) {
    const Predictor predictor =
        Predictor::load(golden / ("model_" + version + ".safetensors"), cpu_);
    const StateDict expected =
        load_weights(golden / ("output_" + version + ".safetensors"));
    EXPECT_TRUE(torch::allclose(
        predictor.predict(input).probabilities,
        expected["output"],
        1e-4,
        1e-5));
    EXPECT_EQ(predictor.card().classes[1], "dög");
    EXPECT_EQ(predictor.predict(input).labels.size(), 1u);
    EXPECT_EQ(predictor.card().preprocessing->height, 16);
  }
}

TEST_F(PredictorTest, RejectsEveryFlippedBitAndEveryTruncation) {
  Learner learn(data(), simple_cnn({3, 2, 2}), quiet());
  learn.export_model(file_);
  const std::vector<uint8_t> whole = read_file(file_);
  const fs::path damaged = temp_ / "damaged.safetensors";
  const auto is_refused = [&](const std::vector<uint8_t>& bytes) {
    write_file(damaged, bytes);
    try {
      Predictor::load(damaged, cpu_);
    } catch (const DataError&) {
      return true;
    } catch (const c10::Error&) {
      return true;  // a damaged name of a weight
    }
    return false;
  };
  ASSERT_FALSE(is_refused(whole));
  std::vector<uint8_t> bytes = whole;
  for (size_t bit = 0; bit < 8 * whole.size(); bit += 7) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_TRUE(is_refused(bytes)) << "bit " << bit;
    bytes[bit / 8] = whole[bit / 8];
  }
  for (size_t size = 0; size < whole.size(); size += 11) {
    EXPECT_TRUE(is_refused({whole.begin(), whole.begin() + size})) << size;
  }
}

}  // namespace
}  // namespace tern::predictor_test
