#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/weights/architecture.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {

/// Atrous spatial pyramid pooling: combines 3x3 convolutions of several
/// dilations, a 1x1 convolution and the mean of the image (Chen et al.,
/// "Rethinking Atrous Convolution for Semantic Image Segmentation", section
/// 3.3). torchvision's ASPP, with its names in the state dict: `convs` and
/// `project`.
class AsppImpl : public torch::nn::Cloneable<AsppImpl> {
 public:
  /// \param rates  Dilations of the 3x3 convolutions.
  AsppImpl(int64_t in, std::vector<int64_t> rates, int64_t out = 256);
  void reset() override;
  /// [N, in, H, W] -> [N, out, H, W].
  /// \throws c10::ValueError for N = 1 in training: the mean of one image
  ///         cannot be normalised over the batch.
  torch::Tensor forward(const torch::Tensor& x);

 private:
  int64_t in_, out_;
  std::vector<int64_t> rates_;
  torch::nn::ModuleList convs_{nullptr};
  torch::nn::Sequential project_{nullptr};
};
TORCH_MODULE(Aspp);

/// Upsamples coarse features to the size of the image in four steps: a bilinear
/// resize to a finer map, concatenation with that map, and a 3x3 convolution
/// (Lin et al., "Real-Time High-Resolution Background Matting", 2021).
class MattingDecoderImpl : public torch::nn::Cloneable<MattingDecoderImpl> {
 public:
  /// \param channels  Channels of the coarse features, and after each step.
  /// \param skips     Channels of the finer maps, the coarsest first.
  MattingDecoderImpl(
      const std::array<int64_t, 5>& channels,
      const std::array<int64_t, 4>& skips);
  void reset() override;
  /// [N, channels[0], h, w] and four maps -> [N, channels[4], H, W], as large
  /// as the last map.
  torch::Tensor forward(torch::Tensor x, const Tensors& skips);

 private:
  std::array<int64_t, 5> channels_;
  std::array<int64_t, 4> skips_;
  std::array<torch::nn::Conv2d, 4> convs_{nullptr, nullptr, nullptr, nullptr};
  std::array<torch::nn::BatchNorm2d, 3> norms_{nullptr, nullptr, nullptr};
};
TORCH_MODULE(MattingDecoder);

/// The encoder of a matting network.
enum class MattingBackbone { mobilenet_v2, resnet50, resnet101 };

/// "mobilenet_v2" and its like.
std::string to_string(MattingBackbone backbone);
/// \throws c10::ValueError listing the valid names. Also accepts "mobilenetv2",
///         the name in the paper's code.
MattingBackbone matting_backbone(const std::string& name);

/// Output of a matting network, all of the image's size.
struct MattingOutput {
  torch::Tensor pha;  // [N, 1, H, W], alpha, 0..1
  torch::Tensor fgr;  // [N, 3, H, W], RGB of the foreground, 0..1
  torch::Tensor err;  // [N, 1, H, W], expected error of pha, 0..1
  torch::Tensor hid;  // [N, 32, H, W], features for the refiner, >= 0

  /// In the order above, as a Learner's outputs.
  // NOLINTNEXTLINE: implicit on purpose
  operator Tensors() const { return {pha, fgr, err, hid}; }
};

/// The encoder and decoder that MattingBase and MattingRefine share; "coarse",
/// since the latter runs them on a smaller image.
class CoarseMatting {
 public:
  /// Registers `backbone`, `aspp` and `decoder` with `owner`.
  CoarseMatting(MattingBackbone backbone, torch::nn::Module& owner);
  /// \param src, bgr  [N, 3, H, W], see `check_matting_inputs`.
  /// \return `fgr` relative to src, so not in 0..1.
  MattingOutput forward(const torch::Tensor& src, const torch::Tensor& bgr);

 private:
  VisionBody backbone_;
  Aspp aspp_;
  MattingDecoder decoder_;
};

/// \param where  Name of the network, for the error message.
/// \throws c10::ValueError unless src and bgr are floating tensors
///         [N, 3, H, W] of one shape, type and device, and none is empty.
void check_matting_inputs(
    const char* where,
    const torch::Tensor& src,
    const torch::Tensor& bgr);

struct MattingBaseOptions {
  MattingBackbone backbone = MattingBackbone::mobilenet_v2;
};

/// Separates the foreground from a background that is known from a second
/// image: the base network of Lin et al., "Real-Time High-Resolution Background
/// Matting" (CVPR 2021), with the names of the paper's code in its state dict,
/// so that weights are portable.
///
///   MattingBase net(MattingBaseOptions{MattingBackbone::resnet50});
///   MattingOutput out = net->forward(src, bgr);
///   Learner learn(data, net, {.loss = loss});
///   learn.split({"aspp", "decoder"}).fit(8, {1e-4, 5e-4, 5e-4});
///
/// A Learner's outputs are pha, fgr, err and hid, in that order.
class MattingBaseImpl : public torch::nn::Cloneable<MattingBaseImpl>,
                        public HasArchitecture {
 public:
  explicit MattingBaseImpl(const MattingBaseOptions& options = {});
  void reset() override;
  /// \param src, bgr  [N, 3, H, W] floating, RGB in 0..1: images, and their
  ///                  backgrounds without the foreground, of any size.
  /// \throws c10::ValueError for other inputs, and for N = 1 in training.
  MattingOutput forward(const torch::Tensor& src, const torch::Tensor& bgr);
  /// "matting_base".
  Architecture architecture() const override;

  const MattingBaseOptions& options() const { return options_; }

 private:
  MattingBaseOptions options_;
  std::optional<CoarseMatting> coarse_;
};
TORCH_MODULE(MattingBase);

/// Builds the network that MattingBaseImpl::architecture describes; see
/// `build_model`.
/// \throws DataError if its options are not those of a MattingBase,
///         c10::ValueError if there is no backbone of that name.
MattingBase build_matting_base(const Architecture& architecture);

}  // namespace tern
