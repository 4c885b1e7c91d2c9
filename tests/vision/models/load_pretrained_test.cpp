// Pretrained weights by name, and files from timm and torchvision.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/http_server.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/models/transformers/attention.h"
#include "tern/vision/models/weight_names.h"
#include "tern/vision/vision_learner.h"

namespace tern::load_pretrained_test {
namespace {

namespace fs = std::filesystem;

constexpr ViTShape kSmallViT{.patch = 8, .width = 16, .depth = 7, .heads = 2};
ViT vit(const ViTOptions& options) {
  return ViT(kSmallViT, options);
}
TimmViT timm_vit(const ViTOptions& options) {
  return TimmViT(kSmallViT, options);
}
Swin swin(const SwinOptions& options) {
  return Swin(SwinShape{8, {1, 1, 1, 1}, {1, 1, 2, 2}}, options);
}
ConvNeXt convnext(const ConvNeXtOptions& options) {
  return ConvNeXt(ConvNeXtShape{{8, 8, 8, 8}, {1, 1, 1, 1}, 0}, options);
}

// ---- Which weights ----

TEST(Pretrained, IsAFlagOrAFile) {
  const auto is = [](const Pretrained& weights, bool any, bool published) {
    EXPECT_EQ(bool{weights}, any);
    EXPECT_EQ(weights.is_published(), published);
    return weights.file();
  };
  is({}, false, false);
  is(false, false, false);
  is(true, true, true);
  is("", false, false);
  EXPECT_EQ(is("a.pth", true, false), "a.pth");
  EXPECT_EQ(is(std::string("a.pth"), true, false), "a.pth");
  EXPECT_EQ(is(fs::path("a.pth"), true, false), "a.pth");
}

TEST(PublishedWeights, AreListedForEachNetworkWithTheirHash) {
  for (const std::string& name : networks_with_weights()) {
    const PublishedWeights weights = VisionArch(name).published();
    EXPECT_TRUE(weights.url.starts_with("https://")) << name;
    EXPECT_EQ(sha256_in_name(weights.file_name()).size(), 8u) << name;
  }
  EXPECT_EQ(
      VisionArch("resnet18").published().url,
      "https://download.pytorch.org/models/resnet18-f37072fd.pth");
  expect_error<c10::ValueError>(
      [] { VisionArch("xresnet18").published(); },
      {"no pretrained weights for xresnet18",
       "resnet18, resnet34",
       ".pretrained = \"weights.pth\""});
}

DataBunch pictures(int64_t size) {
  torch::manual_seed(3);
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{torch::randint(256, {4, size, size, 3}, torch::kByte)},
      Tensors{torch::arange(4) % 2});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  data.classes = {"left", "right"};
  return data;
}

TEST(VisionLearner, DownloadsWeightsByName) {
  const TempFolder temp;
  torch::manual_seed(1);
  const Model theirs = vit({.num_classes = 7});
  save_pth(temp / "vit.pth", theirs.state_dict());
  const auto bytes = read_file(temp / "vit.pth");
  const std::string body(bytes.begin(), bytes.end());
  HttpServer server([&](const HttpServer::Request& request) {
    return HttpServer::range(body, request.offset);
  });
  const std::string hash = sha256(bytes);
  const VisionArch arch(
      "small_vit",
      [](int64_t in_channels) {
        return VisionBody(
            vit({.num_classes = 0, .in_channels = in_channels}).ptr());
      },
      "encoder.layers.encoder_layer_6",
      "heads.",
      PublishedWeights{server.url("/vit-" + hash.substr(0, 8) + ".pth")});
  const char* const set = std::getenv("TERN_CACHE");
  const auto before = set ? std::optional<std::string>(set) : std::nullopt;
  ::setenv("TERN_CACHE", temp.path().c_str(), 1);
  for (int i = 0; i < 2; ++i) {
    auto learn = vision_learner(
        pictures(32),
        arch,
        {.pretrained = true, .learner = {.sink = silent()}});
    EXPECT_TRUE(torch::equal(
        learn.state_dict()["body.conv_proj.weight"],
        theirs.state_dict()["conv_proj.weight"]));
    for (const ModelTensor& item : learn.model().parameters()) {
      if (item.layer != LayerKind::other) continue;  // BatchNorm keeps training
      EXPECT_EQ(item.tensor.requires_grad(), item.name.starts_with("head."));
    }
    // Normalized with the statistics of ImageNet.
    EXPECT_EQ(learn.data().batch_transforms.size(), 1u);
  }
  if (before) {
    ::setenv("TERN_CACHE", before->c_str(), 1);
  } else {
    ::unsetenv("TERN_CACHE");
  }
  EXPECT_EQ(server.requests().size(), 1u);
  EXPECT_TRUE(
      fs::exists(temp / ("weights/vit-" + hash.substr(0, 8) + ".pth.sha256")));
}

TEST(VisionLearner, NamesTheFileMissingInTheWeightsFolder) {
  const TempFolder temp;
  ::setenv("TERN_WEIGHTS", temp.path().c_str(), 1);
  expect_error<DataError>(
      [] {
        vision_learner(
            pictures(32),
            "mobilenet_v3_small",
            {.pretrained = true, .learner = {.sink = silent()}});
      },
      {"mobilenet_v3_small-047dcff4.pth",
       "there is no such file",
       "Download https://download.pytorch.org/models/mobilenet_v3_small"});
  ::unsetenv("TERN_WEIGHTS");
}

// ---- Names in the files ----

// Saves the weights with names changed by `rename`.
template <class Rename>
fs::path saved(const TempFolder& temp, const Model& net, Rename rename) {
  StateDict state;
  for (const auto& item : net.state_dict()) {
    const auto [name, tensor] = rename(item.key(), item.value());
    if (!name.empty()) state.insert(name, tensor);
  }
  save_safetensors(temp / "weights.safetensors", state);
  return temp / "weights.safetensors";
}

bool replaced(std::string& text, const char* from, const char* to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, std::string(from).size(), to);
  return true;
}

