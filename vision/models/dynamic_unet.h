#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/export/architecture.h"
#include "tern/vision/models/backbone.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {

struct DynamicUnetOptions {
  /// Number of classes.
  int64_t outputs = 2;
  int64_t in_channels = 3;
  /// Blurs after each upsampling, to reduce checkerboard artifacts.
  bool blur = false;
  /// Concatenates the input image before the last layers.
  bool last_cross = true;
};

class PixelShuffleUpImpl;
class UnetBlockImpl;

/// A U-Net (Ronneberger et al., 2015) whose encoder is the body of a
/// classifier. Matches fastai v2's DynamicUnet with its default options:
/// BatchNorm only on the body's features, and pixel-shuffle upsampling that is
/// initialized to repeat pixels. Unlike fastai's, it stores no features between
/// calls.
class DynamicUnetImpl : public torch::nn::Cloneable<DynamicUnetImpl>,
                        public HasArchitecture {
 public:
  /// \throws c10::ValueError unless outputs and in_channels are positive.
  DynamicUnetImpl(VisionArch arch, DynamicUnetOptions options);
  void reset() override;
  /// [N, in_channels, H, W] of any size -> [N, outputs, H, W], logits.
  torch::Tensor forward(const torch::Tensor& images);
  /// Returns "dynamic_unet", with the body's name among the options.
  Architecture architecture() const override;

  const VisionBody& body() const { return *body_; }

 private:
  VisionArch arch_;
  DynamicUnetOptions options_;
  std::optional<VisionBody> body_;
  torch::nn::BatchNorm2d norm_{nullptr};
  torch::nn::Sequential middle_{nullptr};
  std::vector<std::shared_ptr<UnetBlockImpl>> ups_;
  std::shared_ptr<PixelShuffleUpImpl> last_up_;
  XResBlock cross_{nullptr};
  ConvLayer out_{nullptr};
};
TORCH_MODULE(DynamicUnet);

/// Builds the network that DynamicUnetImpl::architecture describes; see
/// `build_model`.
DynamicUnet build_dynamic_unet(const Architecture& architecture);

}  // namespace tern
