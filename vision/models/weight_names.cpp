#include "tern/vision/models/weight_names.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace tern {

namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

// Rules for renaming weights: applies the first of `starts` that a name begins
// with, then the first of `parts` that occurs in the result. A name that begins
// with none of `starts` is unchanged.
struct Renaming {
  Texts starts, parts;

  std::string operator()(const std::string& name) const {
    for (const auto& [start, new_start] : starts) {
      if (!name.starts_with(start)) continue;
      std::string renamed = new_start + name.substr(start.size());
      for (const auto& [part, new_part] : parts) {
        const size_t at = renamed.find(part);
        if (at == renamed.npos) continue;
        return renamed.replace(at, part.size(), new_part);
      }
      return renamed;
    }
    return name;
  }
};

constexpr int kStages = 4;

Renaming convnext() {
  Renaming names{
      {{"stem.", "features.0."},
       {"head.norm.", "classifier.0."},
       {"head.fc.", "classifier.2."}},
      {{".gamma", ".layer_scale"},
       {".conv_dw.", ".block.0."},
       {".norm.", ".block.2."},
       {".mlp.fc1.", ".block.3."},
       {".mlp.fc2.", ".block.5."}}};
  for (int i = 0; i < kStages; ++i) {
    names.starts.emplace_back(
        fmt::format("stages.{}.downsample.", i),
        fmt::format("features.{}.", 2 * i));
    names.starts.emplace_back(
        fmt::format("stages.{}.blocks.", i),
        fmt::format("features.{}.", 2 * i + 1));
  }
  return names;
}

Renaming densenet() {
  return {
      {{"features.", "features."}},
      {{".norm.1.", ".norm1."},
       {".norm.2.", ".norm2."},
       {".conv.1.", ".conv1."},
       {".conv.2.", ".conv2."}}};
}

Renaming regnet() {
  constexpr int kMostBlocks = 30;
  Renaming names{
      {{"stem.conv.", "stem.0."}, {"stem.bn.", "stem.1."}, {"head.fc.", "fc."}},
      {{".conv1.conv.", ".f.a.0."},
       {".conv1.bn.", ".f.a.1."},
       {".conv2.conv.", ".f.b.0."},
       {".conv2.bn.", ".f.b.1."},
       {".se.", ".f.se."},
       {".conv3.conv.", ".f.c.0."},
       {".conv3.bn.", ".f.c.1."},
       {".downsample.conv.", ".proj.0."},
       {".downsample.bn.", ".proj.1."}}};
  for (int i = 1; i <= kStages; ++i) {
    for (int j = 0; j < kMostBlocks; ++j) {
      names.starts.emplace_back(
          fmt::format("s{}.b{}.", i, j + 1),
          fmt::format("trunk_output.block{}.block{}-{}.", i, i, j));
    }
  }
  return names;
}

Renaming swin(const std::set<std::string>& names) {
  // The Swin authors' code and early timm versions have the downsampling at the
  // end of a stage instead of at the beginning of the next stage.
  const int shift = names.contains("layers.0.downsample.norm.weight") ? 1 : 0;
  Renaming renaming{
      {{"patch_embed.proj.", "features.0.0."},
       {"patch_embed.norm.", "features.0.2."},
       {"head.fc.", "head."}},
      {{".mlp.fc1.", ".mlp.0."}, {".mlp.fc2.", ".mlp.3."}}};
  for (int i = 0; i < kStages; ++i) {
    renaming.starts.emplace_back(
        fmt::format("layers.{}.blocks.", i),
        fmt::format("features.{}.", 2 * i + 1));
    renaming.starts.emplace_back(
        fmt::format("layers.{}.downsample.", i),
        fmt::format("features.{}.", 2 * (i + shift)));
  }
  return renaming;
}

Renaming vit() {
  return {
      {{"cls_token", "class_token"},
       {"pos_embed", "encoder.pos_embedding"},
       {"patch_embed.proj.", "conv_proj."},
       {"blocks.", "encoder.layers.encoder_layer_"},
       {"encoder.layers.", "encoder.layers."},
       {"norm.", "encoder.ln."},
       {"head.", "heads.head."}},
      {{".norm1.", ".ln_1."},
       {".attn.qkv.", ".self_attention.in_proj_"},
       {".attn.proj.", ".self_attention.out_proj."},
       {".norm2.", ".ln_2."},
       {".mlp.fc1.", ".mlp.0."},
       {".mlp.fc2.", ".mlp.3."},
       {".mlp.linear_1.", ".mlp.0."},
       {".mlp.linear_2.", ".mlp.3."}}};
}

