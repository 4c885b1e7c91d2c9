// Each network in ONNX Runtime, which check_onnx.py runs, and in cv::dnn.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <opencv2/dnn.hpp>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/vision/small_classifiers.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"

namespace tern::onnx_test {
namespace {

using testing_support::classifiers;
using testing_support::kClasses;
using testing_support::prepare;
using testing_support::SmallNet;
using testing_support::write_onnx_case;
namespace fs = std::filesystem;

class OnnxTest : public testing::TestWithParam<SmallNet> {
 protected:
  OnnxTest() {
    const char* const shared = std::getenv("TERN_ONNX_FOLDER");
    folder_ = shared != nullptr ? fs::path(shared) : temp_.path();
    make_folders(folder_);
    torch::manual_seed(7);
  }

  TempFolder temp_;
  fs::path folder_;
};

class Classifiers : public OnnxTest {};

bool is_debians_opencv() {
  return CV_VERSION_MAJOR == 4 && CV_VERSION_MINOR == 6;
}

cv::Mat run_opencv(const fs::path& file, const torch::Tensor& batch) {
  cv::dnn::Net net = cv::dnn::readNetFromONNX(file.string());
  const std::vector<int> sizes(batch.sizes().begin(), batch.sizes().end());
  net.setInput(cv::Mat(sizes, CV_32F, batch.data_ptr<float>()));
  return net.forward().clone();
}

TEST_P(Classifiers, MatchOnnx) {
  const SmallNet& net = GetParam();
  const torch::Tensor x = torch::rand({4, 3, net.side, net.side});
  Model model = net.make();
  prepare(model, {x});
  write_onnx_case(folder_, net.name, model, {x});

  const torch::NoGradGuard no_grad;
  fs::path file = folder_ / (std::string(net.name) + ".onnx");
  if (net.opencv != SmallNet::any_batch && is_debians_opencv()) {
    // docs/inference.md lists these failures; if one is gone, the test can be
    // stricter.
    EXPECT_THROW(run_opencv(file, x), cv::Exception);
  }
  if (net.opencv == SmallNet::none) return;
  const bool is_fixed = net.opencv != SmallNet::any_batch;
  if (is_fixed) {
    file = temp_ / "fixed.onnx";
    const bool decompose = net.opencv == SmallNet::decomposed;
    export_onnx(
        model,
        file,
        {x.slice(0, 0, 1)},
        {.dynamic_batch = false, .decompose_layer_norm = decompose});
  }
  for (const int64_t size : {1, 4}) {
    if (size > 1 && is_fixed) continue;
    const torch::Tensor batch = x.slice(0, 0, size);
    const torch::Tensor expected = model.forward({batch})[0];
    const cv::Mat actual = run_opencv(file, batch);
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

// The U-Net resizes features whose size differs from their skip connection:
// none for images of 128 x 96 pixels, some for 106 x 80, all for 129 x 97.
TEST_F(OnnxTest, AUnetAcceptsImagesOfOtherSizes) {
  for (const auto& [height, width] :
       {std::pair{128, 96}, {106, 80}, {129, 97}}) {
    const torch::Tensor x = torch::rand({3, 3, height, width});
    Model model = DynamicUnet(
        VisionArch(small_regnet),
        DynamicUnetOptions{.outputs = 4, .blur = true});
    prepare(model, {x});
    const std::string name = fmt::format("unet_{}_{}", height, width);
    write_onnx_case(folder_, name, model, {x}, {.dynamic_size = true});
  }
}

TEST_F(OnnxTest, AClassifierAcceptsImagesOfOtherSizes) {
  const torch::Tensor x = torch::rand({3, 3, 64, 96});
  for (const auto& [name, model] :
       {std::pair<std::string, Model>(
            "resnet_of_sizes",
            VisionModel(VisionArch(testing_support::small_resnet), 3, 4)),
        {"regnet_of_sizes", small_regnet({.num_classes = 4})}}) {
    prepare(model, {x});
    write_onnx_case(folder_, name, model, {x}, {.dynamic_size = true});
  }
}

TEST_F(OnnxTest, Fp16ConvolutionsHalveTheFile) {
  const torch::Tensor x = torch::rand({3, 3, 64, 64});
  Model model = testing_support::small_resnet({.num_classes = 4});
  prepare(model, {x});
  write_onnx_case(folder_, "resnet_in_fp32", model, {x});
  write_onnx_case(folder_, "resnet_in_fp16", model, {x}, {.half = true}, 2e-2);
  EXPECT_LT(
      fs::file_size(folder_ / "resnet_in_fp16.onnx"),
      0.52 * fs::file_size(folder_ / "resnet_in_fp32.onnx"));
}

TEST_F(OnnxTest, NumbersStayWithinYRange) {
  const torch::Tensor x = torch::rand({3, 3, 64, 64});
  Model model = VisionModel(
      VisionArch(testing_support::small_resnet),
      3,
      2,
      HeadOptions{.hidden = {8}, .y_range = {-1, 4}});
  prepare(model, {x});
  write_onnx_case(folder_, "y_range", model, {x});
}

// Its position embeddings have a fixed size.
TEST_F(OnnxTest, RejectsDynamicSizesForAViT) {
  const ViTShape shape{.patch = 8, .width = 32, .depth = 1, .heads = 2};
  expect_error<c10::ValueError>(
      [&] {
        export_onnx(
            ViT(shape, ViTOptions{kClasses, 3, /*image_size=*/64}),
            temp_ / "a.onnx",
            {torch::rand({1, 3, 64, 64})},
            {.dynamic_size = true});
      },
      {"[export_onnx]", "image of a different size", ".dynamic_size = false"});
  EXPECT_FALSE(fs::exists(temp_ / "a.onnx"));
}

TEST_F(OnnxTest, BothMattingNetworksMatchOnnx) {
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
  // Refines all squares, as rounding changes the choice among squares with
  // nearly equal errors.
  Model refine = MattingRefine(MattingRefineOptions{
      .sample_pixels = int64_t{64} * 96,
      .prevent_oversampling = false});
  const Tensors large = {
      torch::rand({3, 3, 192, 256}),
      torch::rand({3, 3, 192, 256})};
  prepare(refine, large);
  write_onnx_case(folder_, "matting_refine", refine, x);
  for (const RefineMode mode : {RefineMode::full, RefineMode::thresholding}) {
    auto net = MattingRefine(MattingRefineOptions{.mode = mode});
    Model model = net;
    prepare(model, large);
    const torch::NoGradGuard no_grad;
    const torch::Tensor errors = net->forward(x[0], x[1]).err_sm;
    MattingRefineOptions half = net->options();
    // In the widest gap between errors, so that rounding does not change the
    // choice.
    const torch::Tensor sorted = std::get<0>(errors.flatten().sort());
    const torch::Tensor middle =
        sorted.slice(0, sorted.numel() / 4, 3 * sorted.numel() / 4);
    const int64_t widest = middle.diff().argmax().item<int64_t>();
    half.threshold = middle.slice(0, widest, widest + 2).mean().item<double>();
    net->set_options(half);
    write_onnx_case(folder_, "matting_" + to_string(mode), model, x);
  }
}

}  // namespace
}  // namespace tern::onnx_test
