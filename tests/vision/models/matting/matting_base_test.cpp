#include "tern/vision/models/matting/matting_base.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tern/learner/amp/autocast.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/vision/matting/matting_pictures.h"
#include "tern/vision/models/build_model.h"

namespace tern::matting_base_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;

TEST(MattingBase, OutputsHaveTheSizeOfTheImages) {
  const torch::NoGradGuard no_grad;
  MattingBase net;
  net->eval();
  for (const auto& [h, w] : {std::pair(32, 48), std::pair(37, 21)}) {
    const Tensors out = net->forward(noise(1, h, w), noise(1, h, w, 2));
    ASSERT_EQ(out.size(), 4);
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t channels[] = {1, 3, 1, 32};
      EXPECT_EQ(
          out[i].sizes().vec(),
          (std::vector<int64_t>{1, channels[i], h, w}));
      EXPECT_GE(out[i].min().item<float>(), 0);
      if (i == 3) continue;  // hid is unbounded above
      EXPECT_LE(out[i].max().item<float>(), 1);
    }
  }
}

TEST(MattingBase, TrainsInALearnerWithALearningRatePerPart) {
  torch::manual_seed(1);
  MattingBase net;
  Learner learn = matting_learner(net, 32);
  learn.split({"aspp", "decoder"});
  ASSERT_EQ(parts_of(learn).groups.size(), 3);
  const StateDict before = [&] {
    StateDict copies;
    for (const auto& item : learn.model().state_dict()) {
      copies.insert(item.key(), item.value().clone());
    }
    return copies;
  }();
  learn.fit(1, {1e-4, 0, 5e-4});
  const StateDict after = learn.model().state_dict();
  const auto changed = [&](const std::string& name) {
    return !torch::equal(before[name], after[name]);
  };
  EXPECT_TRUE(changed("backbone.features.0.0.weight"));
  EXPECT_FALSE(changed("aspp.convs.0.0.weight"));
  EXPECT_TRUE(changed("decoder.conv4.weight"));
  EXPECT_TRUE(std::isfinite(learn.recorder().epochs().back().train_loss));
}

TEST(MattingBase, TrainsInMixedPrecision) {
  for (const bool is_amp : {true, false}) {
    torch::manual_seed(1);
    Learner learn = matting_learner(MattingBase(), 32);
    is_amp ? learn.to_amp() : learn.to_bf16();
    learn.fit(1, 1e-4);
    EXPECT_TRUE(std::isfinite(learn.recorder().epochs().back().train_loss));
  }
}

TEST(MattingBase, IsRebuiltFromItsArchitecture) {
  const torch::NoGradGuard no_grad;
  Model model = MattingBase(MattingBaseOptions{MattingBackbone::mobilenet_v2});
  model.eval();
  const auto architecture = architecture_of(model);
  ASSERT_TRUE(architecture);
  EXPECT_EQ(architecture->name, "matting_base");
  EXPECT_EQ(architecture->options, R"({"backbone": "mobilenet_v2"})");
  Model again = build_model(*architecture);
  again.load_state_dict(model.state_dict());
  again.eval();
  const Tensors x = {noise(1, 32, 32), noise(1, 32, 32, 2)};
  EXPECT_TRUE(torch::equal(model.forward(x)[0], again.forward(x)[0]));
  expect_error<c10::ValueError>(
      [] {
        build_model({"matting_base", R"({"backbone": "vgg"})"});
      },
      {"unknown backbone \"vgg\"", "mobilenet_v2, resnet50, resnet101"});
}

TEST(MattingBase, CloneCopiesItsWeights) {
  const torch::NoGradGuard no_grad;
  MattingBase net;
  const auto copy = std::dynamic_pointer_cast<MattingBaseImpl>(net->clone());
  ASSERT_TRUE(copy);
  net->eval();
  copy->eval();
  const Tensor src = noise(1, 32, 32), bgr = noise(1, 32, 32, 2);
  EXPECT_TRUE(
      torch::equal(net->forward(src, bgr).pha, copy->forward(src, bgr).pha));
  net->parameters()[0].zero_();
  EXPECT_FALSE(
      torch::equal(net->forward(src, bgr).hid, copy->forward(src, bgr).hid));
}

TEST(MattingBase, RejectsImagesWithoutABackground) {
  MattingBase net;
  const auto refuses = [&](const Tensor& src, const Tensor& bgr) {
    expect_error<c10::ValueError>(
        [&] { net->forward(src, bgr); },
        {"[MattingBase] src is", "the same shape", "Pass each image"});
  };
  refuses(noise(2, 32, 32), noise(2, 32, 36));
  refuses(noise(2, 32, 32), Tensor());
  refuses(noise(2, 32, 32)[0], noise(2, 32, 32)[0]);
  refuses(torch::rand({2, 1, 32, 32}), torch::rand({2, 1, 32, 32}));
  refuses(torch::zeros({2, 3, 0, 32}), torch::zeros({2, 3, 0, 32}));
  const Tensor bytes = torch::zeros({2, 3, 32, 32}, torch::kByte);
  refuses(bytes, bytes);
}

TEST(MattingBase, RejectsABatchOfOneInTraining) {
  MattingBase net;
  expect_error<c10::ValueError>(
      [&] { net->forward(noise(1, 32, 32), noise(1, 32, 32)); },
      {"batch of one", "drop_last"});
}

}  // namespace
}  // namespace tern::matting_base_test
