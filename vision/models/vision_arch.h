#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/backbone.h"
#include "tern/vision/models/mobilenet_v2.h"
#include "tern/vision/models/resnet.h"
#include "tern/vision/models/xresnet.h"

namespace tern {

struct HeadOptions {
  /// Widths of the layers between features and outputs; may be none.
  std::vector<int64_t> hidden = {512};
  /// Share of values dropped before the last layer; half of it before others.
  double dropout = 0.5;
  /// Both the largest and the mean value of each feature; false: the mean.
  bool concat_pool = true;
};

/// The largest value of each channel, then the mean of each: [N, C, H, W] ->
/// [N, 2 * C]. fastai's AdaptiveConcatPool2d with Flatten.
class ConcatPoolImpl : public torch::nn::Cloneable<ConcatPoolImpl> {
 public:
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x);
};
TORCH_MODULE(ConcatPool);

/// What turns a body's features into answers: pooling, then for each layer
/// BatchNorm, dropout and a linear layer, with ReLU between. fastai v2's
/// create_head: its layers, names and initial weights (He's; a linear layer has
/// no bias, since the norm before it has one).
///
///   classifier_head(512, 10)->forward(features);   // [N, 10], logits
///
/// \param features  Channels of [N, features, H, W].
/// \throws c10::ValueError unless all widths are positive and dropout is in
///         [0, 1).
torch::nn::Sequential classifier_head(
    int64_t features,
    int64_t outputs,
    const HeadOptions& options = {});

/// A network without its classifier, as a module and as what gives features.
struct VisionBody {
  std::shared_ptr<torch::nn::Module> module;
  std::shared_ptr<Backbone> backbone;

  template <class Impl>
  explicit VisionBody(std::shared_ptr<Impl> impl)
      : module(impl), backbone(impl) {}
};

/// Which network a model is built on, and where it is cut into layer groups.
/// Made implicitly from `resnet18` and its like, or from that name:
///
///   VisionArch arch = resnet18;
///   VisionArch same("resnet18");
class VisionArch {
 public:
  using MakeBody = std::function<VisionBody(int64_t in_channels)>;

  // NOLINTBEGIN: implicit on purpose
  VisionArch(ResNet (*make)(const ResNetOptions&));
  VisionArch(XResNet (*make)(const XResNetOptions&));
  VisionArch(MobileNetV2 (*make)(const MobileNetV2Options&));
  // NOLINTEND
  /// \throws c10::ValueError listing the names there are.
  explicit VisionArch(const std::string& name);
  /// One's own network.
  /// \param second_group  The module of it with which the second layer group
  ///                      begins; empty: the body is one group.
  /// \param classifier    What names of its classifier's weights begin with;
  ///                      pretrained files may have them.
  VisionArch(
      std::string name,
      MakeBody make_body,
      std::string second_group,
      std::string classifier);

  const std::string& name() const { return name_; }
  const std::string& second_group() const { return second_group_; }
  VisionBody make_body(int64_t in_channels) const {
    return make_body_(in_channels);
  }
  /// Reads weights of this network from a file of any kind that `load_weights`
  /// knows: torchvision's or fastai's names, or what a vision learner saved.
  /// The classifier's are left out. A first convolution for 3 channels is
  /// adapted to others as fastai does: summed for one channel, 0 for further.
  /// \throws c10::ValueError naming what the file lacks or has too much;
  ///         DataError, IoError as `load_weights`.
  void load_pretrained(
      const VisionBody& body,
      const std::filesystem::path& file) const;

  /// The names that the constructor takes.
  static std::vector<std::string> names();

 private:
  std::string name_;
  MakeBody make_body_;
  std::string second_group_, classifier_;
};

}  // namespace tern