// Returns stage and block numbers, such as (1, 0) for "blocks.1.0.bn1.weight".
std::set<std::pair<int, int>> mobile_blocks(
    const std::set<std::string>& names) {
  std::set<std::pair<int, int>> blocks;
  const std::string start = "blocks.";
  for (const std::string& name : names) {
    if (!name.starts_with(start)) continue;
    const char* const end = name.data() + name.size();
    int stage = 0, block = 0;
    const char* at =
        std::from_chars(name.data() + start.size(), end, stage).ptr;
    if (at == end || *at != '.') continue;
    at = std::from_chars(at + 1, end, block).ptr;
    if (at != end && *at == '.') blocks.emplace(stage, block);
  }
  return blocks;
}

// Networks that timm builds from the same kind of blocks.
enum class Mobile { v2, v3, efficientnet };

Renaming mobile(Mobile kind, const std::set<std::string>& names) {
  const bool is_v2 = kind == Mobile::v2, is_v3 = kind == Mobile::v3;
  Renaming renaming;
  const auto add = [&](const std::string& from, const std::string& to) {
    renaming.starts.emplace_back(from + ".", to + ".");
  };
  const auto add_pair = [&](const std::string& block,
                            const std::string& conv,
                            const std::string& norm,
                            const std::string& to) {
    add(block + conv, to + ".0");
    add(block + norm, to + ".1");
  };
  int number = 0, stages = 0;
  for (const auto& [stage, block] : mobile_blocks(names)) {
    const std::string from = fmt::format("blocks.{}.{}.", stage, block);
    stages = stage + 1;
    const std::string features =
        is_v2 || is_v3 ? fmt::format("features.{}", ++number)
                       : fmt::format("features.{}.{}", stages, block);
    if (names.contains(from + "conv.weight")) {
      add_pair(from, "conv", "bn1", features);
      continue;
    }
    const std::string to = features + (is_v2 ? ".conv." : ".block.");
    const bool is_wide = names.contains(from + "conv_pwl.weight");
    int part = 0;
    if (is_wide) add_pair(from, "conv_pw", "bn1", to + "0"), ++part;
    add_pair(
        from,
        "conv_dw",
        is_wide ? "bn2" : "bn1",
        to + std::to_string(part++));
    if (names.contains(from + "se.conv_reduce.weight")) {
      add(from + "se.conv_reduce", fmt::format("{}{}.fc1", to, part));
      add(from + "se.conv_expand", fmt::format("{}{}.fc2", to, part++));
    }
    const std::string last = is_wide ? "conv_pwl" : "conv_pw";
    const std::string norm = is_wide ? "bn3" : "bn2";
    if (is_v2) {
      add(from + last, to + std::to_string(part));
      add(from + norm, to + std::to_string(part + 1));
    } else {
      add_pair(from, last, norm, to + std::to_string(part));
    }
  }
  add_pair("", "conv_stem", "bn1", "features.0");
  if (is_v3) {
    add("conv_head", "classifier.0");
    add("classifier", "classifier.3");
  } else {
    const int last = 1 + (is_v2 ? number : stages);
    add_pair("", "conv_head", "bn2", fmt::format("features.{}", last));
    add("classifier", "classifier.1");
  }
  return renaming;
}

}  // namespace

std::vector<std::string> torchvision_names(
    const std::vector<std::string>& names,
    const std::vector<std::string>& wanted) {
  const std::set<std::string> given(names.begin(), names.end());
  const std::set<std::string> targets(wanted.begin(), wanted.end());
  std::vector<std::string> best;
  int64_t most = -1;
  // The first Renaming leaves all names unchanged.
  for (const Renaming& renaming :
       {Renaming{},
        convnext(),
        densenet(),
        regnet(),
        swin(given),
        vit(),
        mobile(Mobile::v2, given),
        mobile(Mobile::v3, given),
        mobile(Mobile::efficientnet, given)}) {
    std::vector<std::string> renamed;
    int64_t hits = 0;
    for (const std::string& name : names) {
      renamed.push_back(targets.contains(name) ? name : renaming(name));
      hits += targets.count(renamed.back());
    }
    if (hits <= most) continue;
    most = hits;
    best = std::move(renamed);
  }
  return best;
}

}  // namespace tern
