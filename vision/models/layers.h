#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/backbone.h"

namespace tern {

/// A Sequential that can be nested in another Sequential and can have
/// parameters itself. Its clones keep the names of its modules, unlike
/// Sequential's clones.
class LayersImpl : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(const torch::Tensor& x);
  std::shared_ptr<Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(Layers);

/// Registers `part` in `whole` under `name`. If `name` is empty, registers the
/// parameters and children of `part` directly in `whole`.
void register_part(
    torch::nn::Module& whole,
    const std::string& name,
    const std::shared_ptr<torch::nn::Module>& part);

/// Multiplies each channel by a gate in 0..1 (Hu et al.,
/// "Squeeze-and-Excitation Networks", 2018). Two 1x1 convolutions, "fc1" and
/// "fc2", compute the gates from the channel means. [N, C, H, W] -> the same
/// shape.
class SqueezeExcitationImpl
    : public torch::nn::Cloneable<SqueezeExcitationImpl> {
 public:
  /// \param squeezed  Channels between the two convolutions.
  /// \param middle    Activation between the two convolutions.
  /// \param gate      Activation after the second convolution: sigmoid or
  ///                  hard_sigmoid.
  SqueezeExcitationImpl(
      int64_t channels,
      int64_t squeezed,
      LayerEnd middle = LayerEnd::relu,
      LayerEnd gate = LayerEnd::sigmoid);
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);

 private:
  int64_t channels_, squeezed_;
  LayerEnd middle_, gate_;
  torch::nn::Conv2d fc1_{nullptr}, fc2_{nullptr};
};
TORCH_MODULE(SqueezeExcitation);

/// Base class of residual blocks that drop their residual branch for a random
/// fraction of the samples in training (Huang et al., "Deep Networks with
/// Stochastic Depth", 2016; "drop path" in timm).
class StochasticDepth {
 public:
  /// Probability that a sample's branch is dropped.
  double stochastic_depth = 0;

 protected:
  /// Returns `branch`. In training, sets it to 0 for the dropped samples and
  /// divides it by 1 - stochastic_depth for the others.
  torch::Tensor dropped(const torch::Tensor& branch, bool is_training) const;
};

/// Sets the drop probability of every StochasticDepth block of a network: 0 for
/// the first block, rising linearly to `last` for the last block.
/// \throws c10::ValueError unless `last` is in [0, 1) and the network has such
///         blocks.
void set_stochastic_depth(torch::nn::Module& network, double last);

/// Applies a module that expects [N, H, W, C], such as LayerNorm or Linear, to
/// [N, C, H, W]. The permutations are free if the input is stored
/// channels-last.
template <class Base>
class OverChannelsImpl : public Base {
 public:
  using Base::Base;
  torch::Tensor forward(const torch::Tensor& x) {
    return Base::forward(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
  }
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device =
          std::nullopt) const override {
    const auto copy = std::make_shared<OverChannelsImpl>(this->options);
    static_cast<Base&>(*copy) = dynamic_cast<Base&>(*Base::clone(device));
    return copy;
  }
};
using LayerNorm2dImpl = OverChannelsImpl<torch::nn::LayerNormImpl>;
using Linear2dImpl = OverChannelsImpl<torch::nn::LinearImpl>;
TORCH_MODULE(LayerNorm2d);
TORCH_MODULE(Linear2d);

/// Base class of networks that consist of one sequence of layers, "features",
/// and a classifier.
class FeatureNetwork : public Backbone {
 public:
  /// [N, in_channels, H, W] -> [N, num_classes], logits. Without a classifier,
  /// returns the means of the features.
  /// \throws c10::ValueError if the images are too small for the network.
  torch::Tensor forward(const torch::Tensor& x);

  std::vector<int64_t> stage_channels() const override { return channels_; }
  torch::Tensor stage(size_t index, const torch::Tensor& x) override;

 protected:
  /// Removes all layers; `reset` calls it first.
  /// \param least_side  Minimum H and W of an image, in pixels, for which the
  ///                    last stage's output is not empty.
  void clear(int64_t least_side = 1);
  /// Appends a layer to `features_` under `name`, or under its index if `name`
  /// is empty. A layer with a stride above 1 begins a new stage.
  template <class Layer>
  void add(
      const Layer& layer,
      int64_t channels,
      int64_t stride = 1,
      std::string name = {}) {
    if (name.empty()) name = std::to_string(features_->size());
    features_->push_back(std::move(name), layer);
    appended(channels, stride);
  }

  Layers features_{nullptr};
  torch::nn::AnyModule classifier_;

 private:
  void appended(int64_t channels, int64_t stride);

  int64_t least_side_ = 1;
  std::vector<int64_t> channels_;
  std::vector<size_t> ends_;  // of each stage: one past its last layer
};

}  // namespace tern
