#include "tern/vision/models/aspp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/pooling.h>

#include "tern/data/batch.h"

namespace tern {

namespace {

constexpr double kDropout = 0.5;

// Behind `layers`. A dilation of 0 stands for a 1x1 convolution.
torch::nn::Sequential convolution(
    int64_t in,
    int64_t out,
    int64_t dilation = 0,
    torch::nn::Sequential layers = {}) {
  auto options = torch::nn::Conv2dOptions(in, out, dilation == 0 ? 1 : 3);
  if (dilation > 0) options.padding(dilation).dilation(dilation);
  layers->push_back(torch::nn::Conv2d(options.bias(false)));
  layers->push_back(torch::nn::BatchNorm2d(out));
  layers->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  return layers;
}

}  // namespace

AsppImpl::AsppImpl(int64_t in, std::vector<int64_t> rates, int64_t out)
    : in_(in), out_(out), rates_(std::move(rates)) {
  reset();
}

void AsppImpl::reset() {
  convs_ = register_module("convs", torch::nn::ModuleList());
  convs_->push_back(convolution(in_, out_));
  for (const int64_t rate : rates_) {
    convs_->push_back(convolution(in_, out_, rate));
  }
  const torch::nn::Sequential mean(torch::nn::AdaptiveAvgPool2d(1));
  convs_->push_back(convolution(in_, out_, 0, mean));
  torch::nn::Sequential project =
      convolution(static_cast<int64_t>(convs_->size()) * out_, out_);
  project->push_back(torch::nn::Dropout(kDropout));
  project_ = register_module("project", project);
}

torch::Tensor AsppImpl::forward(const torch::Tensor& x) {
  TORCH_CHECK_VALUE(
      x.size(0) > 1 || !is_training(),
      "[Aspp] a batch of one picture came in training; expected two or more, "
      "since the mean of a picture is normalised over the batch. Give larger "
      "batches, with drop_last for the last one.");
  Tensors seen;
  for (const auto& conv : *convs_) {
    seen.push_back(conv->as<torch::nn::Sequential>()->forward(x));
  }
  seen.back() = seen.back()
                    .expand({-1, -1, x.size(2), x.size(3)})
                    .contiguous(torch::MemoryFormat::ChannelsLast);
  return project_->forward(torch::cat(seen, 1));
}

}  // namespace tern
