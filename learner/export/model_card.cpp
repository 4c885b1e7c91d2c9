#include "tern/learner/export/model_card.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <string_view>

#include <fmt/ranges.h>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/json.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/formats/text.h"
#include "tern/data/formats/weights/safetensors.h"
#include "tern/kernels/check.h"
#include "tern/learner/model.h"

namespace tern {

namespace {

constexpr const char* kCardVersion = "1";
constexpr const char* kChecksum = "tern.card";
// Prefix of custom strings' keys, so that they cannot collide with Tern's keys.
constexpr std::string_view kUserKeys = "tern.user.";
// Limit for these strings; readers accept headers of up to 16 MiB.
constexpr size_t kMaxUserBytes = size_t{8} << 20;

constexpr std::array<std::pair<const char*, Activation>, 5> kActivations = {{
    {"none", Activation::none},
    {"softmax", Activation::softmax},
    {"sigmoid", Activation::sigmoid},
    {"exp", Activation::exp},
    {"detections", Activation::detections},
}};

constexpr std::array<std::pair<const char*, TargetKind>, 6> kKinds = {{
    {"category", TargetKind::category},
    {"multi_category", TargetKind::multi_category},
    {"number", TargetKind::number},
    {"mask", TargetKind::mask},
    {"boxes", TargetKind::boxes},
    {"points", TargetKind::points},
}};

template <class Value, size_t count>
const char* name_of(
    const std::array<std::pair<const char*, Value>, count>& all,
    Value value) {
  using Item = std::pair<const char*, Value>;
  return std::ranges::find(all, value, &Item::second)->first;
}

template <class Value, size_t count>
Value value_of(
    const std::array<std::pair<const char*, Value>, count>& all,
    const std::string& name,
    const char* what,
    const std::string& path) {
  for (const auto& [known, value] : all) {
    if (name == known) return value;
  }
  throw DataError(
      path,
      fmt::format("has the unknown {} {}.", what, printable(name)));
}

// The checksum in files older than kSafetensorsHeaderChecksum: over all
// metadata except the two checksums.
std::string checksum(const std::map<std::string, std::string>& metadata) {
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.update(as_bytes(std::to_string(text.size()) + ":" + text));
  };
  for (const auto& [key, text] : metadata) {
    if (key == kChecksum || key == kSafetensorsChecksum) continue;
    add(key);
    add(text);
  }
  return hash.hex_digest();
}

void check_names(const std::vector<std::string>& classes) {
  for (const std::string& name : classes) {
    TERN_CHECK_VALUE(
        is_utf8(name),
        "[Learner::export_model] the class {} has a name that is not "
        "UTF-8; rename it in DataBunch::classes.",
        printable(name));
  }
}

void check_own_texts(const std::map<std::string, std::string>& own) {
  size_t bytes = 0;
  for (const auto& [name, text] : own) {
    TERN_CHECK_VALUE(
        !name.empty() && is_utf8(name) && is_utf8(text),
        "[Learner::export_model] ExportOptions::metadata has the name {} with "
        "a string of {} bytes, and one of the two is {}; expected a name that "
        "is not empty, and UTF-8 in both. Write bytes as hexadecimal digits.",
        printable(name),
        text.size(),
        name.empty() ? "empty" : "not UTF-8");
    bytes += json_quoted(name).size() + json_quoted(text).size();
  }
  TERN_CHECK_VALUE(
      bytes <= kMaxUserBytes,
      "[Learner::export_model] ExportOptions::metadata takes {} bytes as JSON; "
      "expected at most {}. Keep larger data in a separate file.",
      bytes,
      kMaxUserBytes);
}

std::string metrics_json(std::vector<MetricValue> metrics) {
  JsonFields fields;
  for (auto& [name, value] : metrics) fields.emplace_back(name, &value);
  return to_json(fields);
}

std::vector<MetricValue> parse_metrics(
    const std::string& text,
    const std::string& path) {
  JsonReader json(text, path);
  std::vector<MetricValue> metrics;
  std::string name;
  json.begin_object();
  while (json.next_key(name)) metrics.push_back({name, json.number()});
  json.end();
  return metrics;
}

std::vector<std::string> parse_names(
    const std::string& text,
    const std::string& path) {
  JsonReader json(text, path);
  std::vector<std::string> names;
  json.begin_array();
  while (json.next_element()) names.push_back(json.string());
  json.end();
  return names;
}

std::string names_json(const std::vector<std::string>& names) {
  return fmt::format(
      "[{}]",
      fmt::join(names | std::views::transform(json_quoted), ", "));
}

/// An output's description, as strings and numbers.
struct OutputFields {
  std::string kind, activation;
  std::vector<std::string> names;
  double threshold = 0.5;
  DetectionOptions detection = {};

