#pragma once

#include <optional>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/weights/architecture.h"
#include "tern/vision/models/coarse_matting.h"

namespace tern {

struct MattingBaseOptions {
  MattingBackbone backbone = MattingBackbone::mobilenet_v2;
};

/// Tells foreground from a background of which there is a picture too: the base
/// network of Lin et al., "Real-Time High-Resolution Background Matting" (CVPR
/// 2021), with the names of the paper's program in its state dict, so that
/// weights go both ways.
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
  /// \param src, bgr  [N, 3, H, W] floating, RGB in 0..1: pictures, and their
  ///                  backgrounds without the foreground. Of any size.
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

/// The network that MattingBaseImpl::architecture has described; see
/// `build_model`.
/// \throws DataError if its options are not those of a MattingBase,
///         c10::ValueError if there is no backbone of that name.
MattingBase build_matting_base(const Architecture& architecture);

}  // namespace tern
