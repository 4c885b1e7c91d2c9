#include "tern/vision/models/detection/retinanet.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>

#include "tern/data/formats/json.h"
#include "tern/kernels/check.h"
#include "tern/learner/weights/model_weights.h"
#include "tern/learner/weights/weights.h"
#include "tern/vision/models/backbone.h"

namespace tern {

namespace {

constexpr int64_t kChannels = 256, kCoordinates = 4;
constexpr int kHeadLayers = 4;
constexpr size_t kBodyLevels = 3;
constexpr int64_t kLargestStride = 32;  // of the backbone
// Initial probability of an object.
constexpr double kPrior = 0.01;

torch::nn::Conv2d head_conv(int64_t in, int64_t out, bool has_bias = true) {
  torch::nn::Conv2d conv(
      torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(has_bias));
  torch::nn::init::normal_(conv->weight, 0, 0.01);
  if (has_bias) torch::nn::init::zeros_(conv->bias);
  return conv;
}

// Convolution, optional GroupNorm, and ReLU.
class HeadLayerImpl : public torch::nn::Cloneable<HeadLayerImpl> {
 public:
  explicit HeadLayerImpl(bool group_norm) : group_norm_(group_norm) { reset(); }

  void reset() override {
    constexpr int64_t kGroups = 32;
    conv_ = register_module("0", head_conv(kChannels, kChannels, !group_norm_));
    if (group_norm_) {
      norm_ = register_module(
          "1",
          torch::nn::GroupNorm(
              torch::nn::GroupNormOptions(kGroups, kChannels)));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = conv_->forward(x);
    if (norm_) y = norm_->forward(y);
    return y.relu_();
  }

 private:
  bool group_norm_;
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::GroupNorm norm_{nullptr};
};
TORCH_MODULE(HeadLayer);

// Four hidden layers and an output layer, named `last`, with `numbers` outputs
// per anchor.
class HeadBranchImpl : public torch::nn::Cloneable<HeadBranchImpl> {
 public:
  HeadBranchImpl(
      std::string last,
      int64_t anchors,
      int64_t numbers,
      double bias,
      bool group_norm)
      : last_name_(std::move(last)),
        anchors_(anchors),
        numbers_(numbers),
        bias_(bias),
        group_norm_(group_norm) {
    reset();
  }

  void reset() override {
    layers_ = register_module("conv", torch::nn::ModuleList());
    for (int i = 0; i < kHeadLayers; ++i) {
      layers_->push_back(HeadLayer(group_norm_));
    }
    last_ =
        register_module(last_name_, head_conv(kChannels, anchors_ * numbers_));
    torch::nn::init::constant_(last_->bias, bias_);
  }

  // [N, 256, H_i, W_i] for each level -> [N, A, numbers].
  torch::Tensor forward(const Tensors& levels) {
    Tensors all;
    for (torch::Tensor x : levels) {
      for (size_t i = 0; i < layers_->size(); ++i) {
        x = layers_->ptr<HeadLayerImpl>(i)->forward(x);
      }
      x = last_->forward(x);
      all.push_back(x.permute({0, 2, 3, 1}).reshape({x.size(0), -1, numbers_}));
    }
    return torch::cat(all, 1);
  }

