#include "tern/vision/models/matting/matting_base.h"

#include <array>

#include <fmt/ranges.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/pooling.h>

#include "tern/data/batch.h"
#include "tern/data/formats/json.h"
#include "tern/data/support/enum_names.h"
#include "tern/kernels/check.h"
#include "tern/vision/models/backbone.h"

namespace tern {

namespace {

constexpr double kDropout = 0.5;
constexpr int64_t kAsppWidth = 256;

// Appends a convolution to `layers`. A dilation of 0 means a 1x1 convolution.
torch::nn::Sequential convolution(
    int64_t in,
    int64_t out,
    int64_t dilation = 0,
    torch::nn::Sequential layers = {}) {
  auto options = torch::nn::Conv2dOptions(in, out, dilation == 0 ? 1 : 3);
  if (dilation > 0) options.padding(dilation).dilation(dilation);
  layers->push_back(torch::nn::Conv2d(options.bias(false)));
  layers->push_back(torch::nn::BatchNorm2d(out));
  layers->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  return layers;
}

constexpr int64_t kInputs = 6;  // src and bgr
constexpr int64_t kHidden = 32;
constexpr int64_t kOutputStride = 16;

constexpr EnumNames<MattingBackbone, 3> kBackbones = {
    {{"mobilenet_v2", MattingBackbone::mobilenet_v2},
     {"resnet50", MattingBackbone::resnet50},
     {"resnet101", MattingBackbone::resnet101}}};

VisionBody make_backbone(MattingBackbone backbone) {
  if (backbone == MattingBackbone::mobilenet_v2) {
    return VisionBody(mobilenet_v2({.num_classes = 0,
                                    .in_channels = kInputs,
                                    .output_stride = kOutputStride,
                                    .last_convolution = false})
                          .ptr());
  }
  const auto make =
      backbone == MattingBackbone::resnet50 ? resnet50 : resnet101;
  return VisionBody(make({.num_classes = 0,
                          .in_channels = kInputs,
                          .output_stride = kOutputStride})
                        .ptr());
}

std::string describe(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format(
      "[{}] {} on {}",
      fmt::join(tensor.sizes(), ", "),
      c10::toString(tensor.scalar_type()),
      tensor.device().str());
}

}  // namespace

// Atrous spatial pyramid pooling: combines 3x3 convolutions of several
// dilations, a 1x1 convolution and the mean of the image (Chen et al.,
// "Rethinking Atrous Convolution for Semantic Image Segmentation", section
// 3.3). Same as torchvision's ASPP, including state-dict names. [N, in, H, W]
// -> [N, 256, H, W].
class AsppImpl : public torch::nn::Cloneable<AsppImpl> {
 public:
  explicit AsppImpl(int64_t in) : in_(in) { reset(); }

  void reset() override {
    convs_ = register_module("convs", torch::nn::ModuleList());
    convs_->push_back(convolution(in_, kAsppWidth));
    for (const int64_t rate : {3, 6, 9}) {
      convs_->push_back(convolution(in_, kAsppWidth, rate));
    }
    const torch::nn::Sequential mean(torch::nn::AdaptiveAvgPool2d(1));
    convs_->push_back(convolution(in_, kAsppWidth, 0, mean));
    torch::nn::Sequential project =
        convolution(std::ssize(*convs_) * kAsppWidth, kAsppWidth);
    project->push_back(torch::nn::Dropout(kDropout));
    project_ = register_module("project", project);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    TORCH_CHECK_VALUE(
        x.size(0) > 1 || !is_training(),
        "[Aspp] got a batch of one image in training; expected at least two, "
        "since BatchNorm normalizes the mean of each image over the batch. Use "
        "larger batches, and drop_last to omit a short last batch.");
    Tensors seen;
    for (const auto& conv : *convs_) {
      seen.push_back(conv->as<torch::nn::Sequential>()->forward(x));
    }
    seen.back() = seen.back()
                      .expand({-1, -1, x.size(2), x.size(3)})
                      .contiguous(torch::MemoryFormat::ChannelsLast);
    return project_->forward(torch::cat(seen, 1));
  }

 private:
  int64_t in_;
  torch::nn::ModuleList convs_{nullptr};
  torch::nn::Sequential project_{nullptr};
};

// Upsamples coarse features to the size of the image in four steps. Each step
// resizes bilinearly to the size of a finer map, concatenates that map, and
// applies a 3x3 convolution (Lin et al., "Real-Time High-Resolution Background
// Matting", 2021).
class MattingDecoderImpl : public torch::nn::Cloneable<MattingDecoderImpl> {
 public:
  // \param skips  Channels of the finer maps, from coarse to fine.
  explicit MattingDecoderImpl(const std::array<int64_t, 4>& skips)
      : skips_(skips) {
    reset();
  }

