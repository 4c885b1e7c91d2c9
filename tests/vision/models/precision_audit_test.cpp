#include "tern/callbacks/diagnose/precision_audit.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/small_classifiers.h"
#include "tern/vision/matting/matting_loss.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/vision_arch.h"

namespace tern::vision_precision_audit_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;

void expect_sound(
    const Model& model,
    Tensors inputs,
    Tensors targets,
    Loss loss = {}) {
  DataBunch data = DataBunch::create(
      std::make_shared<TensorDataset>(std::move(inputs), std::move(targets)),
      nullptr,
      {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, model, quiet({.loss = std::move(loss)}));
  const PrecisionAudit audit = learn.audit_precision({.measure_speed = false});
  SCOPED_TRACE(audit.to_string());
  EXPECT_TRUE(audit.problems.empty());
  for (const TypeAudit& type : {audit.fp16, audit.bf16}) {
    EXPECT_TRUE(type.is_sound);
    EXPECT_TRUE(type.keep_fp32.empty());
  }
}

TEST(PrecisionAuditOfNetworks, ReportsNothingForNetworksThatTrainIn16Bits) {
  torch::manual_seed(3);
  const auto photos = [](int64_t n, int64_t size) {
    return (torch::rand({n, 3, size, size}) - 0.45) / 0.225;
  };
  const Tensor labels = torch::arange(8).remainder(3);
  expect_sound(
      simple_cnn({3, 16, 16, 3}, {.batch_norm = true}),
      {photos(8, 28)},
      {labels});
  expect_sound(resnet18({.num_classes = 3}), {photos(8, 32)}, {labels});
  expect_sound(
      DynamicUnet(VisionArch("resnet18"), DynamicUnetOptions{.outputs = 3}),
      {photos(4, 32)},
      {torch::randint(0, 3, {4, 32, 32})});
  expect_sound(
      MattingBase(MattingBaseOptions{MattingBackbone::mobilenet_v2}),
      {torch::rand({4, 3, 64, 64}), torch::rand({4, 3, 64, 64})},
      {torch::rand({4, 1, 64, 64}), torch::rand({4, 3, 64, 64})},
      matting_base_loss);
}

TEST(PrecisionAuditOfNetworks, ReportsNothingForAnyFamily) {
  for (const SmallNet& net : classifiers()) {
    SCOPED_TRACE(net.name);
    torch::manual_seed(3);
    expect_sound(
        net.make(),
        {(torch::rand({4, 3, net.side, net.side}) - 0.45) / 0.225},
        {torch::arange(4)});
  }
}

}  // namespace
}  // namespace tern::vision_precision_audit_test
