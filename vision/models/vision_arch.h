#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/download/fetch_weights.h"
#include "tern/learner/export/architecture.h"
#include "tern/learner/model.h"
#include "tern/vision/models/backbone.h"
#include "tern/vision/models/cnn/convnext.h"
#include "tern/vision/models/cnn/densenet.h"
#include "tern/vision/models/cnn/efficientnet.h"
#include "tern/vision/models/cnn/mobilenet_v2.h"
#include "tern/vision/models/cnn/mobilenet_v3.h"
#include "tern/vision/models/cnn/regnet.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/models/transformers/swin.h"
#include "tern/vision/models/transformers/vit.h"

namespace tern {

struct HeadOptions {
  /// Widths of the hidden layers; may be empty.
  std::vector<int64_t> hidden = {512};
  /// Dropout before the last linear layer; half of it before the other linear
  /// layers.
  double dropout = 0.5;
  /// Concatenates global max and average pooling; if false, pools by average
  /// only.
  bool concat_pool = true;
  /// Pools the feature maps. Set it to false for features [N, C]. VisionModel
  /// sets it according to its body.
  bool pool = true;
  /// Lowest and highest value of a regression, such as {0, 10}; the outputs
  /// pass through a SigmoidRange. If empty, the outputs of the last layer
  /// are unbounded.
  std::vector<double> y_range = {};
  /// Outputs points, [N, outputs, 2] kFloat: x and y in pixels of the model's
  /// input. `vision_learner` sets this for data with points.
  bool points = false;
};

/// Concatenates global max pooling and global average pooling: [N, C, H, W] ->
/// [N, 2 * C]. Same as fastai's AdaptiveConcatPool2d followed by Flatten.
class ConcatPoolImpl : public torch::nn::Cloneable<ConcatPoolImpl> {
 public:
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x);
};
TORCH_MODULE(ConcatPool);

/// Returns `sigmoid(x) * (high - low) + low`, like fastai's SigmoidRange.
class SigmoidRangeImpl : public torch::nn::Cloneable<SigmoidRangeImpl> {
 public:
  SigmoidRangeImpl(double low, double high) : low_(low), high_(high) {}
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x) {
    return x.sigmoid() * (high_ - low_) + low_;
  }

 private:
  double low_, high_;
};
TORCH_MODULE(SigmoidRange);

/// Creates the head of a classifier: pooling, then BatchNorm, dropout and a
/// linear layer without bias for each width, with ReLU between them. Layers,
/// names and initialization (He's) match fastai v2's create_head.
///
///   classifier_head(512, 10)->forward(features);   // [N, 10], logits
///
/// \param features  Channels of the input [N, features, H, W], or of [N,
///                  features] without pooling.
/// \throws c10::ValueError unless all widths are positive, dropout is in [0,
///         1), and `y_range` is empty or two finite numbers in ascending order.
torch::nn::Sequential classifier_head(
    int64_t features,
    int64_t outputs,
    const HeadOptions& options = {});

/// A network without its classifier, both as a module and as a Backbone.
struct VisionBody {
  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<Backbone> backbone;

  template <class Impl>
  explicit VisionBody(std::shared_ptr<Impl> impl)
      : module(impl), backbone(impl) {}
};

/// Describes the network that a model is built on, and its layer groups.
/// Converts implicitly from a function such as `resnet18`, or from its name:
///
///   VisionArch arch = resnet18;
///   VisionArch same = "resnet18";
class VisionArch {
 public:
  using MakeBody = std::function<VisionBody(int64_t in_channels)>;

