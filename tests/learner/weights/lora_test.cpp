#include "tern/learner/weights/lora.h"

#include <functional>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/amp/activation_checkpoint.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/distributed/data_parallel.h"
#include "tern/learner/export/architecture.h"
#include "tern/learner/export/export_model.h"
#include "tern/learner/export/torchscript.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/recorder.h"
#include "tern/learner/report/model_summary.h"
#include "tern/learner/report/report.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::lora_test {
namespace {

namespace nn = torch::nn;

struct NetImpl : nn::Module, HasArchitecture {
  explicit NetImpl(int64_t width = 8)
      : conv(nn::Conv2dOptions(3, width, 3).stride(2).padding(1)),
        norm(width),
        wide(width, 4 * width),
        fc(4 * width, 2) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("wide", wide);
    register_module("fc", fc);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = norm->forward(conv->forward(x)).relu();
    return fc->forward(wide->forward(y.mean({2, 3})).relu());
  }
  Architecture architecture() const override { return {"lora_net"}; }

  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  nn::Linear wide, fc;
};
TORCH_MODULE(Net);

torch::Tensor tensor(const Model& model, const std::string& name) {
  for (const ModelTensor& item : model.parameters()) {
    if (item.name == name) return item.tensor;
  }
  return {};
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const ModelTensor& item : model.state()) names.push_back(item.name);
  return names;
}

// As after some training, B is not 0.
void perturb(const Model& model) {
  const torch::NoGradGuard no_grad;
  for (const ModelTensor& item : model.parameters()) {
    torch::Tensor t = item.tensor;
    if (item.name.ends_with("lora_B.weight")) t.normal_(0, 0.3);
  }
}

DataBunch dark_and_light() {
  torch::manual_seed(3);
  const torch::Tensor labels = torch::arange(16) % 2;
  const torch::Tensor images =
      torch::rand({16, 3, 8, 8}) + labels.view({16, 1, 1, 1});
  const auto dataset =
      std::make_shared<TensorDataset>(Tensors{images}, Tensors{labels});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 8, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"dark", "light"};
  return data;
}

Learner learner(const Model& model, const TempFolder& temp) {
  return {
      dark_and_light(),
      model,
      {.loss = nn::CrossEntropyLoss(),
       .path = temp.path(),
       .seed = 5,
       .sink = silent()}};
}

TEST(Lora, DoesNotChangeOutputsAtFirst) {
  Net net;
  net->eval();
  const auto x = torch::rand({2, 3, 8, 8});
  const torch::Tensor before = net->forward(x);
  EXPECT_TRUE(torch::equal(add_lora(net).forward({x})[0], before));
}

TEST(Lora, TrainsOnlyTheAdapters) {
  const TempFolder temp;
  torch::manual_seed(1);
  Net net;
  StateDict before;
  for (const auto& item : Model(net).state_dict()) {
    before.insert(item.key(), item.value().clone());
  }
  auto learn = learner(
      add_lora(net, {.rank = 2, .targets = {"conv", "wide"}, .train = {"fc"}}),
      temp);
  EXPECT_EQ(
      names_of(learn.model()),
      (std::vector<std::string>{
          "conv.lora_A.weight",
          "conv.lora_B.weight",
          "wide.lora_A.weight",
          "wide.lora_B.weight",
          "fc.weight",
          "fc.bias"}));
  learn.fit(6, 3e-2);
  const auto losses = learn.recorder().losses();
  EXPECT_LT(losses.back(), losses.front());
  for (const auto& item : Model(net).state_dict()) {
    EXPECT_EQ(
        torch::equal(item.value(), before[item.key()]),
        !item.key().starts_with("fc."))
        << item.key();
  }

  learn.save("adapters");
  const StateDict saved = load_weights(temp / "models/adapters.safetensors");
  EXPECT_EQ(saved.size(), 6u);
  EXPECT_GT(saved["conv.lora_B.weight"].abs().max().item<float>(), 0);
}

TEST(Lora, IsRestoredFromASavedFile) {
  const TempFolder temp;
  torch::manual_seed(1);
  Net net;
  auto learn = learner(add_lora(net, {.rank = 2}), temp);
  learn.fit(2, 1e-2);
  learn.save("adapters");
  const auto x = torch::rand({2, 3, 8, 8});
  const auto output = [&] {
    learn.model().eval();
    return learn.model().forward({x})[0].detach();
  };
  const torch::Tensor expected = output();
  learn.fit(1, 1e-1);
  EXPECT_FALSE(torch::allclose(output(), expected));
  learn.load("adapters");
  EXPECT_TRUE(torch::equal(output(), expected));
}

