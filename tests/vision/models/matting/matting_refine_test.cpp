#include "tern/vision/models/matting/matting_refine.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tern/learner/inference/fused_model.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/matting/matting_pictures.h"
#include "tern/vision/models/build_model.h"

namespace tern::matting_refine_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;

// Returns a network whose err is strictly between 0 and 1.
MattingRefine net_with(const MattingRefineOptions& options) {
  torch::manual_seed(1);
  MattingRefine net(options);
  const torch::NoGradGuard no_grad;
  net->named_parameters()["decoder.conv4.bias"].fill_(0.5);
  net->eval();
  return net;
}

MattingRefineOutput output_of(MattingRefine& net) {
  const torch::NoGradGuard no_grad;
  return net->forward(noise(2, 64, 96), noise(2, 64, 96, 2));
}

std::vector<int64_t> refined(const MattingRefineOutput& out) {
  const Tensor count = out.ref_sm.sum({1, 2, 3}).to(torch::kLong);
  return {count[0].item<int64_t>(), count[1].item<int64_t>()};
}

TEST(MattingRefine, ReturnsOutputsInBothSizes) {
  MattingRefine net = net_with({.sample_pixels = 160});
  const Tensors out = output_of(net);
  const std::vector<std::vector<int64_t>> shapes = {
      {2, 1, 64, 96},
      {2, 3, 64, 96},
      {2, 1, 16, 24},
      {2, 3, 16, 24},
      {2, 1, 16, 24},
      {2, 1, 16, 24}};
  ASSERT_EQ(out.size(), shapes.size());
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i].sizes().vec(), shapes[i]) << i;
    EXPECT_GE(out[i].min().item<float>(), 0) << i;
    EXPECT_LE(out[i].max().item<float>(), 1) << i;
  }
}

TEST(MattingRefine, RefinesTheGivenNumberOfPixels) {
  MattingRefine net = net_with({.sample_pixels = 160});
  EXPECT_EQ(refined(output_of(net)), (std::vector<int64_t>{10, 10}));
  net->set_options({.sample_pixels = 64 * 96});
  EXPECT_EQ(refined(output_of(net)), (std::vector<int64_t>{384, 384}));
}

TEST(MattingRefine, RefinesWhereThePredictedErrorIsLargest) {
  MattingRefine net = net_with({.sample_pixels = 160});
  const MattingRefineOutput out = output_of(net);
  const Tensor inside = out.err_sm.masked_select(out.ref_sm > 0);
  // The top pixels are chosen per image, so compare within image 0 only.
  const Tensor outside = out.err_sm[0].masked_select(out.ref_sm[0] == 0);
  EXPECT_GE(
      out.err_sm[0].masked_select(out.ref_sm[0] > 0).min().item<float>(),
      outside.max().item<float>());
  EXPECT_EQ(inside.numel(), 20);
}

// The fused graph is traced on the first frame. If that frame has nothing to
// refine, later frames must still be refined.
TEST(MattingRefine, RefinesAfterABlankFrame) {
  MattingRefine net =
      net_with({.mode = RefineMode::thresholding, .threshold = 0.1});
  const torch::NoGradGuard no_grad;
  Model model = net, fused = fused_model(model);
  Tensor bias = net->named_parameters()["decoder.conv4.bias"];
  const Tensors frame = {noise(1, 64, 96), noise(1, 64, 96, 2)};
  bias.fill_(-100);
  fused.forward(frame);
  bias.fill_(0.5);
  const Tensors expected = model.forward(frame), out = fused.forward(frame);
  ASSERT_GT(expected[5].sum().item<float>(), 0);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_TRUE(torch::equal(out[i], expected[i])) << i;
  }
}

TEST(MattingRefine, DoesNotRefineWherePredictedErrorIsZero) {
  MattingRefine net = net_with({.sample_pixels = 160});
  const torch::NoGradGuard no_grad;
  net->named_parameters()["decoder.conv4.bias"].fill_(-100);
  EXPECT_EQ(refined(output_of(net)), (std::vector<int64_t>{0, 0}));
  net->set_options({.sample_pixels = 160, .prevent_oversampling = false});
  EXPECT_EQ(refined(output_of(net)), (std::vector<int64_t>{10, 10}));
}

TEST(MattingRefine, RefinesWhereTheErrorExceedsAThreshold) {
  MattingRefine net =
      net_with({.mode = RefineMode::thresholding, .threshold = 0.5});
  const MattingRefineOutput out = output_of(net);
  EXPECT_TRUE(torch::equal(out.ref_sm, (out.err_sm > 0.5).to(torch::kFloat)));
  EXPECT_GT(out.ref_sm.sum().item<float>(), 0);
}