TEST(LoadPretrained, ReadsAViTFromTimm) {
  const TempFolder temp;
  torch::manual_seed(1);
  TimmViT theirs = timm_vit({.num_classes = 3, .image_size = 32});
  for (torch::Tensor& weight : theirs->parameters()) {
    torch::NoGradGuard no_grad;
    weight.normal_(0, 0.1);
  }
  save_safetensors(temp / "timm.safetensors", Model(theirs).state_dict());
  ViT ours = vit({.num_classes = 3, .image_size = 32});
  const VisionArch arch = vit;
  const LoadReport report =
      arch.load_pretrained(Model(ours), temp / "timm.safetensors");
  EXPECT_TRUE(report.is_complete());
  EXPECT_EQ(report.skipped, std::vector<std::string>{});
  const torch::NoGradGuard no_grad;
  const auto x = torch::rand({2, 3, 32, 32});
  theirs->eval(), ours->eval();
  EXPECT_TRUE(
      torch::allclose(ours->forward(x), theirs->forward(x), 1e-5, 1e-5));

  const VisionBody body = arch.make_body(3);
  EXPECT_EQ(
      arch.load_pretrained(body, temp / "timm.safetensors").skipped,
      (std::vector<std::string>{"head.weight", "head.bias"}));
}

TEST(LoadPretrained, InterpolatesPositionsToTheImageSize) {
  const TempFolder temp;
  torch::manual_seed(1);
  for (const bool is_timms : {false, true}) {
    const Model theirs = is_timms ? Model(timm_vit({.image_size = 64}))
                                  : Model(vit({.image_size = 64}));
    const Model ours = is_timms ? Model(timm_vit({.image_size = 40}))
                                : Model(vit({.image_size = 40}));
    save_safetensors(temp / "vit.safetensors", theirs.state_dict());
    const VisionArch arch = is_timms ? VisionArch(timm_vit) : VisionArch(vit);
    arch.load_pretrained(ours, temp / "vit.safetensors");
    const char* name = is_timms ? "pos_embed" : "encoder.pos_embedding";
    EXPECT_TRUE(torch::equal(
        ours.state_dict()[name],
        resize_positions(theirs.state_dict()[name], 5, 5)));
  }
}