  JsonFields fields() {
    return {
        {"kind", &kind},
        {"names", &names},
        {"threshold", &threshold},
        {"activation", &activation}};
  }
  /// Includes the fields of a detector, which earlier versions do not have.
  JsonFields all_fields() {
    JsonFields all = fields();
    all.insert(
        all.end(),
        {{"score_thresh", &detection.score_thresh},
         {"topk_candidates", &detection.topk_candidates},
         {"nms_thresh", &detection.nms_thresh},
         {"detections_per_img", &detection.detections_per_img},
         {"anchors_per_level", &detection.anchors_per_level},
         {"levels", &detection.levels}});
    return all;
  }
};

std::string outputs_json(const std::vector<OutputInfo>& outputs) {
  std::vector<std::string> texts;
  for (const OutputInfo& output : outputs) {
    check_names(output.names);
    OutputFields text{
        .kind = kind_name(output.kind),
        .activation =
            name_of(kActivations, output.activation.value_or(Activation::none)),
        .names = output.names,
        .threshold = output.threshold,
        .detection = output.detection};
    const bool is_detector = output.activation == Activation::detections;
    texts.push_back(to_json(is_detector ? text.all_fields() : text.fields()));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::vector<OutputInfo> parse_outputs(
    const std::string& text,
    const std::string& path) {
  JsonReader json(text, path);
  std::vector<OutputInfo> outputs;
  json.begin_array();
  while (json.next_element()) {
    OutputFields read;
    read_json(json, read.all_fields());
    outputs.push_back(
        {.kind = value_of(kKinds, read.kind, "kind of output", path),
         .names = std::move(read.names),
         .threshold = read.threshold,
         .activation =
             value_of(kActivations, read.activation, "activation", path),
         .detection = read.detection});
  }
  json.end();
  return outputs;
}

}  // namespace

std::optional<Architecture> architecture_of(const Model& model) {
  const auto* module =
      dynamic_cast<const HasArchitecture*>(model.module().get());
  if (module == nullptr) return std::nullopt;
  const Architecture architecture = module->architecture();
  if (architecture.name.empty()) return std::nullopt;
  return architecture;
}

const char* kind_name(TargetKind kind) {
  return name_of(kKinds, kind);
}

std::map<std::string, std::string> to_metadata(const ModelCard& card) {
  check_names(card.classes);
  check_own_texts(card.metadata);
  std::map<std::string, std::string> metadata = {
      {"format", "pt"},
      {"tern.model", kCardVersion},
      {"tern.architecture", card.architecture.name},
      {"tern.options", card.architecture.options},
      {"tern.classes", names_json(card.classes)},
      {"tern.activation", name_of(kActivations, card.activation)},
      {"tern.outputs", outputs_json(card.outputs)},
      {"tern.metrics", metrics_json(card.metrics)}};
  if (card.preprocessing) {
    metadata["tern.preprocessing"] = to_json(*card.preprocessing);
  }
  for (const auto& [name, text] : card.metadata) {
    metadata[std::string(kUserKeys) + name] = text;
  }
  return metadata;
}

ModelCard parse_model_card(
    const std::map<std::string, std::string>& metadata,
    const std::string& path) {
  const auto text = [&](const std::string& key) -> const std::string& {
    const auto at = metadata.find("tern." + key);
    if (at == metadata.end()) {
      throw DataError(
          path,
          fmt::format(
              "is not an exported model: its metadata has no tern.{}. Write "
              "one with Learner::export_model.",
              key));
    }
    return at->second;
  };
  if (text("model") != kCardVersion) {
    throw DataError(
        path,
        fmt::format(
            "is an exported model of version {}, but this program reads "
            "version {}; use the version of Tern that wrote it.",
            printable(text("model")),
            kCardVersion));
  }
  // The newer checksum is verified when the header is read.
  const bool is_checked = metadata.contains(kSafetensorsHeaderChecksum);
  if (!is_checked && !metadata.contains(kChecksum)) {
    throw DataError(
        path,
        "has no checksum of its metadata; expected a file as "
        "Learner::export_model writes it. Export it again.");
  }
  if (!is_checked && text("card") != checksum(metadata)) {
    throw DataError(
        path,
        "has metadata that were changed or damaged: their checksum does not "
        "match. Download or export it again.");
  }
  ModelCard card{
      .architecture = {text("architecture"), text("options")},
      .classes = parse_names(text("classes"), path),
      .activation =
          value_of(kActivations, text("activation"), "activation", path),
      .metrics = parse_metrics(text("metrics"), path)};
  if (metadata.count("tern.outputs") != 0) {
    card.outputs = parse_outputs(text("outputs"), path);
  } else {  // an older file without descriptions of outputs
    card.outputs = {
        {.kind = card.activation == Activation::sigmoid
                     ? TargetKind::multi_category
                 : card.classes.empty() ? TargetKind::number
                                        : TargetKind::category,
         .names = card.classes,
         .activation = card.activation}};
  }
  if (metadata.count("tern.preprocessing") != 0) {
    card.preprocessing = parse_image_preprocessing(text("preprocessing"), path);
  }
  for (const auto& [key, own] : metadata) {
    if (!key.starts_with(kUserKeys)) continue;
    card.metadata[key.substr(kUserKeys.size())] = own;
  }
  return card;
}

}  // namespace tern