  /// Uses the function `make`: `resnet18` etc., or a custom function that
  /// returns one of Tern's networks. It must use the `num_classes` and
  /// `in_channels` that it receives.
  template <class Net, class Options>
  VisionArch(Net (*make)(const Options&))  // NOLINT: implicit on purpose
      : VisionArch(
            name_of(reinterpret_cast<Function>(make)),
            [make](int64_t in_channels) {
              Options options;
              options.num_classes = 0;
              options.in_channels = in_channels;
              return VisionBody(make(options).ptr());
            },
            Net::Impl::kSecondGroup,
            Net::Impl::kClassifier) {}
  // NOLINTBEGIN: implicit on purpose
  /// Selects one of Tern's networks by name.
  /// \throws c10::ValueError listing the valid names.
  VisionArch(const std::string& name);
  VisionArch(const char* name) : VisionArch(std::string(name)) {}
  // NOLINTEND
  /// Describes a custom network.
  /// \param second_group  First module of the second layer group. If empty, the
  ///                      body is one group.
  /// \param classifier    Prefix of the classifier's weights, which pretrained
  ///                      files may contain.
  /// \param published     Weights to use for `{.pretrained = true}`. If not
  ///                      set, uses the weights that Tern lists under `name`.
  VisionArch(
      std::string name,
      MakeBody make_body,
      std::string second_group,
      std::string classifier,
      std::optional<PublishedWeights> published = std::nullopt);

  const std::string& name() const { return name_; }
  /// True if Tern has a network of this name, so that the name alone identifies
  /// it.
  bool is_known() const;
  /// Prefix of the names of the classifier's weights.
  const std::string& classifier() const { return classifier_; }
  /// Returns the weights that `fetch_weights` downloads for this network:
  /// torchvision's default ImageNet weights, or DeiT-S for vit_s_16.
  ///
  ///   VisionArch("resnet18").published().url;
  ///   // "https://download.pytorch.org/models/resnet18-f37072fd.pth"
  ///
  /// \throws c10::ValueError if there are no pretrained weights; the message
  ///         lists the networks that have some.
  PublishedWeights published() const;
  const std::string& second_group() const { return second_group_; }
  VisionBody make_body(int64_t in_channels) const {
    return make_body_(in_channels);
  }
  /// Loads pretrained weights of this network from a file in any format that
  /// `load_weights` supports. Weight names can be torchvision's, timm's,
  /// fastai's or a vision learner's.
  ///
  /// A ViT's position embeddings are interpolated to its image size. The
  /// BatchNorms of a MobileNetV3 keep torchvision's eps of 1e-3, which timm's
  /// tf_mobilenetv3 also uses; timm's other MobileNetV3 weights are trained
  /// with 1e-5. If the number of input channels is not 3, the weights of the
  /// first convolution are adapted as in fastai: for one channel they are
  /// summed; for two, the first two are scaled by 1.5; for more than three,
  /// they are padded with zeros.
  ///
  ///   auto net = vit_b_16({.num_classes = 0, .image_size = 384});
  ///   auto report = VisionArch(vit_b_16).load_pretrained(net, "vit.pth");
  ///   report.skipped;   // {"heads.head.weight", "heads.head.bias"}
  ///
  /// \param model  The network or its body. If it has no classifier, the
  ///               classifier's weights in the file are skipped.
  /// \return       What was loaded and what was skipped. No weights of `model`
  ///               are missing.
  /// \throws c10::ValueError naming weights that are missing, unexpected or of
  ///         mismatched size; then nothing is loaded. DataError and IoError of
  ///         `load_weights`.
  LoadReport load_pretrained(Model model, const std::filesystem::path& file)
      const;
  LoadReport load_pretrained(
      const VisionBody& body,
      const std::filesystem::path& file) const {
    return load_pretrained(Model(body.module), file);
  }

 private:
  using Function = void (*)();
  static std::string name_of(Function make);

  std::string name_;
  MakeBody make_body_;
  std::string second_group_, classifier_;
  std::optional<PublishedWeights> published_;
};

/// Returns a builder for each of Tern's networks by name, for `build_model`.
std::map<std::string, std::function<Model(const Architecture&)>>
network_builders();

/// Names of the networks with pretrained weights.
std::vector<std::string> networks_with_weights();

}  // namespace tern
