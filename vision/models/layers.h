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

/// A Sequential that may be part of another one and may have parameters of its
/// own, and whose clones keep the names of its modules.
class LayersImpl : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  torch::Tensor forward(const torch::Tensor& x);
  std::shared_ptr<Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
};
TORCH_MODULE(Layers);

/// Registers a part of a module under a name; without one, the part's own parts
/// in its place.
void register_part(
    torch::nn::Module& whole,
    const std::string& name,
    const std::shared_ptr<torch::nn::Module>& part);

/// Multiplies each channel by a gate in 0..1, which two 1x1 convolutions "fc1"
/// and "fc2" compute from the means of all channels (Hu et al.,
/// "Squeeze-and-Excitation Networks", 2018): [N, C, H, W] -> the same shape.
class SqueezeExcitationImpl
    : public torch::nn::Cloneable<SqueezeExcitationImpl> {
 public:
  /// \param squeezed  Channels between the convolutions.
  /// \param middle    Activation there.
  /// \param gate      Activation at the end: a sigmoid, or a hard one.
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

/// A block that drops what it adds to its input for a share of the samples
/// while training (Huang et al., "Deep Networks with Stochastic Depth", 2016;
/// "drop path" in timm). Blocks derive from it.
class StochasticDepth {
 public:
  /// Share of the samples.
  double stochastic_depth = 0;

 protected:
  /// Returns `branch`, in training 0 for these samples and divided by 1 -
  /// stochastic_depth for the others.
  torch::Tensor dropped(const torch::Tensor& branch, bool is_training) const;
};

/// Sets the share of each block of a network: 0 for the first, from there it
/// rises evenly to `last` for the last one.
/// \throws c10::ValueError unless `last` is in [0, 1) and there are blocks that
///         can be dropped.
void set_stochastic_depth(torch::nn::Module& network, double last);

/// LayerNorm or Linear over the channels of [N, C, H, W], or another module of
/// [N, H, W, C], which costs nothing more where maps are stored channels-last.
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

/// What networks share whose features are one sequence of layers, "features",
/// before a "classifier".
class FeatureNetwork : public Backbone {
 public:
  /// [N, in_channels, H, W] -> [N, num_classes], logits; without a classifier
  /// the means of the features.
  /// \throws c10::ValueError if the images are too small for the network.
  torch::Tensor forward(const torch::Tensor& x);

  std::vector<int64_t> stage_channels() const override { return channels_; }
  torch::Tensor stage(size_t index, const torch::Tensor& x) override;

 protected:
  /// Removes all layers, in `reset`.
  /// \param least_side  Pixels that H and W need for the last stage to have
  ///                    any.
  void clear(int64_t least_side = 1);
  /// Appends a layer to `features_`, under this name or its number. One with a
  /// stride begins a stage.
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
  std::vector<size_t> ends_;  // of the stages in `features_`
};

}  // namespace tern
