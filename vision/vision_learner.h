#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "tern/learner/learner.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/vision_arch.h"
#include "tern/vision/models/vision_model.h"

namespace tern {

/// The initial weights of a network: random, pretrained, or from a file.
///
///   vision_learner(data, "resnet18", {.pretrained = true});
///   vision_learner(data, "resnet18", {.pretrained = "resnet18.pth"});
class Pretrained {
 public:
  Pretrained() = default;
  // NOLINTBEGIN: implicit on purpose
  template <std::same_as<bool> Bool>
  Pretrained(Bool published) : is_published_(published) {}
  /// \param file  An empty path means no file.
  template <std::convertible_to<std::filesystem::path> Path>
  Pretrained(Path file) : file_(std::move(file)) {}
  // NOLINTEND

  /// True for downloaded weights or a file.
  explicit operator bool() const { return is_published_ || !file_.empty(); }
  bool is_published() const { return is_published_; }
  /// Returns the path of the weights, or an empty path.
  const std::filesystem::path& file() const { return file_; }

 private:
  bool is_published_ = false;
  std::filesystem::path file_;
};

struct VisionOptions {
  /// Pretrained weights of the body: `true` to download them (see
  /// VisionArch::published and `fetch_weights`), or a file (see
  /// VisionArch::load_pretrained). The body then starts frozen. Without
  /// pretrained weights nothing is frozen.
  Pretrained pretrained = {};
  /// Number of outputs; 0: one per class in `data.classes`, or one per point.
  int64_t outputs = 0;
  int64_t in_channels = 3;
  HeadOptions head = {};
  /// The default loss depends on the targets: cross-entropy for one class per
  /// image, binary cross-entropy for multi-label targets, mean squared error
  /// for regression, `points_loss` for points.
  LearnerOptions learner = {};
};

/// Creates a Learner for images, as fastai v2's vision_learner does. The model
/// is the body of a known network, cut before the pooling, with a new head. It
/// has three layer groups: the first part of the body, the second part, and the
/// head.
///
///   auto learn = vision_learner(
///       data,
///       "convnext_tiny",
///       {.pretrained = true, .learner = {.metrics = {accuracy()}}});
///   learn.fine_tune(5);
///
/// With pretrained weights, all layers except the head and BatchNorm (see
/// `LearnerOptions::train_bn`) start frozen; if the data has no batch
/// transforms, images are normalized with ImageNet's statistics.
///
/// \throws c10::ValueError if the number of outputs is unknown, if there are no
///         pretrained weights, or if the weights do not fit the network;
///         DataError and IoError of `load_weights` and `fetch_weights`.
Learner vision_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const VisionOptions& options = {});

struct UnetLearnerOptions {
  /// See VisionOptions::pretrained.
  Pretrained pretrained = {};
  /// Number of classes; 0: the size of `data.classes`.
  int64_t outputs = 0;
  int64_t in_channels = 3;
  bool blur = false;       // see DynamicUnetOptions
  bool last_cross = true;  // see DynamicUnetOptions
  /// The default loss is cross-entropy over all pixels.
  LearnerOptions learner = {};
};

/// Creates a Learner for segmentation, as fastai v2's unet_learner does. The
/// model is a DynamicUnet on the body of a known network, and the targets are
/// masks.
///
///   auto learn = unet_learner(
///       streets,
///       resnet18,
///       {.outputs = 11,  // class 11 is void
///        .learner = {.loss = nn::CrossEntropyLoss(
///                        nn::CrossEntropyLossOptions().ignore_index(11)),
///                    .metrics = {dice()}}});
///
/// Layer groups and freezing are as for `vision_learner`; the last group is the
/// decoder.
///
/// \throws the errors of `vision_learner`.
Learner unet_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const UnetLearnerOptions& options = {});

}  // namespace tern
