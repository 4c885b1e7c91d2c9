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
  /// Dropout before the last layer; half of it before the others.
  double dropout = 0.5;
  /// Concatenates max and average pooling; false: average pooling only.
  bool concat_pool = true;
  /// False: without pooling, for features [N, C]. `vision_learner` decides this
  /// by itself.
  bool pool = true;
  /// Lowest and highest answer of a regression, such as {0, 10}: the outputs
  /// go through a SigmoidRange. Empty: they are as the last layer has them.
  std::vector<double> y_range = {};
  /// The outputs are points, [N, outputs, 2] kFloat: x and y in pixels of the
  /// model's input. `vision_learner` sets this for data with points.
  bool points = false;
};

/// Global max pooling and average pooling, concatenated: [N, C, H, W] -> [N, 2
/// * C]. fastai's AdaptiveConcatPool2d with Flatten.
class ConcatPoolImpl : public torch::nn::Cloneable<ConcatPoolImpl> {
 public:
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x);
};
TORCH_MODULE(ConcatPool);

/// sigmoid(x) * (high - low) + low. fastai's.
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
/// linear layer for each width, with ReLU between. Layers, names and
/// initialization are those of fastai v2's create_head (He's; no biases).
///
///   classifier_head(512, 10)->forward(features);   // [N, 10], logits
///
/// \param features  Channels of the input [N, features, H, W], or [N, features]
///                  without pooling.
/// \throws c10::ValueError unless all widths are positive, dropout is in [0, 1)
///         and `y_range` is empty or two finite numbers that ascend.
torch::nn::Sequential classifier_head(
    int64_t features,
    int64_t outputs,
    const HeadOptions& options = {});

/// A network without its classifier, as a module and as a Backbone.
struct VisionBody {
  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<Backbone> backbone;

  template <class Impl>
  explicit VisionBody(std::shared_ptr<Impl> impl)
      : module(impl), backbone(impl) {}
};

/// The network that a model is built on, and its layer groups. Converted
/// implicitly from `resnet18` etc., or from its name:
///
///   VisionArch arch = resnet18;
///   VisionArch same = "resnet18";
class VisionArch {
 public:
  using MakeBody = std::function<VisionBody(int64_t in_channels)>;

  /// Of `make`, such as `resnet18`, or a function of your own that returns one
  /// of Tern's networks, with `num_classes` and `in_channels` as asked.
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
  /// \throws c10::ValueError listing the valid names.
  VisionArch(const std::string& name);
  VisionArch(const char* name) : VisionArch(std::string(name)) {}
  // NOLINTEND
  /// A network of your own.
  /// \param second_group  First module of the second layer group; empty: the
  ///                      body is one group.
  /// \param classifier    Prefix of its classifier's weights, which pretrained
  ///                      files may contain.
  /// \param published     Its weights, for `{.pretrained = true}`; none: those
  ///                      that are known by its name.
  VisionArch(
      std::string name,
      MakeBody make_body,
      std::string second_group,
      std::string classifier,
      std::optional<PublishedWeights> published = std::nullopt);

  const std::string& name() const { return name_; }
  /// Whether the name alone says which network it is.
  bool is_known() const;
  /// Prefix of a classifier's weights.
  const std::string& classifier() const { return classifier_; }
  /// Returns what `fetch_weights` fetches for it: torchvision's default
  /// weights, from ImageNet, or for vit_s_16 those of DeiT-S.
  ///
  ///   VisionArch("resnet18").published().url;
  ///   // "https://download.pytorch.org/models/resnet18-f37072fd.pth"
  ///
  /// \throws c10::ValueError if there are none, naming the networks that have
  ///         weights.
  PublishedWeights published() const;
  const std::string& second_group() const { return second_group_; }
  VisionBody make_body(int64_t in_channels) const {
    return make_body_(in_channels);
  }
  /// Loads weights of this network from a file in any format that
  /// `load_weights` supports, with the names of torchvision, timm, fastai or a
  /// vision learner. A ViT's position embeddings are interpolated to its image
  /// size. A MobileNetV3's norms keep torchvision's eps of 1e-3, as in timm's
  /// tf_mobilenetv3; timm trains the others with 1e-5. Adapts a first
  /// convolution with 3 channels to others as fastai does: summed for one
  /// channel, 0 for additional ones.
  ///
  ///   auto net = vit_b_16({.num_classes = 0, .image_size = 384});
  ///   auto report = VisionArch(vit_b_16).load_pretrained(net, "vit.pth");
  ///   report.skipped;   // {"heads.head.weight", "heads.head.bias"}
  ///
  /// \param model  The network or its body. A classifier's weights are skipped
  ///               if it has none.
  /// \return       What was loaded and what was skipped; nothing is missing.
  /// \throws c10::ValueError naming missing, unexpected and mis-shaped weights,
  ///         of which none is loaded; DataError, IoError as `load_weights`.
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

/// What builds each of the networks with a name; for `build_model`.
std::map<std::string, std::function<Model(const Architecture&)>>
network_builders();

/// Names of the networks that there are published weights for.
std::vector<std::string> networks_with_weights();

}  // namespace tern
