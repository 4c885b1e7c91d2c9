#include "tern/learner/export/onnx/export_onnx.h"

#include <cstdlib>
#include <filesystem>
#include <memory>

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/distributed/data_parallel.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::export_onnx_test {
namespace {

using testing_support::point_data;
using testing_support::point_net;
using testing_support::quiet;
using testing_support::stir;
using testing_support::write_onnx_case;
namespace fs = std::filesystem;

// If all tests of a build run together, Python checks this folder too.
class ExportOnnx : public testing::Test {
 protected:
  ExportOnnx() {
    const char* const shared = std::getenv("TERN_ONNX_FOLDER");
    folder_ = shared != nullptr ? fs::path(shared) : temp_.path();
    make_folders(folder_);
    torch::manual_seed(5);
  }

  TempFolder temp_;
  fs::path folder_;
};

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
      torch::nn::BatchNorm2d(8),
      torch::nn::Dropout(0.5),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 4, 1)));
}

struct RecurrentImpl : torch::nn::Module {
  RecurrentImpl()
      : words(register_module("words", torch::nn::Embedding(50, 16))),
        lstm(register_module(
            "lstm",
            torch::nn::LSTM(torch::nn::LSTMOptions(16, 12)
                                .num_layers(2)
                                .bidirectional(true)
                                .batch_first(true)))),
        gru(register_module(
            "gru",
            torch::nn::GRU(torch::nn::GRUOptions(24, 10).batch_first(true)))),
        head(register_module("head", torch::nn::Linear(10, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto [y, last] = gru->forward(std::get<0>(lstm->forward(words(x))));
    return head->forward(y.select(1, -1) + last[0]);
  }
  torch::nn::Embedding words;
  torch::nn::LSTM lstm;
  torch::nn::GRU gru;
  torch::nn::Linear head;
};

TEST_F(ExportOnnx, ARecurrentClassifierAcceptsAnyBatchSize) {
  const torch::Tensor words = torch::randint(50, {3, 9});
  write_onnx_case(
      folder_,
      "recurrent",
      std::make_shared<RecurrentImpl>(),
      {words});
}

// LibTorch's layers for [T, N, C], with a causal mask and a padding mask; the
// padding mask is an input.
struct EncoderImpl : torch::nn::Module {
  explicit EncoderImpl(bool masks) : masks(masks) {
    register_module("words", words);
    register_module("encoder", encoder);
    register_buffer("later", later);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor tokens = words(x).transpose(0, 1);
    const torch::Tensor y =
        masks ? encoder(tokens, later, x == 0) : encoder(tokens);
    return y.transpose(0, 1);
  }
  bool masks;
  torch::nn::Embedding words{20, 8};
  torch::nn::TransformerEncoder encoder{torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12),
      2)};
  torch::Tensor later = torch::triu(torch::full({5, 5}, -1e9), 1);
};

TEST_F(ExportOnnx, ATransformerEncoderIsExportedWithAndWithoutMasks) {
  const torch::Tensor words = torch::randint(1, 20, {3, 5});
  words.slice(1, 3).slice(0, 1).zero_();  // padding
  for (const bool masks : {false, true}) {
    write_onnx_case(
        folder_,
        masks ? "masked_encoder" : "encoder",
        std::make_shared<EncoderImpl>(masks),
        {words});
  }
}

// The in-place write goes to a different tensor from the one that was chunked
// before.
struct PartsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    const auto parts = (x + 1).chunk(2, 1);
    torch::Tensor y = x * 2;
    y += torch::cat({parts[0], parts[1]}, 1);
    const torch::Tensor view = overwrites ? y.slice(1, 0, 2) : y.exp();
    y.mul_(3);
    return y + view.sum(1, true) + x;
  }
  bool overwrites = false;
};

TEST_F(ExportOnnx, OnlyWritesIntoTensorsThatAreReadLaterAreRejected) {
  const auto model = std::make_shared<PartsImpl>();
  const torch::Tensor x = torch::rand({3, 4});
  write_onnx_case(folder_, "in_place", model, {x});
  model->overwrites = true;
  expect_error<c10::ValueError>(
      [&] { export_onnx(model, temp_ / "net.onnx", {x}); },
      {"aten::mul_", "it writes in place into a tensor that is read later"});
}

