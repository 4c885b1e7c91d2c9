// Random small networks with one module kept in fp32: all of its operations
// compute in fp32, and all others as without it.

#include <array>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/activation_checkpoint.h"
#include "tern/learner/weights/lora.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/tiny.h"

namespace tern::keep_fp32_random_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;
namespace nn = torch::nn;

constexpr int64_t kWidth = 8, kTokens = 3;

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(engine_);
  }
  bool coin() { return below(2) == 1; }

 private:
  std::mt19937_64 engine_;
};

// A block for [N, C] or [N, T, C] inputs that starts with a layer and records
// the result dtype of each operation.
struct BlockImpl final : nn::Module {
  using Types = std::vector<std::pair<std::string, torch::ScalarType>>;

  explicit BlockImpl(Draw& draw)
      : kind(draw.below(9)), is_residual(draw.coin()) {
    nn::LinearOptions options(kWidth, kWidth);
    options.bias(draw.coin());
    for (const char* name : {"q", "k", "v"}) {
      linears.push_back(register_module(name, nn::Linear(options)));
    }
    if (kind == 3) register_module("conv", conv);
    if (kind == 4) register_module("norm", norm);
    if (kind == 5) register_module("batch_norm", batch_norm);
    if (kind == 6) gamma = register_parameter("gamma", torch::ones({kWidth}));
  }

  Tensor see(const char* what, const Tensor& result) {
    types.emplace_back(what, result.scalar_type());
    return result;
  }

  Tensor forward(const Tensor& x) {
    types.clear();
    input = x.detach();
    Tensor y = compute(x);
    if (is_residual) y = see("sum", y + x);
    output = y.detach();
    return y;
  }

  Tensor compute(const Tensor& x) {
    nn::Linear &q = linears[0], &k = linears[1], &v = linears[2];
    const auto tokens = [](const Tensor& t) {
      return t.dim() == 3 ? t : t.unsqueeze(1);
    };
    switch (kind) {
      case 0:
        return see("linear", k(see("relu", torch::relu(see("linear", q(x))))));
      case 1:
        return see("transposed", x.matmul(q->weight.t()));
      case 2:
        return see("a part", torch::linear(x, q->weight.slice(0, 0, kWidth)));
      case 3:
        return see("conv", conv(tokens(x).transpose(1, 2)))
            .transpose(1, 2)
            .reshape(x.sizes());
      case 4:
        return see("linear", q(see("norm", norm(x))));
      case 5:
        return see("batch_norm",
                   batch_norm(see("linear", q(x)).view({-1, kWidth})))
            .view(x.sizes());
      case 6:
        return see("scale", see("linear", q(x)) * gamma);
      case 7: {
        const Tensor a = tokens(see("q", q(x))), b = tokens(see("k", k(x))),
                     c = tokens(see("v", v(x)));
        const Tensor scores = see("scores", a.bmm(b.transpose(1, 2)));
        return see("attend", see("softmax", scores.softmax(-1)).bmm(c))
            .view(x.sizes());
      }
      default:
        return see(
            "normalized",
            torch::linear(x, q->weight / (q->weight.norm() + 1)));
    }
  }

  int64_t kind;
  bool is_residual;
  std::vector<nn::Linear> linears;
  nn::Conv1d conv{nn::Conv1dOptions(kWidth, kWidth, 1)};
  nn::LayerNorm norm{nn::LayerNormOptions({kWidth})};
  nn::BatchNorm1d batch_norm{kWidth};
  Tensor gamma, input, output;
  Types types;
};
TORCH_MODULE(Block);

struct NetImpl final : nn::Module {
  NetImpl(uint64_t seed, bool is_checkpointed) {
    Draw draw(seed);
    torch::manual_seed(static_cast<int64_t>(seed));
    is_tokens = draw.coin();
    embeds = draw.coin();
    if (embeds) {
      register_module("embed", embed);
    } else {
      register_module("embed", project);
    }
    const int64_t count = 2 + draw.below(4);
    for (int64_t i = 0; i < count; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), Block(draw)));
      if (draw.below(4) == 0 && is_checkpointed) {
        again[i] = ActivationCheckpoint(nn::Sequential(blocks.back()));
      }
    }
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) {
    Tensor y = embeds ? embed((x > 0).to(torch::kLong)).mean(1) : project(x);
    if (is_tokens) y = y.unsqueeze(1).expand({-1, kTokens, -1});
    for (size_t i = 0; i < blocks.size(); ++i) {
      y = again[i] ? again[i]->forward(y) : blocks[i]->forward(y);
    }
    return head(is_tokens ? y.mean(1) : y);
  }
  bool is_tokens, embeds;
  nn::Embedding embed{2, kWidth};
  nn::Linear project{2, kWidth}, head{kWidth, 2};
  std::vector<Block> blocks;
  std::array<ActivationCheckpoint, 5> again =
      {nullptr, nullptr, nullptr, nullptr, nullptr};
};
TORCH_MODULE(Net);

enum class In { fp16, bf16, amp };

void set_precision(Learner& learn, In in, std::vector<std::string> kept) {
  if (in == In::amp) {
    learn.to_amp({.dtype = torch::kHalf, .keep_fp32 = std::move(kept)});
    return;
  }
  const MixedPrecisionOptions options{
      .force_fp16 = true,
      .keep_fp32 = std::move(kept)};
  in == In::fp16 ? learn.to_fp16(options) : learn.to_bf16(options);
}

// True for layers and products, which autocast computes in 16 bits whatever
// their input dtypes.
bool is_product(const std::string& what) {
  return what != "sum" && what != "norm" && what != "batch_norm" &&
         what != "softmax" && what != "scale" && what != "relu";
}

void check(uint64_t seed, In in) {
  Draw draw(seed);
  const bool is_lora = draw.below(4) == 0;
  Net net(seed, !is_lora);
  const int64_t kept = draw.below(static_cast<int64_t>(net->blocks.size()));
  const std::string name = fmt::format("block{}", kept);
  Model model = net;
  if (is_lora) model = add_lora(model, {.rank = 2});
  Learner learn(
      point_data(8, 0, {.batch_size = 8, .workers = 0}),
      model,
      quiet());
  set_precision(learn, in, {name});
  learn.fit(1, 1e-3);
  const auto narrow = in == In::bf16 ? torch::kBFloat16 : torch::kHalf;
  for (size_t i = 0; i < net->blocks.size(); ++i) {
    const BlockImpl& block = *net->blocks[i];
    SCOPED_TRACE(fmt::format(
        "block {} of kind {}, kept is {}, in mode {}",
        i,
        block.kind,
        kept,
        static_cast<int>(in)));
    const bool is_kept = i == static_cast<size_t>(kept);
    for (const auto& [what, type] : block.types) {
      if (in == In::amp && !is_kept && !is_product(what)) continue;
      EXPECT_EQ(type, is_kept ? torch::kFloat : narrow) << what;
    }
  }
  for (const ModelTensor& p : learn.model().parameters()) {
    EXPECT_TRUE(p.tensor.isfinite().all().item<bool>()) << p.name;
  }
}

TEST(KeepFp32Random, ComputesAKeptBlockInFp32AndEverythingElseIn16Bits) {
  for_random_cases(8, [](uint64_t seed) {
    for (const In in : {In::fp16, In::bf16, In::amp}) check(seed, in);
  });
}

}  // namespace
}  // namespace tern::keep_fp32_random_test
