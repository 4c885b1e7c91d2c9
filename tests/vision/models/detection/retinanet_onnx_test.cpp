// Boxes and detections of an exported RetinaNet, which check_onnx.py compares
// with ONNX Runtime's outputs.
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/detections.h"
#include "tern/tests/vision/models/detection/onnx_detections.h"
#include "tern/tests/vision/small_classifiers.h"
#include "tern/vision/models/cnn/regnet.h"
#include "tern/vision/models/detection/retinanet.h"

namespace tern::retinanet_onnx_test {
namespace {

using testing_support::OnnxDetections;
using testing_support::prepare;
using torch::Tensor;

constexpr int64_t kClasses = 3;

RegNet small_body(const RegNetOptions& options) {
  return RegNet(RegNetShape{{16, 24, 32, 48}, {1, 1, 1, 1}, 8}, options);
}

// Scales the last layer of a branch and zeros its bias.
void scale_layer(const Model& model, const std::string& layer, double factor) {
  for (const ModelTensor& t : model.parameters()) {
    if (t.name.find(layer) == std::string::npos) continue;
    t.tensor.mul_(t.is_bias() ? 0 : factor);
  }
}

// Scales the weights so that logits and codes vary and many objects are
// detected.
RetinaNet detector(RetinaNet net, const Tensor& x) {
  const torch::NoGradGuard no_grad;
  prepare(net, {x});
  const Tensors y = net->forward(x);
  scale_layer(net, "cls_logits", 2 / y[0].std().item<double>());
  scale_layer(net, "bbox_reg", 0.3 / y[1].std().item<double>());
  return net;
}

RetinaNet detector(const Tensor& x, bool is_v2 = false) {
  return detector(
      RetinaNet(
          VisionArch(small_body),
          RetinaNetOptions{
              .num_classes = kClasses,
              .group_norm = is_v2,
              .p6_of_c5 = is_v2}),
      x);
}

class RetinaNetOnnxTest : public OnnxDetections {
 protected:
  // Returns true if rounding neither reorders nor changes the detections.
  bool are_clear(RetinaNet net, const Tensor& x) const {
    const torch::NoGradGuard no_grad;
    const Tensors y = net->forward(x);
    const Tensors found = decode_detections(y, usual_);
    for (int i = 0; i < 4; ++i) {
      Tensors moved = y;
      for (int k : {0, 1}) moved[k] = y[k] + 1e-5 * torch::randn_like(y[k]);
      const Tensors other = decode_detections(moved, usual_);
      if (!found[2].equal(other[2])) return false;
      if ((found[0] - other[0]).abs().max().item<double>() > 0.1) return false;
    }
    return true;
  }

  Tensor with_clear_detections(const RetinaNet& net, Tensor x) const {
    while (!are_clear(net, x)) x = torch::rand_like(x);
    return x;
  }

  Tensor x_ = torch::rand({3, 3, 96, 64});
};

TEST_F(RetinaNetOnnxTest, OutputsBoxesAndScores) {
  write("boxes", detector(x_), {x_}, {.detection = DetectionOptions()});
  write("boxes_v2", detector(x_, true), {x_}, {.detection = usual_});
}

TEST_F(RetinaNetOnnxTest, OutputsDetections) {
  for (const bool is_v2 : {false, true}) {
    const RetinaNet net = detector(x_, is_v2);
    write(
        is_v2 ? "nms_v2" : "nms",
        net,
        {with_clear_detections(net, x_)},
        {.detection = usual_, .nms = true});
  }
  const RetinaNet net =
      detector(retinanet_resnet18_fpn({.num_classes = kClasses}), x_);
  const Tensor x = with_clear_detections(net, x_);
  write("nms_resnet18", net, {x}, {.detection = usual_, .nms = true});

  // Ensures a meaningful comparison: all D detections are filled, and many are
  // suppressed.
  const torch::NoGradGuard no_grad;
  const Tensors y = RetinaNet(net)->forward(x);
  DetectionOptions all = usual_;
  all.detections_per_img = 10'000;
  const auto count = [&] {
    return (decode_detections(y, all)[2] >= 0).sum().item<int64_t>();
  };
  const int64_t kept = count();
  EXPECT_GT(kept, 3 * usual_.detections_per_img);
  all.nms_thresh = 1;
  EXPECT_GT(count(), 2 * kept);
}

TEST_F(RetinaNetOnnxTest, AcceptsImagesOfOtherSizes) {
  // Exported at half the height; 127 is divisible by no stride.
  const Tensor x = torch::rand({3, 3, 136, 127});
  const RetinaNet net = detector(x);
  write(
      "nms_of_any_size",
      net,
      {with_clear_detections(net, x)},
      {.dynamic_size = true, .detection = usual_, .nms = true});
  const Tensor small = torch::rand({3, 3, 128, 64});
  write(
      "boxes_of_any_size",
      net,
      {small},
      {.dynamic_size = true, .detection = usual_});
  // At 16, 33 and 49 pixels the last levels have one position.
  refuses(
      net,
      {torch::rand({1, 3, 16, 16})},
      {.dynamic_size = true, .detection = usual_},
      {"[export_onnx] dynamic_size is true and level 3 has 9 anchors",
       "larger example"});
  refuses(
      net,
      {torch::rand({1, 3, 16, 16})},
      {.dynamic_size = true},
      {"[export_onnx]", "larger example"});
  // One row, but several columns.
  refuses(
      net,
      {torch::rand({1, 3, 20, 200})},
      {.dynamic_size = true, .detection = usual_},
      {"[export_onnx]", "larger example"});
}

TEST_F(RetinaNetOnnxTest, AcceptsByteInputsAndStoresHalfWeights) {
  const ImagePreprocessing preprocessing{
      .mean = {0.5, 0.4, 0.3},
      .stddev = {0.2, 0.3, 0.4}};
  const Tensor mean = torch::tensor({0.5, 0.4, 0.3}).view({3, 1, 1});
  const Tensor stddev = torch::tensor({0.2, 0.3, 0.4}).view({3, 1, 1});
  const auto normalized = [&](const Tensor& bytes) {
    return (bytes.permute({0, 3, 1, 2}).to(torch::kFloat) / 255 - mean) /
           stddev;
  };
  Tensor bytes = torch::randint(256, {3, 96, 64, 3}, torch::kByte);
  const RetinaNet net = detector(normalized(bytes));
  while (!are_clear(net, normalized(bytes))) bytes.random_(256);
  write(
      "nms_of_bytes",
      net,
      {normalized(bytes)},
      {.preprocessing = preprocessing, .detection = usual_, .nms = true},
      1e-4,
      {bytes});
  const OnnxOptions half{
      .half = true,
      .decompose_layer_norm = true,
      .detection = usual_};
  write("boxes_in_half", net, {x_}, half, 2e-2);
}

}  // namespace
}  // namespace tern::retinanet_onnx_test