 private:
  std::string last_name_;
  int64_t anchors_, numbers_;
  double bias_;
  bool group_norm_;
  torch::nn::ModuleList layers_{nullptr};
  torch::nn::Conv2d last_{nullptr};
};
TORCH_MODULE(HeadBranch);

ExtraLevels extra_levels(const RetinaNetOptions& options) {
  return options.p6_of_c5 ? ExtraLevels::p6p7_of_c5 : ExtraLevels::p6p7_of_p5;
}

// Options that `build_retinanet` reads.
JsonFields fields_of(std::string& body, RetinaNetOptions& options) {
  return {
      {"body", &body},
      {"num_classes", &options.num_classes},
      {"in_channels", &options.in_channels},
      {"group_norm", &options.group_norm},
      {"p6_of_c5", &options.p6_of_c5},
      {"frozen_norm", &options.frozen_norm},
      {"norm_eps", &options.norm_eps},
      {"smallest_anchor", &options.smallest_anchor}};
}

template <class F>
void for_norms(torch::nn::Module& module, const F& f) {
  for (const auto& child : module.modules(/*include_self=*/false)) {
    if (auto* norm = child->as<torch::nn::BatchNorm2d>()) f(*norm);
  }
}

}  // namespace

// The backbone and its feature pyramid.
class RetinaNetBackboneImpl
    : public torch::nn::Cloneable<RetinaNetBackboneImpl> {
 public:
  RetinaNetBackboneImpl(VisionArch arch, RetinaNetOptions options)
      : arch_(std::move(arch)), options_(options) {
    reset();
  }

  void reset() override {
    body_ = arch_.make_body(options_.in_channels);
    std::vector<int64_t> channels = body_->backbone->stage_channels();
    TERN_CHECK_VALUE(
        body_->backbone->has_maps() && channels.size() >= kBodyLevels,
        "[RetinaNet] {} has no {} feature maps of several sizes; expected a "
        "network with such maps, such as resnet50.",
        arch_.name(),
        kBodyLevels);
    channels.erase(channels.begin(), channels.end() - kBodyLevels);
    register_module("body", body_->module);
    for_norms(*body_->module, [&](torch::nn::BatchNorm2dImpl& norm) {
      norm.options.eps(options_.norm_eps);
    });
    fpn_ = register_module(
        "fpn",
        FeaturePyramidNetwork(
            channels,
            FeaturePyramidOptions{
                .out_channels = kChannels,
                .extra = extra_levels(options_)}));
  }

  Tensors forward(const torch::Tensor& images) {
    const Tensors all = body_->backbone->stages(images);
    return fpn_->forward({all.end() - kBodyLevels, all.end()});
  }

  const VisionBody& body() const { return *body_; }

 private:
  VisionArch arch_;
  RetinaNetOptions options_;
  std::optional<VisionBody> body_;
  FeaturePyramidNetwork fpn_{nullptr};
};

// The classification and the regression branch.
class RetinaNetHeadImpl : public torch::nn::Cloneable<RetinaNetHeadImpl> {
 public:
  RetinaNetHeadImpl(int64_t anchors, RetinaNetOptions options)
      : anchors_(anchors), options_(options) {
    reset();
  }

  void reset() override {
    classes_ = register_module(
        "classification_head",
        HeadBranch(
            "cls_logits",
            anchors_,
            options_.num_classes,
            -std::log((1 - kPrior) / kPrior),
            options_.group_norm));
    boxes_ = register_module(
        "regression_head",
        HeadBranch("bbox_reg", anchors_, kCoordinates, 0, options_.group_norm));
  }

  Tensors forward(const Tensors& levels) {
    return {classes_->forward(levels), boxes_->forward(levels)};
  }