struct Precision {
  std::string name;
  std::function<void(Learner&)> set;
  torch::Dtype weights;
};

class LoraPrecision : public testing::TestWithParam<Precision> {
 protected:
  Learner trained(const Model& model, const TempFolder& temp) {
    Learner learn = learner(model, temp);
    GetParam().set(learn);
    learn.fit(1, 1e-2);
    return learn;
  }
};

// The size of master weights, gradients and moments.
int64_t optimizer_bytes(Learner& learn) {
  Tensors all;
  for (const auto& item : capture_checkpoint(learn).optimizer) {
    all.push_back(item.value());
  }
  for (const ModelTensor& item : Model(learn.model().module()).parameters()) {
    if (item.tensor.grad().defined()) all.push_back(item.tensor.grad());
  }
  for (const ModelTensor& item : learn.model().parameters()) {
    if (item.tensor.grad().defined()) all.push_back(item.tensor.grad());
  }
  if (const auto weights = master_weights(learn)) {
    all.insert(all.end(), weights->masters().begin(), weights->masters().end());
  }
  int64_t bytes = 0;
  for (const torch::Tensor& t : all) bytes += static_cast<int64_t>(t.nbytes());
  return bytes;
}

TEST_P(LoraPrecision, StepsAndSavesOnlyTheAdapters) {
  const TempFolder temp;
  Net net(64);
  Learner full = trained(Net(64), temp);
  Learner learn = trained(
      add_lora(net, {.rank = 1, .targets = {"wide"}, .train = {"fc"}}),
      temp);
  EXPECT_EQ(net->wide->weight.scalar_type(), GetParam().weights);
  EXPECT_EQ(learn.optimizer().state().size(), 4u);
  if (const auto weights = master_weights(learn)) {
    EXPECT_EQ(weights->masters().size(), 4u);
  }
  EXPECT_LE(20 * optimizer_bytes(learn), optimizer_bytes(full));
  EXPECT_EQ(
      capture_checkpoint(learn).model.keys(),
      (std::vector<std::string>{
          "wide.lora_A.weight",
          "wide.lora_B.weight",
          "fc.weight",
          "fc.bias"}));
}

TEST_P(LoraPrecision, ExportsMergedWeightsInFp32) {
  const TempFolder temp;
  Net net(64);
  Learner learn = trained(add_lora(net, {.targets = {"wide"}}), temp);
  const torch::Tensor base = net->wide->weight.clone();
  learn.export_model(temp / "net.safetensors");
  const auto x = torch::rand({2, 3, 8, 8});
  learn.export_torchscript(temp / "net.pt", {x});
  // The rounded base weight plus the adapters' master weights.
  const StateDict adapters = capture_checkpoint(learn).model;
  const torch::Tensor expected =
      base.to(torch::kFloat) +
      adapters["wide.lora_B.weight"].mm(adapters["wide.lora_A.weight"]);
  const StateDict state = load_weights(temp / "net.safetensors");
  EXPECT_EQ(state.size(), Model(net).state_dict().size());
  EXPECT_EQ(state["wide.weight"].scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::allclose(state["wide.weight"], expected, 1e-6, 1e-7));
  EXPECT_FALSE(torch::equal(state["wide.weight"], base.to(torch::kFloat)));
  Net plain(64);
  Model again(plain);
  again.load_state_dict(state);
  plain->eval();
  EXPECT_TRUE(torch::allclose(
      load_torchscript_trusted(temp / "net.pt").forward({x})[0],
      plain->forward(x),
      1e-5,
      1e-6));
  // Export does not affect training.
  EXPECT_TRUE(torch::equal(net->wide->weight, base));
  learn.fit(1);
}

