// Compares the networks with torchvision's: names, outputs in eval and train
// mode at two sizes, gradients and running statistics.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/types.h>

#include "tern/learner/model.h"
#include "tern/tests/support/numbers.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/vision/models/vision_arch.h"

namespace tern::networks_parity_test {
namespace {

using testing_support::some;
using testing_support::weight;

// Returns the results of networks_fixture.py, stored or live.
const nlohmann::json& networks() {
  static const char* live = std::getenv("TERN_NETWORKS");
  static const auto fixture = nlohmann::json::parse(std::ifstream(
      live ? live : in_tests_folder("vision/models/networks_fixture.json")));
  return fixture["networks"];
}

ConvNeXt small_convnext(const ConvNeXtOptions& options) {
  return ConvNeXt(ConvNeXtShape{{24, 48, 96, 192}, {2, 2, 3, 2}, 0.3}, options);
}

ResNet small_resnext(const ResNetOptions& options) {
  return ResNet(ResNetShape{{1, 2, 1, 1}, true, 8, 4}, options);
}

Swin small_swin(const SwinOptions& options) {
  return Swin(SwinShape{24, {2, 2, 2, 2}, {2, 4, 6, 8}}, options);
}

constexpr ViTShape kSmallViT{.width = 64, .depth = 2, .heads = 4};
ViT small_vit_64(const ViTOptions& options) {
  return ViT(kSmallViT, options);
}
ViT small_vit_96(const ViTOptions& given) {
  ViTOptions options = given;
  options.image_size = 96;
  return ViT(kSmallViT, options);
}
TimmViT small_timm_vit(const ViTOptions& options) {
  return TimmViT(kSmallViT, options);
}

template <auto make>
Model network(bool drops) {
  auto options = [&]<class Net, class Options>(Net (*)(const Options&)) {
    return Options();
  }(make);
  options.num_classes = 10;
  if constexpr (requires { options.dropout; }) {
    if (!drops) options.dropout = 0;
  }
  if constexpr (requires { options.stochastic_depth; }) {
    if (!drops) options.stochastic_depth = 0;
  }
  if constexpr (requires { options.image_size; }) options.image_size = 64;
  return make(options);
}

Model make(const std::string& name, bool drops) {
  static const std::map<std::string, Model (*)(bool)> all = {
      {"convnext_base", network<convnext_base>},
      {"convnext_small", network<convnext_small>},
      {"convnext_tiny", network<convnext_tiny>},
      {"densenet121", network<densenet121>},
      {"efficientnet_b0", network<efficientnet_b0>},
      {"efficientnet_b1", network<efficientnet_b1>},
      {"efficientnet_b2", network<efficientnet_b2>},
      {"efficientnet_b3", network<efficientnet_b3>},
      {"mobilenet_v3_large", network<mobilenet_v3_large>},
      {"mobilenet_v3_small", network<mobilenet_v3_small>},
      {"regnet_y_400mf", network<regnet_y_400mf>},
      {"regnet_y_8gf", network<regnet_y_8gf>},
      {"resnet152", network<resnet152>},
      {"resnext50_32x4d", network<resnext50_32x4d>},
      {"small_convnext", network<small_convnext>},
      {"small_resnext", network<small_resnext>},
      {"small_swin", network<small_swin>},
      {"small_timm_vit", network<small_timm_vit>},
      {"small_vit_64", network<small_vit_64>},
      {"small_vit_96", network<small_vit_96>},
      {"swin_t", network<swin_t>},
      {"vit_b_16", network<vit_b_16>},
      {"vit_b_32", network<vit_b_32>},
      {"vit_s_16", network<vit_s_16>},
      {"wide_resnet50_2", network<wide_resnet50_2>}};
  return all.at(name)(drops);
}

void fill(const Model& model) {
  const torch::NoGradGuard no_grad;
  int64_t index = 0;
  for (const ModelTensor& item : model.state()) {
    const int64_t now = index++;
    torch::Tensor tensor = item.tensor;
    if (!tensor.is_floating_point()) continue;
    tensor.copy_(weight(item.name, tensor.sizes(), now));
  }
}

Model filled(const std::string& name, bool drops) {
  const Model model = make(name, drops);
  fill(model);
  return model;
}

std::vector<torch::Tensor> images(const std::string& name) {
  if (name == "small_timm_vit" || name == "vit_s_16") {
    return {some({2, 3, 64, 64}, 3), some({1, 3, 96, 64}, 3)};
  }
  if (name.find("vit") != std::string::npos) {
    const int64_t side = name == "small_vit_96" ? 96 : 64;
    return {some({2, 3, side, side}, 3), some({1, 3, side, side}, 3)};
  }
  return {some({2, 3, 64, 48}, 3), some({1, 3, 75, 101}, 3)};
}

// Returns the largest difference from Python's output, relative to its largest
// number.
double error_of(const torch::Tensor& y, const nlohmann::json& expected) {
  const auto numbers =
      torch::tensor(expected.get<std::vector<double>>(), torch::kDouble);
  const auto error =
      (y.detach().to(torch::kDouble).flatten() - numbers).abs().max();
  return (error / numbers.abs().max()).item<double>();
}

// Returns the train-mode output after backward from its weighted sum.
torch::Tensor learn(Model model, const torch::Tensor& x) {
  model.train();
  torch::Tensor y = model.forward({x})[0];
  (y * some(y.sizes(), 5).to(y.dtype())).sum().backward();
  return y;
}

// Returns the largest error of the tensors' norms and products, relative to the
// norm; for nearly zero tensors, relative to the largest norm.
double error_of_all(const Tensors& tensors, const nlohmann::json& expected) {
  const size_t step = expected.size() == tensors.size()
                          ? 1
                          : std::max<size_t>(1, tensors.size() / 16);
  double worst = 0, longest = 0;
  for (const auto& item : expected) {
    longest = std::max(longest, item[0].get<double>());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const torch::Tensor& t = tensors.at(i * step);
    const double length = expected[i][0].get<double>();
    const double along =
        (t * some(t.sizes(), static_cast<int64_t>(i * step) + 1000))
            .sum()
            .item<double>();
    const double over = std::max(length, longest * 1e-9);
    worst = std::max(
        {worst,
         std::abs(t.norm().item<double>() - length) / over,
         std::abs(along - expected[i][1].get<double>()) / over});
  }
  return worst;
}

uint32_t crc32(const std::string& text) {
  uint32_t crc = ~0U;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) * 0xEDB88320U);
  }
  return ~crc;
}

