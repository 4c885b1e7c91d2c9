#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/vision/models/aspp.h"
#include "tern/vision/models/matting_decoder.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {

/// What looks at the pictures first.
enum class MattingBackbone { mobilenet_v2, resnet50, resnet101 };

/// "mobilenet_v2" and its like.
std::string to_string(MattingBackbone backbone);
/// \throws c10::ValueError listing the names there are. "mobilenetv2", the name
///         in the paper's program, is one of them.
MattingBackbone matting_backbone(const std::string& name);

/// What a matting network sees in a picture, all of the picture's size.
struct MattingOutput {
  torch::Tensor pha;  // [N, 1, H, W], how much of a pixel is foreground, 0..1
  torch::Tensor fgr;  // [N, 3, H, W], RGB of the foreground, 0..1
  torch::Tensor err;  // [N, 1, H, W], how wrong pha may be, 0..1
  torch::Tensor hid;  // [N, 32, H, W], features for the refiner, >= 0

  /// In the order above, as a Learner's outputs.
  // NOLINTNEXTLINE: implicit on purpose
  operator Tensors() const { return {pha, fgr, err, hid}; }
};

/// The encoder and decoder that MattingBase and MattingRefine have in common;
/// "coarse", since the latter shows them a smaller picture.
class CoarseMatting {
 public:
  /// Registers `backbone`, `aspp` and `decoder` with `owner`.
  CoarseMatting(MattingBackbone backbone, torch::nn::Module& owner);
  /// \param src, bgr  [N, 3, H, W], as `check_matting_inputs` wants them.
  /// \return `fgr` without what is src's share: it is not in 0..1 yet.
  MattingOutput forward(const torch::Tensor& src, const torch::Tensor& bgr);

 private:
  VisionBody backbone_;
  Aspp aspp_;
  MattingDecoder decoder_;
};

/// \param where  The name of the network, for the sentence.
/// \throws c10::ValueError unless src and bgr are floating tensors
///         [N, 3, H, W] of one shape, type and device, and none is empty.
void check_matting_inputs(
    const char* where,
    const torch::Tensor& src,
    const torch::Tensor& bgr);

}  // namespace tern
