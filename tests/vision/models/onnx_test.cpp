// Each network in ONNX Runtime, which check_onnx.py calls, and in cv::dnn.
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <opencv2/dnn.hpp>
#include <torch/nn/modules/batchnorm.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/matting/matting_base.h"
#include "tern/vision/matting/matting_refine.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/vision_learner.h"

namespace tern::onnx_test {
namespace {

using testing_support::stir;
using testing_support::write_onnx_case;
namespace fs = std::filesystem;

constexpr int64_t kClasses = 5;

struct Net {
  const char* name;
  std::function<Model()> make;
  int64_t side = 64;
  // OpenCV 4.6 lacks operators of some, and multiplies by gates of one size
  // alone.
  enum { any_batch, fixed_batch, none } opencv = any_batch;
};

ResNet small_resnet(const ResNetOptions& options) {
  return ResNet(ResNetShape{{1, 1, 1, 1}}, options);
}

// Of each family a small one, with all that larger ones have.
std::vector<Net> classifiers() {
  const auto resnet = [](ResNetShape shape) {
    return [shape] { return ResNet(shape, ResNetOptions{kClasses}); };
  };
  const ViTShape vit{.patch = 8, .width = 32, .depth = 2, .heads = 2};
  return {
      {"simple_cnn",
       [] {
         return simple_cnn({3, 8, 16, kClasses}, {.batch_norm = true});
       }},
      {"resnet18", resnet({{1, 1, 1, 1}})},
      {"resnet50", resnet({{1, 1, 1, 1}, true})},
      {"resnext50_32x4d", resnet({{1, 1, 1, 1}, true, 32, 4})},
      {"wide_resnet50_2", resnet({{1, 1, 1, 1}, true, 1, 96})},
      {"xresnet18",
       [] {
         return XResNet(ResNetShape{{1, 1, 1, 1}}, XResNetOptions{kClasses});
       }},
      {"mobilenet_v2", [] { return mobilenet_v2({kClasses}); }, 64, Net::none},
      {"mobilenet_v3_small",
       [] { return mobilenet_v3_small({kClasses}); },
       64,
       Net::fixed_batch},
      {"densenet",
       [] {
         return DenseNet(
             DenseNetShape{{2, 1, 2, 1}, 8},
             DenseNetOptions{kClasses});
       }},
      {"regnet",
       [] {
         return RegNet(
             RegNetShape{{16, 24, 32, 48}, {1, 1, 2, 1}, 8},
             RegNetOptions{kClasses});
       },
       64,
       Net::fixed_batch},
      {"efficientnet",
       [] {
         return EfficientNet(
             EfficientNetShape{0.25, 0.3, 0.2},
             EfficientNetOptions{kClasses});
       },
       64,
       Net::fixed_batch},
      {"convnext",
       [] {
         return ConvNeXt(
             ConvNeXtShape{{8, 16, 24, 32}, {1, 1, 2, 1}, 0.1},
             ConvNeXtOptions{kClasses});
       },
       64,
       Net::none},
      {"vit",
       [vit] {
         return ViT(vit, ViTOptions{kClasses, 3, /*image_size=*/32});
       },
       64,
       Net::none},
      {"timm_vit",
       [vit] {
         return TimmViT(vit, ViTOptions{kClasses, 3, /*image_size=*/64});
       },
       64,
       Net::none},
      // Windows at an edge, shifted ones, and padding.
      {"swin",
       [] {
         return Swin(
             SwinShape{16, {1, 2, 2, 1}, {1, 2, 2, 4}},
             SwinOptions{kClasses});
       },
       72,
       Net::none},
      {"vision_model",
       [] { return VisionModel(VisionArch(small_resnet), 3, kClasses); }}};
}

class OnnxTest : public testing::TestWithParam<Net> {
 protected:
  OnnxTest() {
    const char* const shared = std::getenv("TERN_ONNX_FOLDER");
    folder_ = shared != nullptr ? fs::path(shared) : temp_.path();
    make_folders(folder_);
    torch::manual_seed(7);
  }