class NetworksTest : public testing::TestWithParam<std::string> {
 protected:
  const nlohmann::json& python_ = networks()[GetParam()];
  const std::vector<torch::Tensor> images_ = images(GetParam());
};

class NetworksLearnTest : public NetworksTest {};

TEST_P(NetworksTest, OutputsMatchTorchvision) {
  const torch::NoGradGuard no_grad;
  Model model = filled(GetParam(), /*drops=*/false);
  std::vector<std::string> tensors;
  for (const ModelTensor& item : model.state()) {
    tensors.push_back(fmt::format(
        "{} [{}]",
        item.name,
        fmt::join(item.tensor.sizes(), ", ")));
  }
  const std::string all = fmt::format("{}", fmt::join(tensors, "\n"));
  EXPECT_EQ(crc32(all), python_["names"].get<uint32_t>()) << all;
  if (python_.contains("double")) {
    model.module()->to(torch::kDouble);
    model.eval();
    for (size_t i = 0; i < images_.size(); ++i) {
      const torch::Tensor y = model.forward({images_[i]})[0];
      EXPECT_LE(error_of(y, python_["double"][i]), 1e-7);
    }
    return;
  }
  const auto in_float = [](const torch::Tensor& x) {
    return x.to(torch::kFloat).contiguous(torch::MemoryFormat::ChannelsLast);
  };
  // Only in a live fixture.
  for (size_t i = 0; python_.contains("eval") && i < images_.size(); ++i) {
    model.eval();
    const torch::Tensor y = model.forward({in_float(images_[i])})[0];
    EXPECT_LE(error_of(y, python_["eval"][i]), 1e-5);
  }
  if (!python_.contains("train")) return;
  // BatchNorm over few pixels amplifies rounding, and fused BatchNorm and ReLU
  // round differently from LibTorch. Tern must be about as close to the results
  // in double as Python.
  Model exact = filled(GetParam(), /*drops=*/false);
  exact.module()->to(torch::kDouble);
  exact.train();
  model.train();
  for (size_t i = 0; i < images_.size(); ++i) {
    const torch::Tensor numbers =
        exact.forward({images_[i].to(torch::kDouble)})[0].flatten();
    const nlohmann::json expected = std::vector<double>(
        numbers.const_data_ptr<double>(),
        numbers.const_data_ptr<double>() + numbers.numel());
    const torch::Tensor python =
        torch::tensor(python_["train"][i].get<std::vector<double>>());
    const torch::Tensor y = model.forward({in_float(images_[i])})[0];
    EXPECT_LE(error_of(y, expected), 1.5 * error_of(python, expected) + 1e-5);
  }
}

