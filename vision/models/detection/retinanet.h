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
  /// Classes are 0 to num_classes - 1, without one for the background. The
  /// published weights are for COCO's 91, some of which are not used.
  int64_t num_classes = 91;
  int64_t in_channels = 3;
  /// GroupNorm in the heads, as torchvision's v2.
  bool group_norm = false;
  /// Computes the last two levels from the body's features, not from the
  /// pyramid's, as torchvision's v2.
  bool p6_of_c5 = false;
  /// The body's BatchNorm always uses its running statistics and its weights
  /// start frozen, as torchvision's FrozenBatchNorm2d.
  bool frozen_norm = false;
  /// Of the body's BatchNorm.
  double norm_eps = 1e-5;
  /// See AnchorOptions::retinanet: less for objects of few pixels, which larger
  /// anchors overlap too little to be matched with.
  double smallest_anchor = 32;
};

/// The detector of Lin et al., "Focal Loss for Dense Object Detection" (2017),
/// on the body of a classifier: torchvision's RetinaNet, with its names in the
/// state dict and its initial weights. Images come in the network's size and
/// normalized; `retinanet_loss` is its loss, and `decode_detections` turns its
/// outputs into boxes.
///
///   RetinaNet net = retinanet_resnet50_fpn({.num_classes = 20});
///   Tensors detections = decode_detections(net->forward(images));
class RetinaNetImpl : public torch::nn::Cloneable<RetinaNetImpl>,
                      public HasArchitecture {
 public:
  /// \param arch  A network with feature maps; the last three are used, of 1/8
  ///              to 1/32 of the image's size.
  /// \throws c10::ValueError for another network, or unless num_classes is 1 to
  ///         1,000,000, in_channels 1 to 10,000, norm_eps in [0, 1] and
  ///         smallest_anchor >= 2.
  RetinaNetImpl(VisionArch arch, RetinaNetOptions options);
  void reset() override;
  void train(bool on = true) override;

  /// Returns classes and boxes relative to the A anchors.
  ///
  /// \param images  [N, in_channels, H, W] floating, of any size.
  /// \return  cls_logits [N, A, num_classes] and bbox_regression [N, A, 4] in
  ///          the network's type, then anchors [N, A, 4] kFloat (x1, y1, x2, y2
  ///          in pixels, the same for all images) and image_sizes [N, 2] kFloat
  ///          (height, width), which are kFloat in 16 bits too.
  Tensors forward(const torch::Tensor& images);

  /// "retinanet", with the body's name among the options.
  Architecture architecture() const override;

  const RetinaNetOptions& options() const { return options_; }
  /// The network that pretrained weights of a classifier are loaded into, by
  /// `arch().load_pretrained(body(), file)`.
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

/// torchvision's, on ResNet-50. v2 has GroupNorm in its heads and other last
/// levels; torchvision trains it with `RetinaNetLossOptions::box_loss` giou.
/// `options.group_norm` and `options.p6_of_c5` are set by the name.
/// \throws as RetinaNet.
RetinaNet retinanet_resnet50_fpn(const RetinaNetOptions& options = {});
RetinaNet retinanet_resnet50_fpn_v2(const RetinaNetOptions& options = {});
/// Both on ResNet-18.
RetinaNet retinanet_resnet18_fpn(const RetinaNetOptions& options = {});
RetinaNet retinanet_resnet18_fpn_v2(const RetinaNetOptions& options = {});

/// Builds what RetinaNetImpl::architecture describes; see `build_model`.
RetinaNet build_retinanet(const Architecture& architecture);

/// Loads weights of a whole detector from a file in any format that
/// `load_weights` supports, as torchvision's, old ones too, or Tern save it.
/// Weights for other classes are left out of the last layer, which then keeps
/// its own; the report lists them as skipped.
///
/// \throws c10::ValueError naming what is missing, unexpected or mis-shaped;
///         the model is then unchanged. DataError, IoError as `load_weights`.
LoadReport load_detector_weights(
    Model model,
    const std::filesystem::path& file);

/// Which weights a detector starts with.
enum class DetectorWeights {
  none,
  imagenet,  ///< of the body alone, as VisionArch::published
  coco,      ///< torchvision's of the whole detector
};

struct DetectionModelOptions {
  DetectorWeights pretrained = DetectorWeights::none;
  /// A file with these weights; empty: they are fetched, see `fetch_weights`.
  /// `load_detector_weights` loads those of another training.
  std::filesystem::path file = {};
  int64_t in_channels = 3;
  /// See RetinaNetOptions; not set: as torchvision, true for pretrained weights
  /// but in v2.
  std::optional<bool> frozen_norm = std::nullopt;
  /// See RetinaNetOptions.
  double smallest_anchor = 32;
  /// Receives messages and the progress of a download.
  Sink sink = {};
};

/// Creates a detector by its name, with pretrained weights where asked.
///
///   RetinaNet net = detection_model(
///       "retinanet_resnet50_fpn_v2",
///       20,
///       {.pretrained = DetectorWeights::coco});
///
/// COCO's weights for other than 91 classes are all but those of the last layer
/// for classes. Those of "retinanet_resnet50_fpn" come with `norm_eps` 0, as in
/// torchvision.
/// \throws c10::ValueError for an unknown name, listing the known ones, for
///         weights that there are not, a file without `pretrained`, and as
///         RetinaNet; as `load_detector_weights` and `fetch_weights`.
RetinaNet detection_model(
    const std::string& name,
    int64_t num_classes,
    const DetectionModelOptions& options = {});

/// Names that `detection_model` knows.
std::vector<std::string> detection_models();

/// Returns where COCO's weights of a detector are published.
/// \throws c10::ValueError if there are none, naming the detectors that have
///         weights.
PublishedWeights published_detector(const std::string& name);

}  // namespace tern
