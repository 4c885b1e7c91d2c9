// Exports LibTorch's own modules. check_onnx.py runs the files in ONNX Runtime.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::onnx_torch_modules_test {
namespace {

using testing_support::stir;
using testing_support::write_onnx_case;
using torch::Tensor;
namespace fs = std::filesystem;
namespace nn = torch::nn;

/// Applies each module to the model's input.
struct EachImpl : nn::Module {
  template <typename... Modules>
  explicit EachImpl(const Modules&... modules) {
    (add(modules), ...);
  }
  template <typename ModuleHolder>
  void add(const ModuleHolder& module) {
    register_module(std::to_string(calls.size()), module.ptr());
    calls.push_back([module = ModuleHolder(module)](const Tensor& x) mutable {
      return module->forward(x);
    });
  }
  Tensors forward(const Tensor& x) {
    Tensors all;
    for (const auto& call : calls) all.push_back(call(x));
    return all;
  }
  std::vector<std::function<Tensor(const Tensor&)>> calls;
};

Model activations() {
  return std::make_shared<EachImpl>(
      nn::ELU(nn::ELUOptions().alpha(0.7)),
      nn::SELU(),
      nn::CELU(),
      nn::GELU(),
      nn::GELU(nn::GELUOptions().approximate("tanh")),
      nn::GLU(nn::GLUOptions(2)),
      nn::Hardshrink(),
      nn::Hardtanh(),
      nn::LeakyReLU(),
      nn::LogSigmoid(),
      nn::LogSoftmax(nn::LogSoftmaxOptions(1)),
      nn::Mish(),
      nn::PReLU(nn::PReLUOptions().num_parameters(4)),
      nn::PReLU(),
      nn::ReLU(nn::ReLUOptions().inplace(false)),
      nn::ReLU6(),
      nn::RReLU(),
      nn::Sigmoid(),
      nn::SiLU(),
      nn::Softmax(nn::SoftmaxOptions(1)),
      nn::Softmax2d(),
      nn::Softmin(nn::SoftminOptions(1)),
      nn::Softplus(nn::SoftplusOptions().beta(2).threshold(1)),
      nn::Softshrink(),
      nn::Softsign(),
      nn::Tanh(),
      nn::Tanhshrink(),
      nn::Threshold(nn::ThresholdOptions(0.1, -3)),
      nn::Dropout(),
      nn::Dropout2d(),
      nn::AlphaDropout(),
      nn::FeatureAlphaDropout(),
      nn::Identity(),
      nn::Flatten(),
      nn::Unflatten(nn::UnflattenOptions(1, {2, 2})));
}

// Modules that write into their first argument.
Model in_place() {
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(4, 4, 3)),
      nn::ReLU(nn::ReLUOptions().inplace(true)),
      nn::Conv2d(nn::Conv2dOptions(4, 4, 1)),
      nn::ELU(nn::ELUOptions().inplace(true)),
      nn::SELU(nn::SELUOptions(true)),
      nn::CELU(nn::CELUOptions().inplace(true)),
      nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true)),
      nn::Hardtanh(nn::HardtanhOptions().inplace(true)),
      nn::RReLU(nn::RReLUOptions().inplace(true)),
      nn::ReLU6(nn::ReLU6Options(true)),
      nn::Threshold(nn::ThresholdOptions(0.1, 0.05).inplace(true)));
}

Model norms() {
  return std::make_shared<EachImpl>(
      nn::BatchNorm2d(4),
      nn::BatchNorm2d(nn::BatchNorm2dOptions(4).affine(false)),
      nn::BatchNorm2d(nn::BatchNorm2dOptions(4).track_running_stats(false)),
      nn::GroupNorm(nn::GroupNormOptions(2, 4)),
      nn::GroupNorm(nn::GroupNormOptions(4, 4).affine(false)),
      nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4)),
      nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4).affine(true)),
      nn::InstanceNorm2d(
          nn::InstanceNorm2dOptions(4).affine(true).track_running_stats(true)),
      nn::LayerNorm(nn::LayerNormOptions({8, 6})),
      nn::LayerNorm(nn::LayerNormOptions({6}).elementwise_affine(false)),
      nn::LocalResponseNorm(nn::LocalResponseNormOptions(3)));
}