  void reset() override {
    constexpr std::array<int64_t, 5> kChannels =
        {kAsppWidth, 128, 64, 48, 1 + 3 + 1 + kHidden};
    for (size_t i = 0; i < convs_.size(); ++i) {
      const bool is_last = i + 1 == convs_.size();
      convs_[i] = register_module(
          fmt::format("conv{}", i + 1),
          torch::nn::Conv2d(torch::nn::Conv2dOptions(
                                kChannels[i] + skips_[i],
                                kChannels[i + 1],
                                3)
                                .padding(1)
                                .bias(is_last)));
      if (is_last) continue;
      norms_[i] = register_module(
          fmt::format("bn{}", i + 1),
          torch::nn::BatchNorm2d(kChannels[i + 1]));
    }
  }

  // Returns features with the size of the last of the four maps.
  torch::Tensor forward(torch::Tensor x, const Tensors& skips) {
    for (size_t i = 0; i < convs_.size(); ++i) {
      x = torch::upsample_bilinear2d(
          x,
          skips[i].sizes().slice(2),
          /*align_corners=*/false);
      x = convs_[i]->forward(torch::cat({x, skips[i]}, 1));
      if (i < norms_.size()) x = norms_[i]->forward(x).relu_();
    }
    return x;
  }

 private:
  std::array<int64_t, 4> skips_;
  std::array<torch::nn::Conv2d, 4> convs_{nullptr, nullptr, nullptr, nullptr};
  std::array<torch::nn::BatchNorm2d, 3> norms_{nullptr, nullptr, nullptr};
};

std::string to_string(MattingBackbone backbone) {
  return name_of(kBackbones, backbone);
}

MattingBackbone matting_backbone(const std::string& name) {
  if (name == "mobilenetv2") return MattingBackbone::mobilenet_v2;
  return value_of(kBackbones, name, "[matting_backbone] unknown backbone");
}

CoarseMatting::CoarseMatting(MattingBackbone backbone, torch::nn::Module& owner)
    : backbone_(make_backbone(backbone)) {
  const std::vector<int64_t> stages = backbone_.backbone->stage_channels();
  aspp_ = std::make_shared<AsppImpl>(stages.back());
  decoder_ = std::make_shared<MattingDecoderImpl>(
      std::array<int64_t, 4>{stages[2], stages[1], stages[0], kInputs});
  owner.register_module("backbone", backbone_.module);
  owner.register_module("aspp", aspp_);
  owner.register_module("decoder", decoder_);
}

MattingOutput CoarseMatting::forward(
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  const torch::Tensor images =
      torch::cat({src, bgr}, 1).contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensors stages = backbone_.backbone->stages(images);
  const torch::Tensor seen = decoder_->forward(
      aspp_->forward(stages.back()),
      {stages[2], stages[1], stages[0], images});
  const Tensors parts = seen.split_with_sizes({1, 3, 1, kHidden}, 1);
  return {
      parts[0].clamp(0, 1),
      parts[1],
      parts[2].clamp(0, 1),
      parts[3].relu()};
}

void check_matting_inputs(
    const char* where,
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  const bool is_right = src.defined() && bgr.defined() && src.dim() == 4 &&
                        src.size(1) == 3 && src.numel() > 0 &&
                        src.is_floating_point() && bgr.sizes() == src.sizes() &&
                        bgr.scalar_type() == src.scalar_type() &&
                        bgr.device() == src.device();
  TERN_CHECK_VALUE(
      is_right,
      "[{}] src is {} and bgr is {}; expected two batches [N, 3, H, W] of the "
      "same shape, floating-point dtype and device, RGB from 0 to 1. Pass each "
      "image with its background.",
      where,
      describe(src),
      describe(bgr));
}

MattingBaseImpl::MattingBaseImpl(const MattingBaseOptions& options)
    : options_(options) {
  reset();
}

void MattingBaseImpl::reset() {
  coarse_.emplace(options_.backbone, *this);
  store_channels_last(*this);
}

MattingOutput MattingBaseImpl::forward(
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  check_matting_inputs("MattingBase", src, bgr);
  MattingOutput out = coarse_->forward(src, bgr);
  out.fgr = (out.fgr + src).clamp(0, 1);
  return out;
}

Architecture MattingBaseImpl::architecture() const {
  std::string backbone = to_string(options_.backbone);
  return {"matting_base", to_json({{"backbone", &backbone}})};
}

MattingBase build_matting_base(const Architecture& architecture) {
  std::string backbone = to_string(MattingBaseOptions().backbone);
  read_json(
      architecture.options,
      {{"backbone", &backbone}},
      "the options of " + architecture.name);
  return MattingBase(MattingBaseOptions{matting_backbone(backbone)});
}

}  // namespace tern
