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

/// The weights that a network begins with: random ones, those that its authors
/// publish, or those of a file.
///
///   vision_learner(data, "resnet18", {.pretrained = true});
///   vision_learner(data, "resnet18", {.pretrained = "resnet18.pth"});
class Pretrained {
 public:
  Pretrained() = default;
  // NOLINTBEGIN: implicit on purpose
  template <std::same_as<bool> Bool>
  Pretrained(Bool published) : is_published_(published) {}
  /// No file if the path is empty.
  template <std::convertible_to<std::filesystem::path> Path>
  Pretrained(Path file) : file_(std::move(file)) {}
  // NOLINTEND

  /// Whether there are any weights.
  explicit operator bool() const { return is_published_ || !file_.empty(); }
  bool is_published() const { return is_published_; }
  /// Empty if there is none.
  const std::filesystem::path& file() const { return file_; }

 private:
  bool is_published_ = false;
  std::filesystem::path file_;
};

struct VisionOptions {
  /// Weights for the body, which then starts frozen: `true` for those that the
  /// network's authors publish, see VisionArch::published and `fetch_weights`,
  /// or a file, see VisionArch::load_pretrained. Without, nothing is frozen.
  Pretrained pretrained = {};
  /// Number of outputs; 0: one per class of `data.classes`, or per point.
  int64_t outputs = 0;
  int64_t in_channels = 3;
  HeadOptions head = {};
  /// The default loss depends on the targets: cross-entropy for one class per
  /// image, binary cross-entropy for several, mean squared error for numbers,
  /// `points_loss` for points.
  LearnerOptions learner = {};
};

/// Creates a Learner for images: the body of a known network, cut before the
/// pooling, with a new head, in three layer groups: the first and the second
/// part of the body, and the new layers.
///
///   auto learn = vision_learner(
///       data,
///       "convnext_tiny",
///       {.pretrained = true, .learner = {.metrics = {accuracy()}}});
///   learn.fine_tune(5);
///
/// With pretrained weights everything but the head (and BatchNorm, see
/// `LearnerOptions::train_bn`) starts frozen, and data without normalization
/// are normalized with ImageNet's statistics. As fastai v2's vision_learner.
///
/// \throws c10::ValueError if the number of outputs is unknown, there are no
///         such weights or they do not fit; DataError, IoError as
///         `load_weights` and `fetch_weights`.
Learner vision_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const VisionOptions& options = {});

struct UnetLearnerOptions {
  /// As VisionOptions::pretrained.
  Pretrained pretrained = {};
  /// Number of classes; 0: that of `data.classes`.
  int64_t outputs = 0;
  int64_t in_channels = 3;
  bool blur = false;       // see DynamicUnetOptions
  bool last_cross = true;  // see DynamicUnetOptions
  /// The default loss is cross-entropy over all pixels.
  LearnerOptions learner = {};
};

/// Creates a Learner for segmentation: a DynamicUnet on the body of a known
/// network. The targets are masks.
///
///   auto learn = unet_learner(
///       streets,
///       resnet18,
///       {.outputs = 11,  // class 11 is void
///        .learner = {.loss = nn::CrossEntropyLoss(
///                        nn::CrossEntropyLossOptions().ignore_index(11)),
///                    .metrics = {dice()}}});
///
/// Layer groups and freezing are those of `vision_learner`; the last group is
/// the decoder. As fastai v2's unet_learner.
///
/// \throws as `vision_learner`.
Learner unet_learner(
    const DataBunch& data,
    const VisionArch& arch,
    const UnetLearnerOptions& options = {});

}  // namespace tern