TEST_P(NetworksTest, DropoutMatchesTorchvision) {
  std::vector<double> blocks, dropout;
  for (const auto& module : make(GetParam(), true).module()->modules()) {
    if (const auto* block = dynamic_cast<StochasticDepth*>(module.get())) {
      blocks.push_back(block->stochastic_depth);
    }
    const auto* layer = module->as<torch::nn::Dropout>();
    if (layer && layer->options.p() > 0) dropout.push_back(layer->options.p());
  }
  // A ViT has blocks that could be dropped, but no default probability.
  if (python_["blocks"].empty()) std::erase(blocks, 0);
  const auto same = [&](const char* what, const std::vector<double>& ours) {
    const auto theirs = python_[what].get<std::vector<double>>();
    ASSERT_EQ(ours.size(), theirs.size()) << what;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_NEAR(ours[i], theirs[i], 1e-8) << what << " " << i;
    }
  };
  same("blocks", blocks);
  same("dropout", dropout);
}

TEST_P(NetworksLearnTest, GradientsMatchTorchvision) {
  const bool is_live = python_.contains("seed");
  Model model = filled(GetParam(), /*drops=*/is_live);
  model.module()->to(torch::kDouble);
  if (is_live) torch::manual_seed(python_["seed"].get<uint64_t>());
  for (size_t i = 0; i < images_.size(); ++i) {
    const torch::Tensor y = learn(model, images_[i]);
    EXPECT_LE(error_of(y, python_["learnt"][i]), 1e-7);
  }
  Tensors gradients, statistics;
  for (const ModelTensor& item : model.parameters()) {
    gradients.push_back(item.tensor.grad());
  }
  for (const ModelTensor& item : model.buffers()) {
    if (item.name.find("running") != std::string::npos) {
      statistics.push_back(item.tensor);
    }
  }
  EXPECT_LE(error_of_all(gradients, python_["gradients"]), 1e-6);
  EXPECT_LE(error_of_all(statistics, python_["buffers"]), 1e-7);
}

// Returns the networks for which the fixture has this entry.
std::vector<std::string> networks_with(const char* what) {
  std::vector<std::string> names;
  for (const auto& item : networks().items()) {
    if (item.value().contains(what)) names.push_back(item.key());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    All,
    NetworksTest,
    testing::ValuesIn(networks_with("names")),
    [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(
    All,
    NetworksLearnTest,
    testing::ValuesIn(networks_with("learnt")),
    [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tern::networks_parity_test
