#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "tern/vision/models/backbone.h"
#include "tern/vision/models/mobilenet_v2.h"
#include "tern/vision/models/resnet.h"
#include "tern/vision/models/xresnet.h"

namespace tern {

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