INSTANTIATE_TEST_SUITE_P(
    ,
    LoraPrecision,
    testing::Values(
        Precision{
            "fp16",
            [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
            torch::kHalf},
        Precision{"bf16", [](Learner& l) { l.to_bf16(); }, torch::kBFloat16},
        Precision{"amp", [](Learner& l) { l.to_amp(); }, torch::kFloat}),
    [](const auto& info) { return info.param.name; });

TEST(Lora, IsMergedOnExport) {
  const TempFolder temp;
  torch::manual_seed(1);
  Net net;
  auto learn = learner(add_lora(net, {.rank = 2}), temp);
  perturb(learn.model());
  learn.model().eval();
  const auto x = torch::rand({2, 3, 8, 8});
  const torch::Tensor expected = learn.model().forward({x})[0].detach();
  const auto file = temp / "net.safetensors";
  learn.export_model(file, {.sha256_file = true});
  EXPECT_EQ(sum_beside(file), sha256_file(file));
  Net plain;
  Model again(plain);
  again.load_state_dict(load_weights(temp / "net.safetensors"));
  plain->eval();
  EXPECT_TRUE(torch::allclose(plain->forward(x), expected, 1e-5, 1e-6));

  export_torchscript(learn.model(), temp / "net.pt", {x});
  EXPECT_TRUE(torch::allclose(
      load_torchscript_trusted(temp / "net.pt").forward({x})[0],
      expected,
      1e-5,
      1e-6));
  // The Learner's own model keeps its adapters.
  EXPECT_TRUE(torch::equal(learn.model().forward({x})[0], expected));
  EXPECT_EQ(names_of(learn.model())[0], "conv.lora_A.weight");

  const Model merged = merge_lora(learn.model());
  EXPECT_EQ(merged.module(), net.ptr());
  EXPECT_TRUE(torch::allclose(net->forward(x), expected, 1e-5, 1e-6));
  EXPECT_TRUE(net->wide->weight.requires_grad());
}

TEST(Lora, TrainsTheLastLayerGroupInFull) {
  const TempFolder temp;
  Net net;
  auto learn = learner(net, temp);
  learn.split({"wide", "fc"}).freeze();
  add_lora(learn, {.rank = 2});
  EXPECT_EQ(parts_of(learn).groups.size(), 1);
  const std::vector<std::string> names = names_of(learn.model());
  EXPECT_EQ(names.size(), 6u);
  EXPECT_EQ(names.back(), "fc.bias");
  learn.fit(1);
  expect_error<c10::ValueError>(
      [&] { add_lora(learn); },
      {"[add_lora] the Learner has an optimizer", "before the first fit"});
}

TEST(Lora, MergingKeepsWhatWasFrozenByHandFrozen) {
  const TempFolder temp;
  Net net;
  net->wide->bias.requires_grad_(false);
  auto learn = learner(net, temp);
  learn.split({"wide", "fc"}).freeze();
  add_lora(learn, {.rank = 2});
  learn.fit(1);
  const Model merged = merge_lora(learn.model());
  for (const ModelTensor& item : merged.parameters()) {
    EXPECT_EQ(item.tensor.requires_grad(), item.name != "wide.bias")
        << item.name;
  }
  // A program that freezes everything by hand.
  Net whole;
  for (torch::Tensor& parameter : whole->parameters()) {
    parameter.requires_grad_(false);
  }
  auto other = learner(whole, temp);
  add_lora(other, {.rank = 2});
  EXPECT_FALSE(
      merge_lora(other.model()).parameters()[0].tensor.requires_grad());
}

TEST(Lora, InvalidOptionsLeaveTheLearnerAsItWas) {
  const TempFolder temp;
  Net net;
  auto learn = learner(net, temp);
  learn.split({"wide", "fc"}).freeze();
  expect_error<c10::ValueError>(
      [&] { add_lora(learn, {.rank = 0}); },
      {"[add_lora] rank is 0"});
  EXPECT_EQ(parts_of(learn).groups.size(), 3);
  EXPECT_FALSE(net->wide->weight.requires_grad());
  learn.unfreeze();
  EXPECT_TRUE(net->wide->weight.requires_grad());
}

nn::Sequential sequential() {
  torch::manual_seed(1);
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(3, 8, 3).stride(2)),
      nn::ReLU(),
      nn::AdaptiveAvgPool2d(1),
      nn::Flatten(),
      nn::Linear(8, 2));
}

TEST(Lora, IsCountedInSummaryAndReport) {
  const TempFolder temp;
  auto learn = learner(sequential(), temp);
  add_lora(learn, {.rank = 2, .targets = {"0"}, .train = {"4"}});
  const ModelSummary summary = learn.summary();
  const int64_t adapters = int64_t{2} * (3 * 9 + 8);
  EXPECT_EQ(summary.trainable, adapters + 18);
  EXPECT_EQ(summary.parameters, adapters + 18 + int64_t{8} * (3 * 9 + 1));
  EXPECT_EQ(summary.buffer_bytes, 0);
  EXPECT_EQ(summary.layers[0].output, (std::vector<int64_t>{8, 8, 3, 3}));
  EXPECT_EQ(summary.layers[0].trainable, 0);
  learn.fit(1);
  make_report(learn).save(temp / "report.html");
  const auto page = read_file(temp / "report.html");
  EXPECT_NE(
      std::string(page.begin(), page.end()).find("lora_A"),
      std::string::npos);
}

