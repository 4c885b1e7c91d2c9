#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/backbone.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/models/xresnet.h"

namespace tern {

struct DynamicUnetOptions {
  /// Number of classes.
  int64_t outputs = 2;
  int64_t in_channels = 3;
  /// Blurs after each upsampling, against checkerboard artifacts.
  bool blur = false;
  /// Concatenates the image before the last layers.
  bool last_cross = true;
};

/// Doubles height and width by a 1x1 convolution and pixel shuffle, initialised
/// to repeat each value (ICNR; Aitken et al., "Checkerboard artifact free
/// sub-pixel convolution", 2017).
class PixelShuffleUpImpl : public torch::nn::Cloneable<PixelShuffleUpImpl> {
 public:
  PixelShuffleUpImpl(int64_t in, int64_t out, bool blur);
  void reset() override;
  /// [N, in, H, W] -> [N, out, 2 * H, 2 * W].
  torch::Tensor forward(const torch::Tensor& x);

 private:
  int64_t in_, out_;
  bool blur_;
  ConvLayer conv_{nullptr};
};
TORCH_MODULE(PixelShuffleUp);

/// Upsamples coarse features and combines them with the body's at that size.
class UnetBlockImpl : public torch::nn::Cloneable<UnetBlockImpl> {
 public:
  /// \param coarse, skip  Channels of both inputs.
  /// \param is_last       Halves the output channels.
  UnetBlockImpl(int64_t coarse, int64_t skip, bool is_last, bool blur);
  void reset() override;
  /// [N, coarse, h, w] and [N, skip, H, W] -> [N, out_channels(), H, W].
  torch::Tensor forward(const torch::Tensor& coarse, const torch::Tensor& skip);
  int64_t out_channels() const;

 private:
  int64_t coarse_, skip_;
  bool is_last_, blur_;
  PixelShuffleUp up_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
  ConvLayer conv1_{nullptr}, conv2_{nullptr};
};
TORCH_MODULE(UnetBlock);

/// A U-Net (Ronneberger et al., 2015) on the body of a classifier: fastai v2's
/// DynamicUnet with its defaults: norms only on the features of the body. Keeps
/// no features between calls, unlike fastai's.
class DynamicUnetImpl : public torch::nn::Cloneable<DynamicUnetImpl> {
 public:
  /// \throws c10::ValueError unless outputs and in_channels are positive.
  DynamicUnetImpl(VisionArch arch, DynamicUnetOptions options);
  void reset() override;
  /// [N, in_channels, H, W] of any size -> [N, outputs, H, W], logits.
  torch::Tensor forward(const torch::Tensor& images);

  const VisionBody& body() const { return *body_; }

 private:
  VisionArch arch_;
  DynamicUnetOptions options_;
  std::optional<VisionBody> body_;
  torch::nn::BatchNorm2d norm_{nullptr};
  torch::nn::Sequential middle_{nullptr};
  std::vector<UnetBlock> ups_;
  PixelShuffleUp last_up_{nullptr};
  XResBlock cross_{nullptr};
  ConvLayer out_{nullptr};
};
TORCH_MODULE(DynamicUnet);

}  // namespace tern