TEST(LoadPretrained, ReadsAnOldViTFromTorchvision) {
  const TempFolder temp;
  torch::manual_seed(1);
  const Model theirs = vit({.num_classes = 3});
  const fs::path file = saved(temp, theirs, [](std::string name, auto tensor) {
    replaced(name, ".mlp.0.", ".mlp.linear_1.");
    replaced(name, ".mlp.3.", ".mlp.linear_2.");
    return std::pair(name, tensor);
  });
  const Model ours = vit({.num_classes = 3});
  VisionArch(vit).load_pretrained(ours, file);
  const char* name = "encoder.layers.encoder_layer_1.mlp.3.weight";
  EXPECT_TRUE(torch::equal(ours.state_dict()[name], theirs.state_dict()[name]));
}

TEST(LoadPretrained, ReadsASwinFromTimmAndFromThePapersRepository) {
  const TempFolder temp;
  for (const int shift : {0, 1}) {  // the repository ends a stage by merging
    torch::manual_seed(1);
    const Model theirs = swin({.num_classes = 3});
    const fs::path file = saved(temp, theirs, [&](std::string name, auto t) {
      for (int i = 1; i < 8; ++i) {
        const int stage = i / 2 - (i % 2 == 0 ? shift : 0);
        const std::string to = fmt::format(
            "layers.{}.{}.",
            stage,
            i % 2 == 0 ? "downsample" : "blocks");
        replaced(name, fmt::format("features.{}.", i).c_str(), to.c_str());
      }
      replaced(name, "features.0.0.", "patch_embed.proj.");
      replaced(name, "features.0.2.", "patch_embed.norm.");
      replaced(name, ".mlp.0.", ".mlp.fc1.");
      replaced(name, ".mlp.3.", ".mlp.fc2.");
      if (shift == 0) replaced(name, "head.", "head.fc.");
      if (name.ends_with("relative_position_index")) {
        if (shift == 0) return std::pair(std::string(), t);
        t = t.view({49, 49});
      }
      return std::pair(name, t);
    });
    const Model ours = swin({.num_classes = 3});
    const LoadReport report = VisionArch(swin).load_pretrained(ours, file);
    EXPECT_TRUE(report.is_complete());
    for (const auto& item : theirs.state_dict()) {
      EXPECT_TRUE(torch::equal(ours.state_dict()[item.key()], item.value()))
          << item.key();
    }
  }
}

TEST(LoadPretrained, ReadsAConvNeXtFromTimm) {
  const TempFolder temp;
  torch::manual_seed(1);
  const Model theirs = convnext({.num_classes = 3});
  const fs::path file = saved(temp, theirs, [](std::string name, auto tensor) {
    for (int i = 1; i < 8; ++i) {
      const std::string to = fmt::format(
          "stages.{}.{}.",
          i / 2,
          i % 2 == 0 ? "downsample" : "blocks");
      replaced(name, fmt::format("features.{}.", i).c_str(), to.c_str());
    }
    replaced(name, "features.0.", "stem.");
    replaced(name, "classifier.0.", "head.norm.");
    replaced(name, "classifier.2.", "head.fc.");
    replaced(name, ".block.0.", ".conv_dw.");
    replaced(name, ".block.2.", ".norm.");
    replaced(name, ".block.3.", ".mlp.fc1.");
    replaced(name, ".block.5.", ".mlp.fc2.");
    const bool is_scale = replaced(name, ".layer_scale", ".gamma");
    return std::pair(name, is_scale ? tensor.flatten() : tensor);
  });
  const VisionBody body = VisionArch(convnext).make_body(3);
  const LoadReport report = VisionArch(convnext).load_pretrained(body, file);
  EXPECT_EQ(report.skipped.size(), 4u) << report.to_string();
  EXPECT_NE(report.to_string().find("4 skipped ("), std::string::npos);
  EXPECT_TRUE(torch::equal(
      body.module->named_parameters()["features.5.0.block.0.weight"],
      theirs.state_dict()["features.5.0.block.0.weight"]));
}

TEST(LoadPretrained, ErrorForAHeadOfADifferentSizeNamesTheRemedy) {
  const TempFolder temp;
  save_safetensors(
      temp / "a.safetensors",
      Model(swin({.num_classes = 1000})).state_dict());
  const Model ours = swin({.num_classes = 10});
  const StateDict now = ours.state_dict();
  const torch::Tensor before = now["features.0.0.weight"].clone();
  expect_error<c10::ValueError>(
      [&] { VisionArch(swin).load_pretrained(ours, temp / "a.safetensors"); },
      {"'head.weight' is [1000, 64] Float; expected [10, 64] Float",
       "Its classifier has a different size",
       ".num_classes = 0"});
  EXPECT_TRUE(torch::equal(now["features.0.0.weight"], before));
}

