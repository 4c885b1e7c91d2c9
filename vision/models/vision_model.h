#pragma once

#include <cstdint>
#include <optional>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/export/architecture.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {

/// An image model: the body of a network, registered as "body", with a new
/// head, registered as "head".
class VisionModelImpl : public torch::nn::Cloneable<VisionModelImpl>,
                        public HasArchitecture {
 public:
  VisionModelImpl(
      VisionArch arch,
      int64_t in_channels,
      int64_t outputs,
      HeadOptions head = {});
  void reset() override;
  /// [N, in_channels, H, W] -> [N, outputs], or [N, outputs, 2] with
  /// `HeadOptions::points`.
  torch::Tensor forward(const torch::Tensor& x);
  /// Returns "vision_model", with the body's name among the options.
  Architecture architecture() const override;

  const VisionBody& body() const { return *body_; }

 private:
  VisionArch arch_;
  int64_t in_channels_, outputs_;
  HeadOptions head_options_;
  std::optional<VisionBody> body_;
  torch::nn::Sequential head_{nullptr};
};
TORCH_MODULE(VisionModel);

/// Builds the model that VisionModelImpl::architecture describes; see
/// `build_model`.
VisionModel build_vision_model(const Architecture& architecture);

}  // namespace tern
