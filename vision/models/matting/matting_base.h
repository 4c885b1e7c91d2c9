#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/export/architecture.h"
#include "tern/learner/model.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {

class AsppImpl;
class MattingDecoderImpl;

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

/// The encoder, ASPP and decoder that MattingBase and MattingRefine share;
/// "coarse", since the latter runs them on a smaller image.
class CoarseMatting {
 public:
  /// Registers `backbone`, `aspp` and `decoder` with `owner`.
  CoarseMatting(MattingBackbone backbone, torch::nn::Module& owner);
  /// \param src, bgr  [N, 3, H, W], see `check_matting_inputs`.
  /// \return `fgr` relative to src, so not in 0..1.
  MattingOutput forward(const torch::Tensor& src, const torch::Tensor& bgr);

 private:
  VisionBody backbone_;
  std::shared_ptr<AsppImpl> aspp_;
  std::shared_ptr<MattingDecoderImpl> decoder_;
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

/// Builds what MattingBaseImpl::architecture describes; see `build_model`.
MattingBase build_matting_base(const Architecture& architecture);

/// Loads weights into a MattingBase or MattingRefine from a file in any format
/// that `load_weights` supports:
///
/// - weights of either network, saved by Tern or the paper's code: parts of the
///   other network are ignored, and a refiner that is missing in the file keeps
///   its weights, as when MattingRefine continues from a trained MattingBase;
/// - a DeepLabV3 for segmentation with the same backbone, as of the repository
///   VainF/DeepLabV3Plus-Pytorch, from which the paper starts: backbone
///   and ASPP are loaded, but not the first convolution, which has 3 channels.
///
///   MattingRefine net(MattingRefineOptions{});
///   load_matting_weights(net, "base.pth");
///
/// \throws c10::ValueError if the file has weights of another backbone or none,
///         or some weights of a part are missing or have another shape; the
///         model is then unchanged. DataError, IoError as `load_weights`.
LoadReport load_matting_weights(Model model, const std::filesystem::path& file);

}  // namespace tern
