#include "tern/learner/amp/keep_fp32.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/module_names.h"
#include "tern/tests/support/forward_ops.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/small_classifiers.h"
#include "tern/vision/models/dynamic_unet.h"

namespace tern::vision_keep_fp32_test {
namespace {

using namespace testing_support;  // NOLINT
using torch::Tensor;

struct Case {
  std::string name;
  std::function<Model()> make;
  Tensors inputs, targets;
};

std::vector<Case> networks() {
  std::vector<Case> cases;
  const auto photos = [](int64_t side) {
    return (torch::rand({1, 3, side, side}) - 0.45) / 0.225;
  };
  for (const SmallNet& net : classifiers()) {
    const bool is_cnn =
        !std::string(net.name).ends_with("vit") && net.side == 64;
    cases.push_back(
        {net.name,
         net.make,
         {photos(is_cnn ? 32 : net.side)},
         {torch::arange(1)}});
  }
  cases.push_back(
      {"unet",
       [] {
         return DynamicUnet(
             VisionArch(small_resnet),
             DynamicUnetOptions{.outputs = 3});
       },
       {photos(32)},
       {torch::randint(0, 3, {1, 32, 32})}});
  return cases;
}

std::vector<ForwardOp> ops_of(
    const Case& net,
    const std::function<void(Learner&)>& set_precision) {
  torch::manual_seed(1);
  const auto samples = std::make_shared<TensorDataset>(net.inputs, net.targets);
  DataBunch data = DataBunch::create(samples, samples, {.workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, net.make(), quiet());
  set_precision(learn);
  torch::manual_seed(2);
  return forward_ops(learn);
}

bool has_weight_of(const ForwardOp& op, const std::string& module) {
  return std::ranges::any_of(op.weights, [&](const std::string& weight) {
    return is_in_module(weight, module);
  });
}

// Returns true if the op has weights that do not belong to `module`.
bool is_other_layer(const ForwardOp& op, const std::string& module) {
  static const std::set<std::string> kLayers = {
      "aten::linear",
      "aten::addmm",
      "aten::matmul",
      "aten::conv2d",
      "aten::layer_norm",
      "aten::batch_norm"};
  return kLayers.contains(op.name) && !op.weights.empty() &&
         !has_weight_of(op, module);
}

// Returns the module at position `place`, from 0 (first) to 1 (last).
std::string module_at(double place, const Model& model) {
  std::vector<std::string> names;
  for (const auto& item : model.module()->named_modules()) {
    if (!item.key().empty() && !item.value()->parameters().empty()) {
      names.push_back(item.key());
    }
  }
  return names[static_cast<size_t>(place * static_cast<double>(names.size()))];
}

void expect_kept(
    const Case& net,
    const std::string& kept,
    const std::vector<ForwardOp>& plain,
    const std::vector<ForwardOp>& mixed) {
  SCOPED_TRACE(net.name + " with " + kept);
  ASSERT_EQ(mixed.size(), plain.size());
  size_t first = mixed.size(), last = 0;
  for (size_t i = 0; i < mixed.size(); ++i) {
    if (!has_weight_of(mixed[i], kept)) continue;
    first = std::min(first, i);
    last = i;
  }
  ASSERT_LE(first, last);
  size_t behind = last + 1;
  while (behind < mixed.size() && !is_other_layer(mixed[behind], kept)) {
    ++behind;
  }
  // An in-place sum into the kept block's result is fp32, and so are the
  // operations that use only this sum.
  bool is_written = false;
  for (size_t i = 0; i < mixed.size(); ++i) {
    ASSERT_EQ(mixed[i].name, plain[i].name);
    is_written |= i > last && mixed[i].name == "aten::add_";
    const bool is_of_it = is_written && !is_other_layer(mixed[i], kept) &&
                          !mixed[i].given.empty() &&
                          mixed[i].given[0] == torch::kFloat;
    if (is_of_it) continue;
    if (i >= first && i <= last) {
      for (const torch::ScalarType type : mixed[i].types) {
        EXPECT_EQ(type, torch::kFloat)
            << i << " " << mixed[i].name << " inside";
      }
    } else if (i < first || i >= behind) {
      EXPECT_EQ(mixed[i].types, plain[i].types)
          << i << " " << mixed[i].name << " of " << first << ", " << last
          << ", " << behind;
    }
  }
}

TEST(KeepFp32OfNetworks, AKeptBlockIsFp32AndLaterLayersAreUnaffected) {
  double place = 0.2;  // a different one in each network
  for (const Case& net : networks()) {
    const auto to_bf16 = [](const std::vector<std::string>& kept) {
      return [kept](Learner& learn) { learn.to_bf16({.keep_fp32 = kept}); };
    };
    const std::string kept = module_at(place, net.make());
    place += 0.03;
    expect_kept(
        net,
        kept,
        ops_of(net, to_bf16({})),
        ops_of(net, to_bf16({kept})));
  }
}

// Operations without weights promote to fp32, as always under autocast.
TEST(KeepFp32OfNetworks, UnderAutocastTheLayersAfterAKeptBlockAreIn16Bits) {
  const auto layers = [](std::vector<ForwardOp> ops, const std::string& kept) {
    std::erase_if(ops, [&](const ForwardOp& op) {
      return !has_weight_of(op, kept) &&
             (!is_other_layer(op, kept) || op.name.ends_with("_norm"));
    });
    return ops;
  };
  for (const Case& net : networks()) {
    const auto to_amp = [](const std::vector<std::string>& kept) {
      return [kept](Learner& learn) { learn.to_amp({.keep_fp32 = kept}); };
    };
    const std::string kept = module_at(0.5, net.make());
    const auto plain = layers(ops_of(net, to_amp({})), kept);
    const auto mixed = layers(ops_of(net, to_amp({kept})), kept);
    expect_kept(net, kept, plain, mixed);
  }
}

}  // namespace
}  // namespace tern::vision_keep_fp32_test
