#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/download/fetch_weights.h"
#include "tern/data/support/sink.h"
#include "tern/learner/export/architecture.h"
#include "tern/learner/model.h"
#include "tern/vision/models/detection/anchors.h"
#include "tern/vision/models/detection/feature_pyramid.h"
#include "tern/vision/models/vision_arch.h"

namespace tern {

class RetinaNetBackboneImpl;
class RetinaNetHeadImpl;

struct RetinaNetOptions {
  /// Classes are 0 to num_classes - 1; there is no background class. The
  /// pretrained weights are for the 91 classes of COCO, some of which are
  /// unused.
  int64_t num_classes = 91;
  int64_t in_channels = 3;
  /// Uses GroupNorm in the heads, as in torchvision's v2.
  bool group_norm = false;
  /// Computes the last two levels from the backbone's last features instead of
  /// the pyramid's last level, as in torchvision's v2.
  bool p6_of_c5 = false;
  /// Freezes the backbone's BatchNorm: it always uses its running statistics,
  /// and its weights start frozen, like torchvision's FrozenBatchNorm2d.
  bool frozen_norm = false;
  /// eps of the backbone's BatchNorm.
  double norm_eps = 1e-5;
  /// See AnchorOptions::retinanet. Decrease it for objects of only a few
  /// pixels, whose IoU with larger anchors is too low for a match.
  double smallest_anchor = 32;
};

/// The detector of Lin et al., "Focal Loss for Dense Object Detection" (2017),
/// with a classifier as its backbone. Same as torchvision's RetinaNet,
/// including state-dict names and initial weights. Unlike torchvision's, it
/// expects images that are already resized and normalized. `retinanet_loss` is
/// its loss; `decode_detections` converts its outputs to boxes.
///
///   RetinaNet net = retinanet_resnet50_fpn({.num_classes = 20});
///   Tensors detections = decode_detections(net->forward(images));
class RetinaNetImpl : public torch::nn::Cloneable<RetinaNetImpl>,
                      public HasArchitecture {
 public:
  /// \param arch  A network with feature maps. The last three, with strides 8
  ///              to 32, are used.
  /// \throws c10::ValueError for a network without feature maps, or unless
  ///         num_classes is 1 to 1,000,000, in_channels 1 to 10,000, norm_eps
  ///         in [0, 1] and smallest_anchor >= 2.
  RetinaNetImpl(VisionArch arch, RetinaNetOptions options);
  void reset() override;
  void train(bool on = true) override;

  /// Returns class logits and box codes for each of the A anchors.
  ///
  /// \param images  [N, in_channels, H, W] floating, of any size. They are
  ///                padded with zeros to multiples of 32 pixels, as in
  ///                torchvision.
  /// \return  cls_logits [N, A, num_classes] and bbox_regression [N, A, 4] in
  ///          the dtype of the network; anchors [N, A, 4] (x1, y1, x2, y2 in
  ///          pixels, the same for all images) and image_sizes [N, 2] (height
  ///          and width without padding), both kFloat even if the network
  ///          computes in 16 bits.
  Tensors forward(const torch::Tensor& images);

  /// Returns "retinanet", with the backbone's name among the options.
  Architecture architecture() const override;

  const RetinaNetOptions& options() const { return options_; }
  /// Returns the backbone. `arch().load_pretrained(body(), file)` loads the
  /// pretrained weights of a classifier into it.
  const VisionBody& body() const;
  const VisionArch& arch() const { return arch_; }

 private:
  VisionArch arch_;
  RetinaNetOptions options_;
  std::shared_ptr<RetinaNetBackboneImpl> backbone_;
  AnchorGenerator anchor_generator_{nullptr};
  std::shared_ptr<RetinaNetHeadImpl> head_;
};
TORCH_MODULE(RetinaNet);

/// torchvision's RetinaNets on ResNet-50. v2 uses GroupNorm in its heads and
/// computes the last two levels differently; torchvision trains it with the
/// generalized IoU loss (`BoxLoss::giou`). These functions set
/// `options.group_norm` and `options.p6_of_c5` themselves.
/// \throws the errors of RetinaNet.
RetinaNet retinanet_resnet50_fpn(const RetinaNetOptions& options = {});
RetinaNet retinanet_resnet50_fpn_v2(const RetinaNetOptions& options = {});
/// The same two detectors on ResNet-18.
RetinaNet retinanet_resnet18_fpn(const RetinaNetOptions& options = {});
RetinaNet retinanet_resnet18_fpn_v2(const RetinaNetOptions& options = {});

/// Builds the network that RetinaNetImpl::architecture describes; see
/// `build_model`.
RetinaNet build_retinanet(const Architecture& architecture);

/// Loads the weights of a whole detector from a file in any format that
/// `load_weights` supports, saved by Tern or any version of torchvision. If the
/// file is for a different number of classes, the classification layer keeps
/// its current weights and the report lists it as skipped.
///
/// \throws c10::ValueError naming weights that are missing, unexpected or of
///         mismatched size; the model is then unchanged. DataError and IoError
///         of `load_weights`.
LoadReport load_detector_weights(
    Model model,
    const std::filesystem::path& file);

/// Initial weights of a detector.
enum class DetectorWeights {
  none,
  imagenet,  ///< for the backbone only, see VisionArch::published
  coco,      ///< torchvision's, for the whole detector
};

struct DetectionModelOptions {
  DetectorWeights pretrained = DetectorWeights::none;
  /// File with these weights. If empty, they are downloaded, see
  /// `fetch_weights`. For your own trained weights, call
  /// `load_detector_weights` instead.
  std::filesystem::path file = {};
  int64_t in_channels = 3;
  /// See RetinaNetOptions. If not set, it is true with pretrained weights,
  /// except for v2, as in torchvision.
  std::optional<bool> frozen_norm = std::nullopt;
  /// See RetinaNetOptions. COCO's weights require the default.
  double smallest_anchor = 32;
  /// Receives log messages and the download's progress.
  Sink sink = {};
};

/// Creates a detector by name and optionally loads pretrained weights.
///
///   RetinaNet net = detection_model(
///       "retinanet_resnet50_fpn_v2",
///       20,
///       {.pretrained = DetectorWeights::coco});
///
/// COCO's weights are for 91 classes; for any other number, all layers are
/// loaded except the classification layer. For "retinanet_resnet50_fpn", they
/// also set `norm_eps` to 0, as in torchvision.
/// \throws c10::ValueError for an unknown name, listing the valid names; if
///         there are no such weights; for a file without `pretrained`; and the
///         errors of RetinaNet, `load_detector_weights` and `fetch_weights`.
RetinaNet detection_model(
    const std::string& name,
    int64_t num_classes,
    const DetectionModelOptions& options = {});

/// Names that `detection_model` accepts.
std::vector<std::string> detection_models();

/// Returns the location of a detector's COCO weights.
/// \throws c10::ValueError if there are none; the message lists the detectors
///         with COCO weights.
PublishedWeights published_detector(const std::string& name);

}  // namespace tern
