#include "tern/vision/models/dynamic_unet.h"

#include <string>
#include <utility>

#include <torch/nn/init.h>

#include "tern/data/formats/json.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr double kNormBias = 1e-3;  // fastai's

torch::nn::BatchNorm2d norm_of(int64_t channels) {
  torch::nn::BatchNorm2d norm(channels);
  torch::nn::init::constant_(norm->bias, kNormBias);
  return norm;
}

ConvLayer without_norm(
    int64_t in,
    int64_t out,
    int64_t kernel_size = 3,
    LayerEnd end = LayerEnd::relu) {
  return ConvLayer(
      in,
      out,
      ConvLayerOptions{.kernel_size = kernel_size, .norm = false, .end = end});
}

torch::Tensor in_size_of(const torch::Tensor& like, const torch::Tensor& x) {
  const c10::IntArrayRef size = like.sizes().slice(2);
  return x.sizes().slice(2) == size ? x : torch::upsample_nearest2d(x, size);
}

}  // namespace

// Doubles height and width with a 1x1 convolution and pixel shuffle. The
// initial weights repeat each value (ICNR; Aitken et al., "Checkerboard
// artifact free sub-pixel convolution", 2017). [N, in, H, W] -> [N, out, 2 * H,
// 2 * W].
class PixelShuffleUpImpl : public torch::nn::Cloneable<PixelShuffleUpImpl> {
 public:
  PixelShuffleUpImpl(int64_t in, int64_t out, bool blur)
      : in_(in), out_(out), blur_(blur) {
    reset();
  }

  void reset() override {
    conv_ = register_module("0", without_norm(in_, 4 * out_, 1));
    init_kaiming(*conv_);
    const torch::NoGradGuard no_grad;
    torch::Tensor one = torch::empty({out_, in_, 1, 1});
    torch::nn::init::kaiming_normal_(one);
    conv_->conv()->weight.copy_(one.repeat_interleave(4, 0));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::pixel_shuffle(conv_->forward(x), 2);
    if (!blur_) return y;
    return torch::avg_pool2d(torch::replication_pad2d(y, {1, 0, 1, 0}), 2, 1);
  }

 private:
  int64_t in_, out_;
  bool blur_;
  ConvLayer conv_{nullptr};
};

// Upsamples coarse features and combines them with the body's features at that
// resolution: [N, coarse, h, w] and [N, skip, H, W] -> [N, out_channels(), H,
// W].
class UnetBlockImpl : public torch::nn::Cloneable<UnetBlockImpl> {
 public:
  // \param is_last  Halves the output channels.
  UnetBlockImpl(int64_t coarse, int64_t skip, bool is_last, bool blur)
      : coarse_(coarse), skip_(skip), is_last_(is_last), blur_(blur) {
    reset();
  }

  int64_t out_channels() const {
    const int64_t both = coarse_ / 2 + skip_;
    return is_last_ ? both / 2 : both;
  }

  void reset() override {
    const int64_t out = out_channels();
    up_ = register_module(
        "shuf",
        std::make_shared<PixelShuffleUpImpl>(coarse_, coarse_ / 2, blur_));
    norm_ = register_module("bn", norm_of(skip_));
    conv1_ = register_module("conv1", without_norm(coarse_ / 2 + skip_, out));
    conv2_ = register_module("conv2", without_norm(out, out));
    init_kaiming(*conv1_);
    init_kaiming(*conv2_);
  }

  torch::Tensor forward(
      const torch::Tensor& coarse,
      const torch::Tensor& skip) {
    const torch::Tensor enlarged = in_size_of(skip, up_->forward(coarse));
    return conv2_->forward(conv1_->forward(
        torch::cat({enlarged, norm_->forward(skip)}, 1).relu_()));
  }

 private:
  int64_t coarse_, skip_;
  bool is_last_, blur_;
  std::shared_ptr<PixelShuffleUpImpl> up_;
  torch::nn::BatchNorm2d norm_{nullptr};
  ConvLayer conv1_{nullptr}, conv2_{nullptr};
};

namespace {

// Options that `build_dynamic_unet` reads.
JsonFields fields_of(std::string& body, DynamicUnetOptions& options) {
  return {
      {"body", &body},
      {"outputs", &options.outputs},
      {"in_channels", &options.in_channels},
      {"blur", &options.blur},
      {"last_cross", &options.last_cross}};
}

}  // namespace

Architecture DynamicUnetImpl::architecture() const {
  if (!arch_.is_known()) return {};
  std::string body = arch_.name();
  DynamicUnetOptions options = options_;
  return {"dynamic_unet", to_json(fields_of(body, options))};
}

DynamicUnet build_dynamic_unet(const Architecture& architecture) {
  std::string body;
  DynamicUnetOptions options;
  read_json(
      architecture.options,
      fields_of(body, options),
      "the options of " + architecture.name);
  return DynamicUnet(VisionArch(body), options);
}

DynamicUnetImpl::DynamicUnetImpl(VisionArch arch, DynamicUnetOptions options)
    : arch_(std::move(arch)), options_(options) {
  TERN_CHECK_VALUE(
      options.outputs > 0 && options.in_channels > 0,
      "[DynamicUnet] outputs is {} and in_channels is {}; expected both "
      "positive.",
      options.outputs,
      options.in_channels);
  reset();
}

void DynamicUnetImpl::reset() {
  body_ = arch_.make_body(options_.in_channels);
  TERN_CHECK_VALUE(
      body_->backbone->has_maps(),
      "[DynamicUnet] {} has no feature maps of several sizes; expected a "
      "network with such maps, such as resnet34 or swin_t.",
      arch_.name());
  register_module("body", body_->module);
  const std::vector<int64_t> stages = body_->backbone->stage_channels();
  int64_t channels = stages.back();
  norm_ = register_module("bn", norm_of(channels));
  middle_ = register_module(
      "middle",
      torch::nn::Sequential(
          without_norm(channels, 2 * channels),
          without_norm(2 * channels, channels)));
  init_kaiming(*middle_);
  ups_.clear();
  for (size_t i = stages.size() - 1; i-- > 0;) {
    const auto up = std::make_shared<UnetBlockImpl>(
        channels,
        stages[i],
        /*is_last=*/i == 0,
        options_.blur);
    channels = up->out_channels();
    ups_.push_back(register_module("up" + std::to_string(ups_.size()), up));
  }
  last_up_ = register_module(
      "shuf",
      std::make_shared<PixelShuffleUpImpl>(channels, channels, false));
  if (options_.last_cross) {
    channels += options_.in_channels;
    cross_ = register_module(
        "cross",
        XResBlock(channels, channels, XResBlockOptions{.norm = false}));
    init_kaiming(*cross_);
  }
  out_ = register_module(
      "out",
      without_norm(channels, options_.outputs, 1, LayerEnd::linear));
  torch::nn::init::normal_(out_->conv()->bias, 0, 0.01);
  store_channels_last(*this);
}

torch::Tensor DynamicUnetImpl::forward(const torch::Tensor& images) {
  const Tensors skips = body_->backbone->stages(images);
  torch::Tensor x = middle_->forward(norm_->forward(skips.back()).relu_());
  for (size_t i = 0; i < ups_.size(); ++i) {
    x = ups_[i]->forward(x, skips[skips.size() - 2 - i]);
  }
  x = in_size_of(images, last_up_->forward(x));
  if (cross_) x = cross_->forward(torch::cat({x, images}, 1));
  return out_->forward(x);
}

}  // namespace tern