// Covers operations on the sizes of batches and images.
struct ShapesImpl : torch::nn::Module {
  ShapesImpl() : token(register_parameter("token", torch::randn({1, 1, 6}))) {}
  Tensors forward(const torch::Tensor& x) {
    const int64_t n = x.size(0), h = x.size(2), w = x.size(3);
    const torch::Tensor y = torch::cat({x, 1 - x * x}, 1);
    const torch::Tensor rows = y.view({n, 6, h * w}).transpose(1, 2);
    const torch::Tensor all = torch::cat({token.expand({n, -1, -1}), rows}, 1);
    const torch::Tensor halved = y.slice(2, 0, h, 2);
    const torch::Tensor sum =
        halved + torch::upsample_bilinear2d(y, {h / 2, w}, false);
    return {
        all.softmax(-1),
        all.mean({1, 2}),
        torch::where(sum > 0, sum, sum * 0.5),
        y.chunk(2, 1)[1].reshape({n * 3, -1}),
        torch::zeros({n, 2}) + x.amax({2, 3}).slice(1, 1)};
  }
  torch::Tensor token;
};

TEST_F(ExportOnnx, BatchAndImageSizesAreDynamic) {
  const Model model(std::make_shared<ShapesImpl>());
  stir(model);
  const torch::Tensor x = torch::randn({4, 3, 8, 10});
  write_onnx_case(folder_, "sizes", model, {x}, {.dynamic_size = true});
}

// Masks, positions and statistics over all pixels of an image.
struct PixelsImpl : torch::nn::Module {
  Tensors forward(const torch::Tensor& x) {
    const int64_t n = x.size(0), h = x.size(2), w = x.size(3);
    const std::vector<int64_t> pixels = {2, 3}, rows_of_all = {0, 2};
    const torch::Tensor rows = x.flatten(2).transpose(1, 2);
    const torch::Tensor y = torch::scaled_dot_product_attention(
        rows,
        rows,
        rows,
        {},
        0,
        /*is_causal=*/true);
    const auto places = torch::arange(h).view({-1, 1}) * 3 + torch::arange(w);
    const auto later = torch::full({h, h}, -10.0).triu(1);
    return {
        y,
        x + places + torch::full({w}, 2.0),
        x.std(pixels) + x.var(pixels, false),
        x.var(rows_of_all, true) + (x.std() + x.norm()) / 100,
        torch::matmul(later + x.mean(), x),
        x.flip({2, 3}).cumsum(2) / 10,
        x.repeat({1, 2, 1, 3}).repeat_interleave(2, 2),
        torch::batch_norm(x, {}, {}, {}, {}, true, 0, 1e-5, false),
        torch::im2col(x, {3, 3}, {1, 1}, {1, 1}, {1, 1}).sum({1}),
        torch::group_norm(x, 1) +
            torch::instance_norm(x, {}, {}, {}, {}, true, 0, 1e-5, false),
        torch::layer_norm(rows, {3}),
        x.roll({1, -2}, {2, 3}),
        torch::zeros({n, h}).masked_fill(x.select(1, 0).select(2, 0) > 0, 2)};
  }
};

TEST_F(ExportOnnx, MasksAndPositionsOfImagesAreDynamic) {
  const torch::Tensor x = torch::randn({4, 3, 8, 10});
  const auto model = std::make_shared<PixelsImpl>();
  write_onnx_case(folder_, "pixels", model, {x}, {.dynamic_size = true});
}

TEST_F(ExportOnnx, ByteImagesAreNormalizedInTheFile) {
  Model model(small_net());
  stir(model);
  const torch::Tensor bytes = torch::randint(256, {4, 6, 5, 3}, torch::kByte);
  const torch::Tensor mean = torch::tensor({0.4, 0.5, 0.6}),
                      stddev = torch::tensor({0.2, 0.3, 0.25});
  const torch::Tensor images = ((bytes.to(torch::kFloat) / 255 - mean) / stddev)
                                   .permute({0, 3, 1, 2})
                                   .to(torch::kFloat);
  ImagePreprocessing how;
  how.mean = {0.4, 0.5, 0.6};
  how.stddev = {0.2, 0.3, 0.25};
  write_onnx_case(
      folder_,
      "bytes",
      model,
      {images},
      {.input_names = {"pixels"},
       .output_names = {"scores"},
       .preprocessing = how},
      1e-4,
      {bytes});
  const std::vector<uint8_t> bytes_of_file = read_file(folder_ / "bytes.onnx");
  const std::string file(bytes_of_file.begin(), bytes_of_file.end());
  for (const char* name : {"pixels", "scores", "batch", "0.weight", "3.bias"}) {
    EXPECT_NE(file.find(name), std::string::npos) << name;
  }
  // BatchNorm is folded; Dropout is removed.
  for (const char* gone : {"BatchNormalization", "Dropout", "running_mean"}) {
    EXPECT_EQ(file.find(gone), std::string::npos) << gone;
  }
}

