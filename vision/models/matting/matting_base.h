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

/// Returns the name, such as "mobilenet_v2".
std::string to_string(MattingBackbone backbone);
/// Also accepts "mobilenetv2", the name in the paper's code.
/// \throws c10::ValueError listing the valid names.
MattingBackbone matting_backbone(const std::string& name);

/// Outputs of a matting network; all have the size of the image.
struct MattingOutput {
  torch::Tensor pha;  // [N, 1, H, W], alpha, 0..1
  torch::Tensor fgr;  // [N, 3, H, W], RGB of the foreground, 0..1
  torch::Tensor err;  // [N, 1, H, W], expected error of pha, 0..1
  torch::Tensor hid;  // [N, 32, H, W], features for the refiner, >= 0

  /// Converts to the outputs that a Learner expects, in the order above.
  // NOLINTNEXTLINE: implicit on purpose
  operator Tensors() const { return {pha, fgr, err, hid}; }
};

/// The encoder, ASPP and decoder that MattingBase and MattingRefine share.
/// Called coarse because MattingRefine runs it on a downscaled image.
class CoarseMatting {
 public:
  /// Registers `backbone`, `aspp` and `decoder` with `owner`.
  CoarseMatting(MattingBackbone backbone, torch::nn::Module& owner);
  /// \param src, bgr  [N, 3, H, W], see `check_matting_inputs`.
  /// \return          `fgr` is a residual to add to src, so it is not in 0..1.
  MattingOutput forward(const torch::Tensor& src, const torch::Tensor& bgr);

 private:
  VisionBody backbone_;
  std::shared_ptr<AsppImpl> aspp_;
  std::shared_ptr<MattingDecoderImpl> decoder_;
};

/// Checks the inputs of a matting network. The message begins with `where`.
/// \throws c10::ValueError unless src and bgr are non-empty floating-point
///         tensors [N, 3, H, W] of the same shape, dtype and device.
void check_matting_inputs(
    const char* where,
    const torch::Tensor& src,
    const torch::Tensor& bgr);

struct MattingBaseOptions {
  MattingBackbone backbone = MattingBackbone::mobilenet_v2;
};

/// Separates the foreground of an image from its background, given a second
/// image of the background alone. This is the base network of Lin et al.,
/// "Real-Time High-Resolution Background Matting" (CVPR 2021). State-dict names
/// match the paper's code, so that weights are portable.
///
///   MattingBase net(MattingBaseOptions{MattingBackbone::resnet50});
///   MattingOutput out = net->forward(src, bgr);
///   Learner learn(data, net, {.loss = loss});
///   learn.split({"aspp", "decoder"}).fit(8, {1e-4, 5e-4, 5e-4});
///
/// The outputs in a Learner are pha, fgr, err and hid, in this order.
class MattingBaseImpl : public torch::nn::Cloneable<MattingBaseImpl>,
                        public HasArchitecture {
 public:
  explicit MattingBaseImpl(const MattingBaseOptions& options = {});
  void reset() override;
  /// \param src, bgr  [N, 3, H, W] floating, RGB in 0..1, of any size: the
  ///                  images, and their backgrounds without the foreground.
  /// \throws c10::ValueError for any other inputs, and for N = 1 in training.
  MattingOutput forward(const torch::Tensor& src, const torch::Tensor& bgr);
  /// Returns "matting_base".
  Architecture architecture() const override;

  const MattingBaseOptions& options() const { return options_; }

 private:
  MattingBaseOptions options_;
  std::optional<CoarseMatting> coarse_;
};
TORCH_MODULE(MattingBase);

/// Builds the network that MattingBaseImpl::architecture describes; see
/// `build_model`.
MattingBase build_matting_base(const Architecture& architecture);

/// Loads weights into a MattingBase or MattingRefine from a file in any format
/// that `load_weights` supports. The file can contain:
///
/// - weights of either network, saved by Tern or the paper's code. Parts that
///   the model does not have are ignored. A refiner keeps its weights if the
///   file does not have them, so that MattingRefine can start from a trained
///   MattingBase.
/// - a DeepLabV3 segmentation network with the same backbone, in the format of
///   the repository VainF/DeepLabV3Plus-Pytorch, from which the paper starts.
///   Backbone and ASPP are loaded, except for the first convolution, which has
///   3 input channels.
///
///   MattingRefine net(MattingRefineOptions{});
///   load_matting_weights(net, "base.pth");
///
/// \throws c10::ValueError if the file has no weights of this backbone, or if
///         some weights of a part are missing or have a different shape; the
///         model is then unchanged. DataError and IoError of `load_weights`.
LoadReport load_matting_weights(Model model, const std::filesystem::path& file);

}  // namespace tern
