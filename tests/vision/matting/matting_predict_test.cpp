#include "tern/vision/matting/matting_predict.h"

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/matting/scenes.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/matting/matting_data.h"
#include "tern/vision/matting/matting_loss.h"

namespace tern::matting_predict_test {
namespace {

using namespace testing_support;  // NOLINT

/// Marks pixels that differ from the background. Requires sides divisible by 4,
/// like the refining network.
struct DifferenceImpl : torch::nn::Module {
  DifferenceImpl() { register_parameter("unused", torch::zeros({1})); }

  std::vector<torch::Tensor> forward(
      const torch::Tensor& src,
      const torch::Tensor& bgr) {
    EXPECT_EQ(src.size(2) % 4 + src.size(3) % 4, 0);
    const torch::Tensor differs =
        (src - bgr).abs().amax(1, /*keepdim=*/true) > 0.01;
    return {differs.to(torch::kFloat), src, torch::zeros_like(src)};
  }
};
TORCH_MODULE(Difference);

/// Has the outputs of a MattingRefine; only the upper left square is refined.
struct RefinedImpl : DifferenceImpl {
  std::vector<torch::Tensor> forward(
      const torch::Tensor& src,
      const torch::Tensor& bgr) {
    auto outputs = DifferenceImpl::forward(src, bgr);
    const torch::Tensor small = torch::full({1, 1, 4, 3}, 0.25);
    torch::Tensor ref = torch::zeros({1, 1, 4, 3});
    ref[0][0][0][0] = 1;
    return {outputs[0], outputs[1], small, small, small, ref};
  }
};
TORCH_MODULE(Refined);

torch::Tensor plain(int64_t height, int64_t width, int value) {
  return torch::full({height, width, 3}, value, torch::kByte);
}

/// A background, and the same scene with an object.
struct Photos {
  Photos() { src.slice(0, 3, 8).slice(1, 2, 5).fill_(200); }
  torch::Tensor bgr = plain(13, 10, 60), src = bgr.clone();
};

TEST(MattingPredict, FindsTheForegroundInImagesOfAnySize) {
  const Photos photos;
  Model model = Difference();
  const Matte matte = find_matte(model, photos.src, photos.bgr);
  torch::Tensor expected = torch::zeros({13, 10});
  expected.slice(0, 3, 8).slice(1, 2, 5).fill_(1);
  EXPECT_TRUE(torch::equal(matte.pha, expected));
  EXPECT_TRUE(test::all_close(
      matte.fgr,
      photos.src.permute({2, 0, 1}).to(torch::kFloat) / 255,
      {0, 1e-6}));
}

TEST(MattingPredict, ResizesErrorAndRefinedSquaresToTheImage) {
  const Photos photos;
  Model model = Refined();
  const Matte matte = find_matte(model, photos.src, photos.bgr);
  EXPECT_TRUE(matte.err.equal(torch::full({13, 10}, 0.25)));
  torch::Tensor ref = torch::zeros({13, 10});
  ref.slice(0, 0, 4).slice(1, 0, 4).fill_(1);
  EXPECT_TRUE(matte.ref.equal(ref));
  Model base = Difference();
  EXPECT_FALSE(find_matte(base, photos.src, photos.bgr).ref.defined());
}

TEST(MattingPredict, RestoresTheModeOfTheModel) {
  const Photos photos;
  Model model = Difference();
  for (const bool is_training : {true, false}) {
    model.train(is_training);
    find_matte(model, photos.src, photos.bgr);
    EXPECT_EQ(model.is_training(), is_training);
  }
}

TEST(MattingPredict, CompositesOverABackgroundOfAnySize) {
  const Photos photos;
  Model model = Difference();
  const Matte matte = find_matte(model, photos.src, photos.bgr);
  for (const auto& [height, width] : {std::pair{40, 13}, {1, 1}, {13, 10}}) {
    const torch::Tensor beach = place_over(matte, plain(height, width, 100));
    ASSERT_EQ(beach.sizes(), torch::IntArrayRef({3, 13, 10}));
    EXPECT_NEAR(beach[0][0][0].item<float>(), 100 / 255., 1e-5);
    EXPECT_NEAR(beach[2][4][3].item<float>(), 200 / 255., 1e-5);
  }
}

TEST(MattingPredict, RejectsPhotosThatDoNotMatch) {
  Model model = Difference();
  expect_error<c10::ValueError>(
      [&] { find_matte(model, plain(8, 8, 1), plain(8, 12, 1)); },
      {"[find_matte]", "[8, 8, 3]", "[8, 12, 3]", "same place"});
  const torch::Tensor floating = torch::zeros({8, 8, 3});
  expect_error<c10::ValueError>(
      [&] { find_matte(model, floating, floating); },
      {"kByte"});
  expect_error<c10::ValueError>(
      [&] {
        place_over({floating, floating}, floating);
      },
      {"[place_over]"});
}

TEST(MattingPredict, RejectsAFileWithoutAMattingNetwork) {
  const Scenes scenes(1, 1);
  expect_error<DataError>(
      [&] { load_matting_model(scenes / "pairs/pha/0.png"); },
      {"pha/0.png"});
}

TEST(MattingPicture, DrawsSixPanelsPerScene) {
  const Scenes scenes(10, 10);
  Learner learn(
      matting_data(
          scenes.pairs(),
          scenes.backgrounds(),
          {.dataset = {.size = {24, 24}},
           .batch_size = 2,
           .workers = 0,
           .device = torch::kCPU}),
      TinyMatting(),
      quiet({.loss = matting_base_loss}));
  learn.model().train();
  show_mattes(
      learn,
      scenes / "mattes.png",
      Split::valid,
      {.count = 2, .tile = 48});
  EXPECT_TRUE(learn.model().is_training());
  const torch::Tensor picture = read_image((scenes / "mattes.png").string());
  EXPECT_NEAR(picture.size(1), 6 * 60, 30);
  EXPECT_NEAR(picture.size(0), 2 * 115, 40);  // captions have three lines
}

TEST(MattingPicture, RejectsMissingOutputs) {
  const torch::Tensor x = torch::zeros({1, 3, 8, 8});
  expect_error<c10::ValueError>(
      [&] {
        matting_picture({{x, x}, {x, x}}, {x});
      },
      {"[matting_picture]", "1 outputs"});
}

}  // namespace
}  // namespace tern::matting_predict_test
