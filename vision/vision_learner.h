#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include "tern/learner/weights/architecture.h"
#include "tern/learner/learner.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {

struct VisionOptions {
  /// A file with weights for the body: see VisionArch::load_pretrained. The
  /// body then starts frozen. Empty: random weights, nothing frozen.
  std::filesystem::path pretrained = {};
  /// How many numbers the model answers; 0: one for each of `data.classes`.
  int64_t outputs = 0;
  int64_t in_channels = 3;
  HeadOptions head = {};
  /// Without a loss, that of the targets: cross-entropy for one class each,
  /// binary cross-entropy for several, mean squared error for numbers.
  LearnerOptions learner = {};
};

/// A network's body, "body", with a new head, "head".
class VisionModelImpl : public torch::nn::Cloneable<VisionModelImpl>,
                        public HasArchitecture {
 public:
  VisionModelImpl(
      VisionArch arch,
      int64_t in_channels,
      int64_t outputs,
      HeadOptions head = {});
  void reset() override;
  /// [N, in_channels, H, W] -> [N, outputs].
  torch::Tensor forward(const torch::Tensor& x);
  /// "vision_model", with the body's name among the options.
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

/// The network that VisionModelImpl::architecture has described; see
/// `build_model`.
/// \throws DataError if its options are not those of a VisionModel,
///         c10::ValueError if there is no body of that name.
VisionModel build_vision_model(const Architecture& architecture);

/// A Learner whose model has a body that may be pretrained, split into three
/// layer groups: the body's fine and coarse half, and what is new.
class VisionLearner final : public Learner {
 public:
  /// \param first_new  The module with which the new part begins.
  VisionLearner(
      const DataBunch& data,
      Model model,
      const VisionArch& arch,
      const std::string& first_new,
      bool is_pretrained,
      LearnerOptions options);
};

/// A Learner for images on a known network: its body, cut before the pooling,
/// and a new head.
///
///   auto learn = vision_learner(
///       data,
///       resnet18,
///       {.pretrained = "resnet18.pth",
///        .learner = {.metrics = {accuracy()}}});
///   learn.fine_tune(5);
///
/// With pretrained weights all but the head (and the norms, see
/// `LearnerOptions::train_bn`) starts frozen, and bytes from a bunch that does
/// not normalise are normalised as ImageNet's. As fastai v2's vision_learner.
///
/// \throws c10::ValueError if the number of outputs is unknown or the weights
///         do not fit; DataError, IoError as `load_weights`.
VisionLearner vision_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const VisionOptions& options = {});

/// The number of outputs that a bunch asks for: `given`, or one for each class.
/// \throws c10::ValueError if there is neither.
int64_t outputs_for(const DataBunch& data, int64_t given);

struct UnetLearnerOptions {
  /// As VisionOptions::pretrained.
  std::filesystem::path pretrained = {};
  /// Classes of pixels; 0: as many as `data.classes` names.
  int64_t outputs = 0;
  int64_t in_channels = 3;
  bool blur = false;       // see DynamicUnetOptions
  bool last_cross = true;  // see DynamicUnetOptions
  /// Without a loss, cross-entropy over all pixels.
  LearnerOptions learner = {};
};

/// A Learner that says for each pixel what it belongs to: a DynamicUnet on the
/// body of a known network. The data's targets are masks.
///
///   auto learn = unet_learner(
///       streets,
///       resnet18,
///       {.outputs = 11,  // class 11 is void
///        .learner = {.loss = nn::CrossEntropyLoss(
///                        nn::CrossEntropyLossOptions().ignore_index(11)),
///                    .metrics = {dice()}}});
///
/// Layer groups and freezing are those of `vision_learner`; what is new is the
/// last group. As fastai v2's unet_learner.
///
/// \throws as `vision_learner`.
VisionLearner unet_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const UnetLearnerOptions& options = {});

}  // namespace tern