TEST_F(ExportOnnx, Fp16WeightsHalveTheFileSize) {
  Model model(torch::nn::Sequential(torch::nn::Linear(64, 256)));
  const torch::Tensor x = torch::randn({2, 64});
  write_onnx_case(folder_, "whole", model, {x});
  write_onnx_case(folder_, "half", model, {x}, {.half = true}, 2e-3);
  const auto whole = fs::file_size(folder_ / "whole.onnx");
  EXPECT_LT(fs::file_size(folder_ / "half.onnx"), 0.6 * whole);
}

TEST_F(ExportOnnx, ItsChecksumIsWrittenBesideIt) {
  const Model model(torch::nn::Linear(3, 2));
  const fs::path path = temp_ / "net.onnx";
  export_onnx(model, path, {torch::ones({1, 3})}, {.sha256_file = true});
  EXPECT_EQ(sum_beside(path), sha256_file(path));
}

TEST_F(ExportOnnx, AdaptersAreMergedInTheFile) {
  Model model = add_lora(small_net(), {.rank = 2, .targets = {"0", "3"}});
  stir(model);
  const torch::Tensor x = torch::rand({3, 3, 6, 5});
  write_onnx_case(folder_, "lora", model, {x});
  EXPECT_EQ(model.state_dict().size(), 4u);
  export_onnx(merge_lora(model), temp_ / "merged.onnx", {x.slice(0, 0, 1)});
  EXPECT_EQ(read_file(folder_ / "lora.onnx"), read_file(temp_ / "merged.onnx"));
}

TEST_F(ExportOnnx, A16BitLearnerIsExportedInFp32AndKeepsTraining) {
  Learner learn(point_data(), point_net(), quiet());
  const torch::Tensor x = torch::randn({4, 2});
  write_file(temp_ / "fp32.onnx.sha256", "of an earlier file");
  learn.export_onnx(temp_ / "fp32.onnx", {x});
  EXPECT_FALSE(fs::exists(temp_ / "fp32.onnx.sha256"));
  learn.to_bf16();
  learn.export_onnx(temp_ / "bf16.onnx", {x});
  EXPECT_EQ(read_file(temp_ / "bf16.onnx"), read_file(temp_ / "fp32.onnx"));
  EXPECT_EQ(
      learn.model().parameters()[0].tensor.scalar_type(),
      torch::kBFloat16);
  learn.fit(1);
}

struct OddImpl : torch::nn::Module {
  OddImpl()
      : first(register_module("first", torch::nn::Linear(4, 4))),
        second(register_module("second", torch::nn::Linear(4, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return second->forward(first->forward(x).cumprod(1));
  }
  torch::nn::Linear first, second;
};

struct NetImpl : torch::nn::Module {
  NetImpl() : body(register_module("body", std::make_shared<OddImpl>())) {}
  torch::Tensor forward(const torch::Tensor& x) { return body->forward(x); }
  std::shared_ptr<OddImpl> body;
};

TEST_F(ExportOnnx, AnUnknownOperatorIsReportedWithItsModule) {
  expect_error<c10::ValueError>(
      [&] {
        export_onnx(
            std::make_shared<NetImpl>(),
            temp_ / "a.onnx",
            {torch::zeros({2, 4})});
      },
      {"[export_onnx] aten::cumprod", "its module body"});
  EXPECT_FALSE(fs::exists(temp_ / "a.onnx"));
}

// Writes into part of a tensor that is read later.
struct WriterImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x * 2;
    y.select(1, 0).relu_();
    return y;
  }
};

struct RandomImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x + torch::rand({4}); }
};

// A trace holds such tensors as memory of their size, without their values.
struct NumbersImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return x + torch::tensor(std::vector<double>{1, 2, 3, 4}, x.options());
  }
};

// Calls a function that uses sizes as numbers where ONNX needs constants.
template <typename Function>
struct CallImpl : torch::nn::Module {
  explicit CallImpl(Function function) : call(function) {}
  torch::Tensor forward(const torch::Tensor& x) { return call(x); }
  Function call;
};

template <typename Function>
Model calling(Function function) {
  return std::make_shared<CallImpl<Function>>(function);
}