  // Statistics of `inputs`, so that no layer's output vanishes.
  static void prepare(Model model, const Tensors& inputs) {
    const torch::NoGradGuard no_grad;
    stir(model);
    for (const auto& module : model.module()->modules()) {
      if (auto* norm = module->as<torch::nn::BatchNorm2d>()) {
        norm->options.momentum(1.0);
      }
    }
    model.train();
    model.forward(inputs);
    model.eval();
  }

  TempFolder temp_;
  fs::path folder_;
};

class Classifiers : public OnnxTest {};

TEST_P(Classifiers, AreTheSameInOnnx) {
  const Net& net = GetParam();
  const torch::Tensor x = torch::rand({4, 3, net.side, net.side});
  Model model = net.make();
  prepare(model, {x});
  write_onnx_case(folder_, net.name, model, {x});
  if (net.opencv == Net::none) return;

  const torch::NoGradGuard no_grad;
  fs::path file = folder_ / (std::string(net.name) + ".onnx");
  if (net.opencv == Net::fixed_batch) {
    file = temp_ / "fixed.onnx";
    export_onnx(model, file, {x.slice(0, 0, 1)}, {.dynamic_batch = false});
  }
  cv::dnn::Net read = cv::dnn::readNetFromONNX(file.string());
  for (const int64_t size : {1, 4}) {
    if (size > 1 && net.opencv == Net::fixed_batch) continue;
    const torch::Tensor batch = x.slice(0, 0, size);
    const torch::Tensor expected = model.forward({batch})[0];
    const std::vector<int> sizes(batch.sizes().begin(), batch.sizes().end());
    read.setInput(cv::Mat(sizes, CV_32F, batch.data_ptr<float>()));
    const cv::Mat actual = read.forward();
    EXPECT_TRUE(torch::allclose(
        torch::from_blob(actual.data, expected.sizes()),
        expected,
        /*rtol=*/0,
        /*atol=*/1e-4))
        << size;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Classifiers,
    testing::ValuesIn(classifiers()),
    [](const auto& info) { return info.param.name; });

RegNet small_regnet(const RegNetOptions& options) {
  return RegNet(RegNetShape{{16, 24, 32, 48}, {1, 1, 1, 1}, 8}, options);
}

TEST_F(OnnxTest, AUnetTakesImagesOfOtherSizes) {
  const torch::Tensor x = torch::rand({3, 3, 128, 96});
  Model model = DynamicUnet(
      VisionArch(small_regnet),
      DynamicUnetOptions{.outputs = 4, .blur = true});
  prepare(model, {x});
  write_onnx_case(folder_, "unet", model, {x}, {.dynamic_size = true});
}

// It would have the positions of one size.
TEST_F(OnnxTest, AViTOfDynamicSizeIsRefused) {
  const ViTShape shape{.patch = 8, .width = 32, .depth = 1, .heads = 2};
  expect_error<c10::ValueError>(
      [&] {
        export_onnx(
            ViT(shape, ViTOptions{kClasses, 3, /*image_size=*/64}),
            temp_ / "a.onnx",
            {torch::rand({1, 3, 64, 64})},
            {.dynamic_size = true});
      },
      {"[export_onnx]", "image of another size", ".dynamic_size = false"});
  EXPECT_FALSE(fs::exists(temp_ / "a.onnx"));
}

TEST_F(OnnxTest, BothMattingNetworksAreTheSame) {
  const Tensors x = {torch::rand({3, 3, 64, 96}), torch::rand({3, 3, 64, 96})};
  Model base = MattingBase();
  prepare(base, x);
  write_onnx_case(
      folder_,
      "matting_base",
      base,
      x,
      {.input_names = {"src", "bgr"},
       .output_names = {"pha", "fgr", "err", "hid"}});
  // All squares: of a part, those whose errors are alike are chosen otherwise.
  Model refine = MattingRefine(MattingRefineOptions{
      .sample_pixels = 64 * 96,
      .prevent_oversampling = false});
  prepare(
      refine,
      {torch::rand({3, 3, 192, 256}), torch::rand({3, 3, 192, 256})});
  write_onnx_case(folder_, "matting_refine", refine, x);
}

}  // namespace
}  // namespace tern::onnx_test