Model convolutions() {
  const auto conv = [] { return nn::Conv2dOptions(4, 4, 3); };
  return std::make_shared<EachImpl>(
      nn::Conv2d(conv().padding(torch::kSame)),
      nn::Conv2d(conv().padding(1).padding_mode(torch::kReflect)),
      nn::Conv2d(conv().padding(1).padding_mode(torch::kReplicate)),
      nn::Conv2d(conv().padding(1).padding_mode(torch::kCircular)),
      nn::Conv2d(nn::Conv2dOptions(4, 4, 4).padding(torch::kSame).dilation(3)),
      nn::Conv2d(conv().padding(torch::kValid)),
      nn::Unfold(
          nn::UnfoldOptions({3, 2}).padding(1).stride({2, 1}).dilation({1, 2})),
      nn::Conv2d(conv().padding(1).groups(2).bias(false)),
      nn::Conv2d(conv().dilation(2).stride({1, 2})),
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 2, 3).stride(2)),
      nn::PixelShuffle(nn::PixelShuffleOptions(2)),
      nn::PixelUnshuffle(nn::PixelUnshuffleOptions(2)));
}

Model pooling() {
  using Size = std::vector<std::optional<int64_t>>;
  return std::make_shared<EachImpl>(
      nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).ceil_mode(true)),
      nn::AvgPool2d(
          nn::AvgPool2dOptions(3).stride(2).padding(1).ceil_mode(true)),
      nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)),
      nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(3)),
      nn::AdaptiveAvgPool2d(
          nn::AdaptiveAvgPool2dOptions(Size{std::nullopt, 4})),
      nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({2, 3})),
      nn::LPPool2d(nn::LPPool2dOptions(2, 3)));
}

Model padding() {
  return std::make_shared<EachImpl>(
      nn::ReflectionPad2d(nn::ReflectionPad2dOptions({1, 2, 3, 0})),
      nn::ReplicationPad2d(nn::ReplicationPad2dOptions({1, 2, 3, 0})),
      nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 0, 0, 2})),
      nn::ConstantPad2d(nn::ConstantPad2dOptions({1, 0, 0, 2}, 0.5)));
}

Model upsampling() {
  const auto scaled = [](double scale) {
    return nn::UpsampleOptions().scale_factor(
        std::vector<double>{scale, scale});
  };
  const auto sized = nn::UpsampleOptions().size(std::vector<int64_t>{11, 13});
  const auto of =
      [](nn::UpsampleOptions options, const auto& mode, bool align) {
        return nn::Upsample(options.mode(mode).align_corners(align));
      };
  return std::make_shared<EachImpl>(
      nn::Upsample(scaled(2)),
      nn::Upsample(scaled(1.5)),
      nn::Upsample(sized),
      of(scaled(2), torch::kBilinear, false),
      of(scaled(1.7), torch::kBilinear, false),
      of(scaled(1.7), torch::kBilinear, true),
      of(sized, torch::kBilinear, true),
      of(sized, torch::kBicubic, false),
      of(sized, torch::kBicubic, true),
      of(scaled(1.7), torch::kBicubic, false));
}

// For inputs [N, 6, 8].
Model lines() {
  return std::make_shared<EachImpl>(
      nn::Linear(8, 5),
      nn::Linear(nn::LinearOptions(8, 5).bias(false)),
      nn::Conv1d(nn::Conv1dOptions(6, 4, 3).padding(torch::kSame)),
      nn::ConvTranspose1d(nn::ConvTranspose1dOptions(6, 4, 3).stride(2)),
      nn::BatchNorm1d(6),
      nn::InstanceNorm1d(nn::InstanceNorm1dOptions(6).affine(true)),
      nn::AvgPool1d(nn::AvgPool1dOptions(3).stride(2).padding(1)),
      nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2).padding(1)),
      nn::AdaptiveAvgPool1d(nn::AdaptiveAvgPool1dOptions(3)),
      nn::AdaptiveMaxPool1d(nn::AdaptiveMaxPool1dOptions(4)),
      nn::LPPool1d(nn::LPPool1dOptions(2, 3)),
      nn::ReflectionPad1d(nn::ReflectionPad1dOptions(2)),
      nn::ReplicationPad1d(nn::ReplicationPad1dOptions(2)),
      nn::ConstantPad1d(nn::ConstantPad1dOptions(2, 0.3)),
      nn::Upsample(nn::UpsampleOptions()
                       .scale_factor(std::vector<double>{1.5})
                       .mode(torch::kLinear)
                       .align_corners(false)),
      nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{13})));
}

// For inputs [N, 2, 4, 6, 5].
Model volumes() {
  return std::make_shared<EachImpl>(
      nn::Conv3d(nn::Conv3dOptions(2, 3, 3).padding(1)),
      nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2).stride(2)),
      nn::BatchNorm3d(2),
      nn::InstanceNorm3d(2),
      nn::AvgPool3d(nn::AvgPool3dOptions(2)),
      nn::MaxPool3d(nn::MaxPool3dOptions(2)),
      nn::AdaptiveAvgPool3d(nn::AdaptiveAvgPool3dOptions({2, 4, 1})),
      nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({2, 2, 1})),
      nn::ReplicationPad3d(nn::ReplicationPad3dOptions(1)),
      nn::ReflectionPad3d(nn::ReflectionPad3dOptions(1)),
      nn::ConstantPad3d(nn::ConstantPad3dOptions(1, 0.5)),
      nn::Dropout3d(),
      nn::Upsample(nn::UpsampleOptions()
                       .scale_factor(std::vector<double>{2, 1.5, 1})
                       .mode(torch::kTrilinear)
                       .align_corners(false)),
      nn::Upsample(nn::UpsampleOptions().size(std::vector<int64_t>{5, 6, 9})));
}