TEST_F(ExportOnnx, RejectsNumbersThatChangeWithTheSize) {
  const Tensors x = {torch::zeros({2, 3, 6, 6})};
  const fs::path file = temp_ / "a.onnx";
  const auto refuses = [&](const Model& model,
                           std::initializer_list<std::string_view> words) {
    expect_error<c10::ValueError>(
        [&] { export_onnx(model, file, x, {.dynamic_size = true}); },
        words);
  };
  refuses(
      calling([](const torch::Tensor& t) {
        return torch::max_pool2d(t, {t.size(2), t.size(3)});
      }),
      {"aten::max_pool2d", "kernel_shape", "a different size"});
  refuses(
      calling([](const torch::Tensor& t) {
        return torch::leaky_relu(t, 1.0 / static_cast<double>(t.size(2)));
      }),
      {"aten::leaky_relu", "its alpha", "a different size"});
  refuses(
      calling([](const torch::Tensor& t) {
        return t + torch::arange(t.size(3), torch::kFloat).square();
      }),
      {"aten::add", "one of its input tensors", "a different size"});
  refuses(
      calling(
          [](const torch::Tensor& t) { return t.size(2) > 6 ? t.relu() : t; }),
      {"path of the model"});
  EXPECT_EQ(temp_.entries(), 0);
}

// A trace records one thread. The output of the second device would become a
// constant.
TEST_F(ExportOnnx, AParallelModelIsExportedLikeTheOriginal) {
  const Model model = point_net();
  const Tensors inputs = {torch::randn({4, 2})};
  export_onnx(model, temp_ / "one.onnx", inputs);
  export_onnx(
      parallel_model(model, {torch::kCPU, torch::kCPU}),
      temp_ / "two.onnx",
      inputs);
  EXPECT_EQ(read_file(temp_ / "two.onnx"), read_file(temp_ / "one.onnx"));
}

TEST_F(ExportOnnx, RejectsDuplicateNames) {
  const auto refuses = [&](const OnnxOptions& options, const char* word) {
    expect_error<c10::ValueError>(
        [&] {
          export_onnx(
              point_net(),
              temp_ / "a.onnx",
              {torch::zeros({1, 2})},
              options);
        },
        {word,
         "expected a name that is not a number and that no other input, output "
         "or weight has"});
  };
  refuses(
      {.input_names = {"a"}, .output_names = {"a"}},
      "an output is called \"a\"");
  refuses({.input_names = {"0.weight"}}, "an input is called \"0.weight\"");
  refuses({.input_names = {""}}, "Set input_names");
  refuses({.output_names = {"12"}}, "Set output_names");
  EXPECT_EQ(temp_.entries(), 0);
}

// The expanded buffer takes no memory.
struct LargeImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::embedding(words, x);
  }
  torch::Tensor words =
      register_buffer("words", torch::zeros({1}).expand({int64_t{1} << 26, 8}));
};

TEST_F(ExportOnnx, RejectsWeightsLargerThanAFileCanHold) {
  expect_error<c10::ValueError>(
      [&] {
        export_onnx(
            std::make_shared<LargeImpl>(),
            temp_ / "a.onnx",
            {torch::zeros({1, 3}, torch::kLong)});
      },
      {"2.00 GiB", "expected less than 2 GiB", ".half"});
  EXPECT_EQ(temp_.entries(), 0);
}

TEST_F(ExportOnnx, RejectsModelsThatATraceCannotRepresent) {
  const Tensors x = {torch::zeros({2, 4})};
  const fs::path file = temp_ / "a.onnx";
  const auto refuses = [&](Model model,
                           std::initializer_list<std::string_view> words) {
    expect_error<c10::ValueError>([&] { export_onnx(model, file, x); }, words);
  };
  refuses(std::make_shared<WriterImpl>(), {"aten::relu_", "without _"});
  refuses(
      std::make_shared<RandomImpl>(),
      {"aten::rand in the model itself", "draws random numbers"});
  refuses(std::make_shared<NumbersImpl>(), {"constants", "buffer"});
  expect_error<c10::ValueError>(
      [&] { export_onnx(point_net(), file, {}); },
      {"no example input"});
  expect_error<c10::ValueError>(
      [&] {
        export_onnx(
            point_net(),
            file,
            {torch::zeros({1, 2})},
            {.output_names = {"a", "b"}});
      },
      {"2 output_names", "expected 1"});
  EXPECT_EQ(temp_.entries(), 0);
}

}  // namespace
}  // namespace tern::export_onnx_test