TEST(MattingRefine, ReturnsTheCoarseOutputWhereItDoesNotRefine) {
  MattingRefine net =
      net_with({.mode = RefineMode::thresholding, .threshold = 1});
  const MattingRefineOutput out = output_of(net);
  EXPECT_EQ(refined(out), (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(torch::allclose(
      out.pha,
      torch::upsample_bilinear2d(out.pha_sm, {64, 96}, false)));
}

TEST(MattingRefine, RefiningAllPatchesEqualsRefiningTheWholeImage) {
  for (const int64_t kernel_size : {1, 3}) {
    MattingRefineOptions options{
        .mode = RefineMode::full,
        .kernel_size = kernel_size};
    MattingRefine net = net_with(options);
    const MattingRefineOutput whole = output_of(net);
    options.mode = RefineMode::thresholding;
    options.threshold = 0;
    net->set_options(options);
    const MattingRefineOutput squares = output_of(net);
    ASSERT_EQ(squares.ref_sm.min().item<float>(), 1);
    EXPECT_TRUE(torch::equal(whole.ref_sm, squares.ref_sm));
    EXPECT_TRUE(torch::allclose(whole.pha, squares.pha, 1e-4, 1e-5));
    EXPECT_TRUE(torch::allclose(whole.fgr, squares.fgr, 1e-4, 1e-5));
  }
}

TEST(MattingRefine, TrainsInALearnerInEachPrecision) {
  for (const char* precision : {"fp32", "amp", "bf16"}) {
    MattingRefine net = net_with({.sample_pixels = 1024});
    Learner learn = matting_learner(net, 128);
    learn.split({"aspp", "decoder", "refiner"});
    ASSERT_EQ(parts_of(learn).groups.size(), 4);
    if (precision == std::string("amp")) learn.to_amp();
    if (precision == std::string("bf16")) learn.to_bf16();
    const Tensor before = net->named_parameters()["refiner.conv1.weight"]
                              .detach()
                              .to(torch::kFloat)
                              .clone();
    learn.fit(1, {5e-5, 5e-5, 1e-4, 3e-2});
    const Tensor after =
        net->named_parameters()["refiner.conv1.weight"].detach();
    EXPECT_TRUE(std::isfinite(learn.recorder().epochs().back().train_loss));
    EXPECT_FALSE(torch::equal(before, after.to(torch::kFloat))) << precision;
  }
}

TEST(MattingRefine, IsRebuiltFromItsArchitecture) {
  const torch::NoGradGuard no_grad;
  MattingRefine net = net_with(
      {.backbone_scale = 0.5, .mode = RefineMode::full, .kernel_size = 1});
  const auto architecture = architecture_of(net);
  ASSERT_TRUE(architecture);
  EXPECT_EQ(architecture->name, "matting_refine");
  Model again = build_model(*architecture);
  EXPECT_EQ(architecture_of(again), architecture);
  again.load_state_dict(Model(net).state_dict());
  again.eval();
  EXPECT_TRUE(torch::equal(
      again.forward({noise(2, 64, 96), noise(2, 64, 96, 2)})[0],
      output_of(net).pha));
  expect_error<c10::ValueError>(
      [] {
        build_model({"matting_refine", R"({"mode": "half"})"});
      },
      {"unknown mode \"half\"", "sampling"});
}

TEST(MattingRefine, RejectsSizesThatItCannotRefine) {
  MattingRefine net = net_with({.sample_pixels = 16});
  const auto refuses = [&](int64_t h, int64_t w, const std::string& words) {
    expect_error<c10::ValueError>(
        [&] { net->forward(noise(1, h, w), noise(1, h, w)); },
        {words});
  };
  refuses(34, 32, "34 pixels high and 32 wide; expected both divisible by 4");
  refuses(32, 35, "divisible by 4");
  net->set_options({.sample_pixels = 80000});
  refuses(128, 128, "sample_pixels is 80000, more than the 16384 of an image");
  net->set_options({.backbone_scale = 0.1, .sample_pixels = 16});
  refuses(4, 64, "no pixel left at the backbone_scale 0.1");
  expect_error<c10::ValueError>(
      [&] { net->forward(noise(1, 32, 32), noise(1, 64, 64)); },
      {"[MattingRefine] src is", "bgr is"});
}

TEST(MattingRefine, RejectsInvalidOptions) {
  const auto refuses = [](const MattingRefineOptions& options,
                          const std::string& words) {
    expect_error<c10::ValueError>([&] { MattingRefine net(options); }, {words});
  };
  refuses({.backbone_scale = 0.6}, "backbone_scale is 0.6; expected");
  refuses({.backbone_scale = 0}, "backbone_scale is 0;");
  refuses({.backbone_scale = NAN}, "backbone_scale is nan");
  refuses({.sample_pixels = 15}, "sample_pixels is 15");
  refuses({.threshold = 1.5}, "threshold is 1.5");
  refuses({.kernel_size = 5}, "kernel_size is 5; expected 1 or 3");
  MattingRefine net = net_with({});
  expect_error<c10::ValueError>(
      [&] { net->set_options({.kernel_size = 1}); },
      {"kernel_size 1", "as in the weights"});
}

}  // namespace
}  // namespace tern::matting_refine_test