TEST(LoadPretrained, AdaptsAViTToAnyNumberOfChannels) {
  const TempFolder temp;
  const Model theirs = vit({});
  save_safetensors(temp / "a.safetensors", theirs.state_dict());
  const VisionBody body = VisionArch(vit).make_body(1);
  VisionArch(vit).load_pretrained(body, temp / "a.safetensors");
  EXPECT_TRUE(torch::allclose(
      body.module->named_parameters()["conv_proj.weight"],
      theirs.state_dict()["conv_proj.weight"].sum(1, true)));
}

TEST(TorchvisionNames, AreFoundForMobileNetBlocks) {
  const std::vector<std::string> timms = {
      "conv_stem.weight",
      "bn1.running_var",
      "blocks.0.0.conv_dw.weight",
      "blocks.0.0.bn1.weight",
      "blocks.0.0.conv_pw.weight",
      "blocks.0.0.bn2.bias",
      "blocks.1.0.conv_pw.weight",
      "blocks.1.0.bn1.weight",
      "blocks.1.0.conv_dw.weight",
      "blocks.1.0.bn2.weight",
      "blocks.1.0.se.conv_reduce.weight",
      "blocks.1.0.se.conv_expand.bias",
      "blocks.1.0.conv_pwl.weight",
      "blocks.1.0.bn3.weight",
      "blocks.2.0.conv.weight",
      "blocks.2.0.bn1.weight",
      "conv_head.weight",
      "classifier.weight"};
  const std::vector<std::string> torchvisions = {
      "features.0.0.weight",
      "features.0.1.running_var",
      "features.1.block.0.0.weight",
      "features.1.block.0.1.weight",
      "features.1.block.1.0.weight",
      "features.1.block.1.1.bias",
      "features.2.block.0.0.weight",
      "features.2.block.0.1.weight",
      "features.2.block.1.0.weight",
      "features.2.block.1.1.weight",
      "features.2.block.2.fc1.weight",
      "features.2.block.2.fc2.bias",
      "features.2.block.3.0.weight",
      "features.2.block.3.1.weight",
      "features.3.0.weight",
      "features.3.1.weight",
      "classifier.0.weight",
      "classifier.3.weight"};
  EXPECT_EQ(torchvision_names(timms, torchvisions), torchvisions);
  EXPECT_EQ(torchvision_names(torchvisions, torchvisions), torchvisions);
  EXPECT_EQ(
      torchvision_names({"a", "b"}, torchvisions),
      (std::vector<std::string>{"a", "b"}));
}

// Returns the results of published_names.py.
nlohmann::json published_names() {
  const char* const file = std::getenv("TERN_PUBLISHED_NAMES");
  return file ? nlohmann::json::parse(std::ifstream(file)) : nlohmann::json();
}

TEST(PublishedWeights, UrlsMatchTorchvisionAndTimm) {
  const auto urls = published_names()["urls"];
  if (urls.empty()) GTEST_SKIP() << "needs a Python with torchvision";
  for (const std::string& name : networks_with_weights()) {
    if (name == "vit_s_16" && !urls.contains(name)) continue;  // from timm
    EXPECT_EQ(VisionArch(name).published().url, urls[name].get<std::string>());
  }
}

// Compares the names of timm and torchvision for the same networks.
TEST(TorchvisionNames, AreFoundForEachNetworkOfTimm) {
  const auto networks = published_names()["networks"];
  if (networks.empty()) GTEST_SKIP() << "needs a Python with timm";
  for (const auto& network : networks.items()) {
    const auto names = [&](const char* whose) {
      std::vector<std::string> all;
      for (const auto& item : network.value()[whose].items()) {
        all.push_back(item.key());
      }
      return all;
    };
    const auto timms = names("timm");
    const auto found = torchvision_names(timms, names("torchvision"));
    for (size_t i = 0; i < timms.size(); ++i) {
      EXPECT_EQ(
          network.value()["timm"][timms[i]],
          network.value()["torchvision"].value(found[i], nlohmann::json()))
          << network.key() << " " << timms[i] << " -> " << found[i];
    }
  }
}

}  // namespace
}  // namespace tern::load_pretrained_test