TEST(Lora, TrainsEquallyOnSeveralDevices) {
  const TempFolder temp;
  const std::vector<torch::Device> two = {torch::kCPU, torch::kCPU};
  std::vector<StateDict> learnt;
  for (const bool is_parallel : {false, true}) {
    nn::Sequential net = sequential();
    auto learn = learner(net, temp);
    add_lora(learn, {.rank = 2, .targets = {"0"}, .train = {"4"}});
    if (is_parallel) {
      learn.to_parallel(two);
      expect_error<c10::ValueError>(
          [&] { add_lora(parallel_model(sequential(), two)); },
          {"[add_lora] the model runs on several devices",
           "Call add_lora first"});
    }
    learn.fit(4, 3e-2);
    EXPECT_EQ(learn.summary().trainable, 2 * (3 * 9 + 8) + 18);
    learnt.push_back(learn.state_dict());
    ASSERT_EQ(learnt.back().keys(), learnt.front().keys());
    EXPECT_GT(learnt.back()["0.lora_B.weight"].abs().max().item<float>(), 0);
    for (const auto& item : learnt.front()) {
      EXPECT_TRUE(
          torch::allclose(learnt.back()[item.key()], item.value(), 1e-4, 1e-5))
          << item.key();
    }

    learn.model().eval();
    const auto x = torch::rand({4, 3, 8, 8});
    const torch::Tensor expected = learn.model().forward({x})[0].detach();
    learn.export_torchscript(temp / "net.pt", {x});
    EXPECT_TRUE(torch::allclose(
        load_torchscript_trusted(temp / "net.pt").forward({x})[0],
        expected,
        1e-5,
        1e-6));
    const Model merged = merge_lora(learn.model());
    EXPECT_EQ(names_of(merged)[0], "0.weight");
    EXPECT_TRUE(torch::allclose(net->forward(x), expected, 1e-5, 1e-6));
  }
}

/// Two layers with a shared weight.
struct TiedImpl : nn::Module {
  TiedImpl()
      : a(register_module(
            "a",
            nn::Linear(nn::LinearOptions(4, 4).bias(false)))),
        b(register_module(
            "b",
            nn::Linear(nn::LinearOptions(4, 4).bias(false)))),
        head(register_module("head", nn::Linear(4, 2))) {
    b->weight = a->weight;
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(b(a(x).relu())); }

  nn::Linear a, b, head;
};

TEST(Lora, LayersWithASharedWeightShareAnAdapterThatIsMergedOnce) {
  const torch::NoGradGuard no_grad;
  const auto net = std::make_shared<TiedImpl>();
  const torch::Tensor before = net->a->weight.clone();
  const Model lora = add_lora(net, {.rank = 2, .targets = {"a", "b"}});
  ASSERT_EQ(lora.parameters().size(), 2u);
  for (const ModelTensor& item : lora.parameters()) item.tensor.normal_();
  const torch::Tensor x = torch::randn({3, 4});
  const torch::Tensor expected = Model(lora).forward({x})[0];
  {
    const MergedLora merged(lora);
    EXPECT_TRUE(
        torch::allclose(Model(lora).forward({x})[0], expected, 1e-4, 1e-4));
  }
  EXPECT_TRUE(torch::equal(net->a->weight, before));
  EXPECT_TRUE(torch::equal(Model(lora).forward({x})[0], expected));
  Model merged = merge_lora(lora);
  EXPECT_TRUE(torch::allclose(merged.forward({x})[0], expected, 1e-4, 1e-4));
}