 private:
  int64_t anchors_;
  RetinaNetOptions options_;
  HeadBranch classes_{nullptr}, boxes_{nullptr};
};

RetinaNetImpl::RetinaNetImpl(VisionArch arch, RetinaNetOptions options)
    : arch_(std::move(arch)), options_(options) {
  check_network("RetinaNet", options.num_classes, options.in_channels);
  TERN_CHECK_VALUE(
      options.num_classes > 0 && options.norm_eps >= 0 && options.norm_eps <= 1,
      "[RetinaNet] num_classes is {} and norm_eps is {}; expected at least one "
      "class and a number in 0..1.",
      options.num_classes,
      options.norm_eps);
  reset();
}

void RetinaNetImpl::reset() {
  backbone_ = register_module(
      "backbone",
      std::make_shared<RetinaNetBackboneImpl>(arch_, options_));
  anchor_generator_ = register_module(
      "anchor_generator",
      AnchorGenerator(AnchorOptions::retinanet(options_.smallest_anchor)));
  head_ = register_module(
      "head",
      std::make_shared<RetinaNetHeadImpl>(
          anchor_generator_->anchors_per_location()[0],
          options_));
  store_channels_last(*this);
  if (!options_.frozen_norm) return;
  for_norms(*body().module, [](torch::nn::BatchNorm2dImpl& norm) {
    norm.eval();
    norm.weight.requires_grad_(false);
    norm.bias.requires_grad_(false);
  });
}

void RetinaNetImpl::train(bool on) {
  Cloneable::train(on);
  if (!options_.frozen_norm) return;
  for_norms(*body().module, [](torch::nn::BatchNorm2dImpl& norm) {
    norm.eval();
  });
}

const VisionBody& RetinaNetImpl::body() const {
  return backbone_->body();
}

Tensors RetinaNetImpl::forward(const torch::Tensor& images) {
  // Anchors are placed at whole strides, so feature maps must not be rounded.
  const torch::Tensor padded = pad_images(images, kLargestStride);
  const Tensors levels = backbone_->forward(padded);
  Tensors outputs = head_->forward(levels);
  outputs.push_back(anchor_generator_->forward(padded, levels)
                        .unsqueeze(0)
                        .expand({images.size(0), -1, -1}));
  outputs.push_back(image_sizes(images));
  return outputs;
}

Architecture RetinaNetImpl::architecture() const {
  if (!arch_.is_known()) return {};
  std::string body = arch_.name();
  RetinaNetOptions options = options_;
  return {"retinanet", to_json(fields_of(body, options))};
}

RetinaNet build_retinanet(const Architecture& architecture) {
  std::string body;
  RetinaNetOptions options;
  read_json(
      architecture.options,
      fields_of(body, options),
      "the options of " + architecture.name);
  return RetinaNet(VisionArch(body), options);
}

RetinaNet retinanet_resnet50_fpn(const RetinaNetOptions& options) {
  RetinaNetOptions own = options;
  own.group_norm = own.p6_of_c5 = false;
  return RetinaNet(VisionArch(resnet50), own);
}

RetinaNet retinanet_resnet50_fpn_v2(const RetinaNetOptions& options) {
  RetinaNetOptions own = options;
  own.group_norm = own.p6_of_c5 = true;
  return RetinaNet(VisionArch(resnet50), own);
}

RetinaNet retinanet_resnet18_fpn(const RetinaNetOptions& options) {
  RetinaNetOptions own = options;
  own.group_norm = own.p6_of_c5 = false;
  return RetinaNet(VisionArch(resnet18), own);
}

RetinaNet retinanet_resnet18_fpn_v2(const RetinaNetOptions& options) {
  RetinaNetOptions own = options;
  own.group_norm = own.p6_of_c5 = true;
  return RetinaNet(VisionArch(resnet18), own);
}

namespace {

constexpr const char* kClassLayer = "head.classification_head.cls_logits.";

// Converts a tensor's name in a file to the name in Tern: removes the prefixes
// of wrappers, and numbers layers like torchvision since 0.13.
std::string our_name(std::string name) {
  for (const std::string wrapper : {"module.", "_orig_mod."}) {
    if (name.starts_with(wrapper)) name.erase(0, wrapper.size());
  }
  const auto renumbered = [&](const std::string& start, int step) {
    if (!name.starts_with(start)) return false;
    const size_t dot = name.find('.', start.size());
    const std::string rest = name.substr(std::min(dot, name.size()));
    const std::string number = name.substr(start.size(), dot - start.size());
    if (rest != ".weight" && rest != ".bias") return true;
    if (number.size() != 1) return true;
    const int index = (number[0] - '0') / step;
    name = start + std::to_string(index) + ".0" + rest;
    return true;
  };
  for (const char* const branch : {"classification", "regression"}) {
    // Older versions number convolutions and ReLUs alternately.
    renumbered(std::string("head.") + branch + "_head.conv.", 2);
  }
  for (const char* const blocks : {"inner", "layer"}) {
    renumbered(std::string("backbone.fpn.") + blocks + "_blocks.", 1);
  }
  return name;
}

bool is_of_classes(const std::string& name) {
  return name.starts_with(kClassLayer);
}

}  // namespace

LoadReport load_detector_weights(
    Model model,
    const std::filesystem::path& file) {
  const StateDict read = load_weights(file);
  StateDict state;
  state.unverified = read.unverified;
  for (const auto& item : read) {
    state.insert(our_name(item.key()), item.value());
  }
  const LoadPlan plan = plan_load(
      model.state(),
      state,
      {.strict = false, .ignore_mismatched_sizes = true});
  LoadReport report = plan.report;
  std::erase_if(report.mismatched, [&](const LoadReport::Mismatch& mismatch) {
    if (!is_of_classes(mismatch.name)) return false;
    report.skipped.push_back(mismatch.name);
    return true;
  });
  TERN_CHECK_VALUE(
      report.is_complete(),
      "[load_detector_weights] {} does not hold the weights of this detector: "
      "{}. Give weights of that network, as torchvision or Tern saves them; to "
      "load only the weights of its backbone, call "
      "net->arch().load_pretrained(net->body(), file).",
      file.string(),
      report.to_string());
  plan.apply();
  return report;
}

namespace {

struct KnownDetector {
  std::string name;
  RetinaNet (*make)(const RetinaNetOptions&);
  bool freezes_norm;  // freezes BatchNorm with pretrained weights
  std::string coco;   // file name of COCO's weights, or empty
  double coco_eps;    // eps of the backbone's BatchNorm
};

const std::vector<KnownDetector>& known_detectors() {
  static const std::vector<KnownDetector> all = {
      {"retinanet_resnet18_fpn", retinanet_resnet18_fpn, true, "", 1e-5},
      {"retinanet_resnet18_fpn_v2", retinanet_resnet18_fpn_v2, false, "", 1e-5},
      {"retinanet_resnet50_fpn",
       retinanet_resnet50_fpn,
       true,
       "retinanet_resnet50_fpn_coco-eeacb38b.pth",
       0},
      {"retinanet_resnet50_fpn_v2",
       retinanet_resnet50_fpn_v2,
       false,
       "retinanet_resnet50_fpn_v2_coco-5905b1c5.pth",
       1e-5}};
  return all;
}

const KnownDetector& known_detector(
    const char* where,
    const std::string& name) {
  const auto& all = known_detectors();
  const auto at = std::ranges::find(all, name, &KnownDetector::name);
  TERN_CHECK_VALUE(
      at != all.end(),
      "[{}] there is no detector \"{}\"; expected one of {}.",
      where,
      name,
      fmt::join(detection_models(), ", "));
  return *at;
}

}  // namespace

std::vector<std::string> detection_models() {
  std::vector<std::string> names;
  for (const KnownDetector& detector : known_detectors()) {
    names.push_back(detector.name);
  }
  return names;
}

PublishedWeights published_detector(const std::string& name) {
  const KnownDetector& detector = known_detector("published_detector", name);
  std::vector<std::string> with_weights;
  for (const KnownDetector& other : known_detectors()) {
    if (!other.coco.empty()) with_weights.push_back(other.name);
  }
  TERN_CHECK_VALUE(
      !detector.coco.empty(),
      "[published_detector] there are no pretrained weights for {}; expected "
      "one of {}. Start with the weights of its backbone, {{.pretrained = "
      "DetectorWeights::imagenet}}, or give a file.",
      name,
      fmt::join(with_weights, ", "));
  return {"https://download.pytorch.org/models/" + detector.coco};
}

RetinaNet detection_model(
    const std::string& name,
    int64_t num_classes,
    const DetectionModelOptions& options) {
  const KnownDetector& detector = known_detector("detection_model", name);
  const bool is_pretrained = options.pretrained != DetectorWeights::none;
  TERN_CHECK_VALUE(
      is_pretrained || options.file.empty(),
      "[detection_model] the file {} is given, but pretrained is none; "
      "expected the kind of its weights. Set .pretrained to "
      "DetectorWeights::imagenet for the weights of a classifier, or to coco "
      "for the weights of a detector.",
      options.file.string());
  const bool is_coco = options.pretrained == DetectorWeights::coco;
  TERN_CHECK_VALUE(
      !is_coco || options.smallest_anchor == RetinaNetOptions().smallest_anchor,
      "[detection_model] smallest_anchor is {} with COCO weights, which "
      "predict boxes relative to anchors of at least {} pixels; expected that "
      "size. Omit .smallest_anchor.",
      options.smallest_anchor,
      RetinaNetOptions().smallest_anchor);
  const RetinaNetOptions own{
      .num_classes = num_classes,
      .in_channels = options.in_channels,
      .frozen_norm =
          options.frozen_norm.value_or(is_pretrained && detector.freezes_norm),
      .norm_eps = is_coco ? detector.coco_eps : RetinaNetOptions().norm_eps,
      .smallest_anchor = options.smallest_anchor};
  RetinaNet net = detector.make(own);
  if (!is_pretrained) return net;
  const std::filesystem::path file =
      options.file.empty()
          ? fetch_weights(
                is_coco ? published_detector(name) : net->arch().published(),
                {.sink = options.sink})
          : options.file;
  if (is_coco) {
    const LoadReport report = load_detector_weights(net, file);
    if (!report.skipped.empty()) {
      options.sink.or_terminal()->line(fmt::format(
          "detection_model: {} has weights for other classes, so the "
          "classification layer of {} classes is not loaded and starts from "
          "random weights",
          file.filename().string(),
          num_classes));
    }
  } else {
    net->arch().load_pretrained(net->body(), file);
  }
  return net;
}

}  // namespace tern