// For inputs [N, 6, 8]: modules with two inputs, and recurrent cells.
struct PairsImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor y = x.roll(1, 1), word = x.select(2, 0).round().abs();
    const Tensor first = x.select(1, 0);
    const auto [h, c] = lstm(first);
    return {
        bilinear(x, y),
        cosine(x, y),
        distance(x, y),
        rnn(first) + gru(first) + h + c,
        words(word.clamp(0, 4).to(torch::kLong)),
        torch::nn::functional::normalize(
            x,
            nn::functional::NormalizeFuncOptions().dim(1))};
  }
  nn::Bilinear bilinear =
      register_module("bilinear", nn::Bilinear(nn::BilinearOptions(8, 8, 3)));
  nn::CosineSimilarity cosine = register_module(
      "cosine",
      nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(2)));
  nn::PairwiseDistance distance =
      register_module("distance", nn::PairwiseDistance());
  nn::RNNCell rnn = register_module("rnn", nn::RNNCell(8, 4));
  nn::GRUCell gru = register_module("gru", nn::GRUCell(8, 4));
  nn::LSTMCell lstm = register_module("lstm", nn::LSTMCell(8, 4));
  nn::Embedding words = register_module(
      "words",
      nn::Embedding(nn::EmbeddingOptions(5, 3).padding_idx(1)));
};

// For inputs [N, 6, 8]; with LibTorch's masks and one length per sample.
struct AttentionImpl : nn::Module {
  Tensors forward(const Tensor& x) {
    const Tensor time_first = x.transpose(0, 1);
    const auto later =
        nn::TransformerImpl::generate_square_subsequent_mask(x.size(1));
    const auto of_batch =
        nn::TransformerImpl::generate_square_subsequent_mask(x.size(0));
    const Tensor padding = (x.select(2, 0) > 1).logical_and(not_first);
    const auto [y, weights] =
        attention
            ->forward(time_first, time_first, time_first, padding, true, later);
    const auto [z, none] = attention->forward(x, x, x, {}, false, of_batch);
    return {
        y.transpose(0, 1),
        weights,
        z,
        layer(time_first, later, padding),
        encoder(time_first, later),
        decoder(time_first, time_first.exp(), later),
        transformer(time_first, time_first.flip({0}))};
  }
  AttentionImpl() {
    register_module("layer", layer);
    register_module("encoder", encoder);
    register_module("decoder", decoder);
    register_module("transformer", transformer);
  }
  Tensor not_first = register_buffer("not_first", torch::arange(6) > 0);
  nn::MultiheadAttention attention = register_module(
      "attention",
      nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2)));
  nn::TransformerEncoderLayer layer{
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).activation(
          torch::kGELU)};
  nn::TransformerEncoder encoder{nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12),
      2)};
  nn::TransformerDecoder decoder{nn::TransformerDecoderOptions(
      nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12),
      2)};
  nn::Transformer transformer{
      nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(12)};
};

TEST(OnnxTorchModules, GiveTheSameOutputsInOnnxRuntime) {
  const TempFolder temp;
  const char* const shared = std::getenv("TERN_ONNX_FOLDER");
  const fs::path folder = shared != nullptr ? fs::path(shared) : temp.path();
  make_folders(folder);
  torch::manual_seed(5);
  const Tensor image = torch::randn({4, 4, 8, 6}),
               line = torch::randn({4, 6, 8});
  const Tensor volume = torch::randn({4, 2, 4, 6, 5});
  const std::vector<std::tuple<const char*, Model, Tensor>> cases = {
      {"module_activations", activations(), image},
      {"module_in_place", in_place(), image},
      {"module_norms", norms(), image},
      {"module_convolutions", convolutions(), image},
      {"module_pooling", pooling(), image},
      {"module_padding", padding(), image},
      {"module_upsampling", upsampling(), image},
      {"module_lines", lines(), line},
      {"module_volumes", volumes(), volume},
      {"module_pairs", std::make_shared<PairsImpl>(), line},
      {"module_attention", std::make_shared<AttentionImpl>(), line}};
  for (const auto& [name, model, x] : cases) {
    SCOPED_TRACE(name);
    stir(model);
    EXPECT_NO_THROW(write_onnx_case(folder, name, model, {x}));
  }
}

}  // namespace
}  // namespace tern::onnx_torch_modules_test