TEST(Lora, RejectsAWeightThatIsSharedWithALayerWithoutAnAdapter) {
  expect_error<c10::ValueError>(
      [] { add_lora(std::make_shared<TiedImpl>(), {.targets = {"a"}}); },
      {"\"a\" is a target and shares its weight with \"b\"", "Name both"});
  struct EmbeddingTied : nn::Module {
    EmbeddingTied() { head->weight = table->weight; }
    torch::Tensor forward(const torch::Tensor& x) {
      return head(body(table(x)));
    }
    nn::Embedding table = register_module("table", nn::Embedding(5, 4));
    nn::Linear body = register_module("body", nn::Linear(4, 4));
    nn::Linear head = register_module("head", nn::Linear(4, 5));
  };
  expect_error<c10::ValueError>(
      [] {
        add_lora(std::make_shared<EmbeddingTied>(), {.targets = {"head"}});
      },
      {"\"head\" is a target and shares its weight with \"table\""});
  // If it is not named as a target, it is left unchanged.
  const Model lora = add_lora(std::make_shared<EmbeddingTied>());
  ASSERT_EQ(lora.parameters().size(), 2u);
  EXPECT_EQ(lora.parameters()[0].name, "body.lora_A.weight");
}

// The second name is not a second layer.
TEST(Lora, SupportsAModuleWithTwoNames) {
  struct TwiceImpl : nn::Module {
    TwiceImpl() { register_module("again", layer); }
    torch::Tensor forward(const torch::Tensor& x) { return layer(layer(x)); }
    nn::Linear layer = register_module("layer", nn::Linear(4, 4));
  };
  const Model lora =
      add_lora(std::make_shared<TwiceImpl>(), {.targets = {"layer"}});
  EXPECT_EQ(lora.parameters().size(), 2u);
}

TEST(Lora, RejectsLayersInAnActivationCheckpoint) {
  const auto net = [] {
    return nn::Sequential(
        ActivationCheckpoint(nn::Sequential(nn::Linear(4, 4), nn::ReLU())),
        nn::Linear(4, 2));
  };
  expect_error<c10::ValueError>(
      [&] { add_lora(net()); },
      {"the layer \"0.0\" is in an ActivationCheckpoint",
       "`targets` outside it"});
  Model model = add_lora(net(), {.targets = {"1"}});
  model.forward({torch::rand({2, 4})})[0].sum().backward();
  EXPECT_TRUE(tensor(model, "1.lora_B.weight").grad().defined());
}

// In a grouped convolution, the product has the shape of the layer's weight.
TEST(Lora, CanBeMergedIntoAGroupedConvolution) {
  torch::manual_seed(0);
  nn::Conv2d conv(nn::Conv2dOptions(6, 9, 3).groups(3).padding(2).dilation(2));
  Model model = add_lora(conv, {.rank = 2, .alpha = 1});
  perturb(model);
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = tensor(model, ".lora_A.weight");
  const torch::Tensor b = tensor(model, ".lora_B.weight");
  ASSERT_EQ(a.sizes().vec(), (std::vector<int64_t>{2, 2, 3, 3}));
  ASSERT_EQ(b.sizes().vec(), (std::vector<int64_t>{9, 2, 1, 1}));
  const auto x = torch::randn({2, 6, 9, 9});
  torch::Tensor expected = conv->forward(x);
  for (int64_t i = 0; i < 3; ++i) {  // groups
    const torch::Tensor inner =
        torch::conv2d(x.narrow(1, 2 * i, 2), a, {}, 1, 2, 2);
    expected.narrow(1, 3 * i, 3) +=
        0.5 * torch::conv2d(inner, b.narrow(0, 3 * i, 3));
  }
  EXPECT_TRUE(torch::allclose(model.forward({x})[0], expected, 1e-5, 1e-5));
  merge_lora(model);
  EXPECT_TRUE(torch::allclose(conv->forward(x), expected, 1e-5, 1e-5));
}

TEST(Lora, RejectsInvalidOptions) {
  Net net;
  expect_error<c10::ValueError>(
      [&] { add_lora(net, {.rank = 0}); },
      {"[add_lora] rank is 0"});
  expect_error<c10::ValueError>(
      [&] { add_lora(net, {.targets = {"qkv"}}); },
      {"there is no module \"qkv\" of `targets`", "\"fc\""});
  expect_error<c10::ValueError>(
      [&] { add_lora(net, {.targets = {"norm"}}); },
      {"none of the targets \"norm\" is a linear, convolution or attention"});
  EXPECT_TRUE(net->wide->weight.requires_grad());
  const Model adapted = add_lora(net);
  expect_error<c10::ValueError>(
      [&] { add_lora(adapted); },
      {"has adapters already", "merge_lora"});
}

}  // namespace
}  // namespace tern::lora_test
