#include "tern/vision/interpret/grad_cam.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <opencv2/imgproc.hpp>
#include <torch/autograd.h>
#include <torch/utils.h>

#include "tern/kernels/check.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/loop.h"
#include "tern/learner/report/forward_hooks.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/visible_batch.h"
#include "tern/vision/predict/image_predict.h"

namespace tern {
namespace {

void check_layer(
    const std::vector<std::string>& names,
    const std::string& wanted) {
  TERN_CHECK_VALUE(
      wanted.empty() || std::ranges::count(names, wanted) > 0,
      "[grad_cam] there is no layer \"{}\" whose output can be captured; "
      "expected a child of a torch::nn::Sequential: {}.",
      wanted,
      names.empty() ? "this model has none"
                    : fmt::format("{}", fmt::join(names, ", ")));
}

void check_output(const torch::Tensor& output, const std::string& wanted) {
  TORCH_CHECK_VALUE(
      output.defined(),
      wanted.empty()
          ? "[grad_cam] no layer has an output of at least 4 x 4 cells; use "
            "larger images, or name a layer. A ViT has tokens and no feature "
            "maps: use a convolutional network, or swin_t."
          : fmt::format(
                "[grad_cam] the output of layer \"{}\" has no height and "
                "width; name a convolution, or a layer before the pooling.",
                wanted));
}

torch::Tensor prepared(Learner& learn, const torch::Tensor& sample) {
  Batch batch = Batch{{sample.unsqueeze(0)}, {}}.to(learn.data().device);
  for (const BatchTransform& transform : learn.data().batch_transforms) {
    transform(batch, {.dtype = learn.state().input_dtype});
  }
  return batch.inputs.at(0).to(learn.state().input_dtype);
}

/// Blends the heat map over the image; red is hottest.
torch::Tensor painted(const torch::Tensor& image, const torch::Tensor& heat) {
  const int64_t height = image.size(0), width = image.size(1);
  cv::Mat cells(
      static_cast<int>(heat.size(0)),
      static_cast<int>(heat.size(1)),
      CV_32F,
      const_cast<float*>(heat.const_data_ptr<float>()));
  cv::Mat smooth, bytes, colors, rgb;
  cv::resize(
      cells,
      smooth,
      {static_cast<int>(width), static_cast<int>(height)},
      0,
      0,
      cv::INTER_CUBIC);
  smooth.convertTo(bytes, CV_8U, 255);
  cv::applyColorMap(bytes, colors, cv::COLORMAP_JET);
  cv::cvtColor(colors, rgb, cv::COLOR_BGR2RGB);
  const torch::Tensor hot =
      torch::from_blob(rgb.data, {height, width, 3}, torch::kByte);
  return (image.to(torch::kFloat) * 0.55 + hot.to(torch::kFloat) * 0.45)
      .to(torch::kByte);
}

}  // namespace

GradCam grad_cam(
    Learner& learn,
    const torch::Tensor& sample,
    const GradCamOptions& options) {
  refuse_boxes_and_points(learn.data(), "grad_cam");
  TORCH_CHECK_VALUE(
      sample.defined() && sample.dim() == 3,
      "[grad_cam] the sample is not an image; expected one input of the model "
      "without the batch dimension, [H, W, C] kByte or [C, H, W] "
      "floating-point.");
  GradCam result;
  result.prediction = learn.predict(sample);
  const EvalModeGuard eval(learn.model());
  const torch::AutoGradMode with_gradients(true);
  torch::Tensor output, logits;
  const ForwardHooks hooks(
      learn.model(),
      [&](size_t layer, const torch::Tensor& seen) {
        // fastai's minimum; fewer cells are not informative.
        constexpr int64_t kMinCells = 16;
        // The outputs that follow the patches of a ViT are tokens, so there is
        // no later feature map.
        if (seen.dim() == 3 && options.layer.empty()) output.reset();
        if (seen.dim() != 4) return;
        const std::string& name = hooks.names()[layer];
        if (options.layer.empty() ? seen.size(2) * seen.size(3) >= kMinCells
                                  : name == options.layer) {
          output = seen;
          result.layer = name;
        }
      });
  check_layer(hooks.names(), options.layer);
  loop::in_forward_precision(parts_of(learn), [&] {
    // With this, layers with frozen weights also have a gradient.
    const torch::Tensor input = prepared(learn, sample).requires_grad_(true);
    logits = learn.model().forward({input}).at(0);
  });
  TERN_CHECK_VALUE(
      logits.dim() == 2 && options.target >= -1 &&
          options.target < logits.size(1),
      "[grad_cam] the class is {} and the model returns [{}]; expected -1 "
      "or the number of one of its classes, and [1, classes].",
      options.target,
      fmt::join(logits.sizes(), ", "));
  result.target =
      options.target >= 0 ? options.target : logits[0].argmax().item<int64_t>();
  check_output(output, options.layer);
  const torch::Tensor gradient =
      torch::autograd::grad({logits[0][result.target]}, {output})
          .at(0)[0]
          .to(torch::kFloat);
  const torch::Tensor weights = gradient.mean({1, 2}, /*keepdim=*/true);
  const torch::Tensor heat =
      (output.detach()[0].to(torch::kFloat) * weights).sum(0).relu();
  result.heat = (heat / heat.max().clamp_min(1e-12)).cpu().contiguous();
  return result;
}

GradCam plot_grad_cam(
    Learner& learn,
    const std::filesystem::path& image,
    const std::filesystem::path& picture,
    const GradCamOptions& options) {
  refuse_boxes_and_points(learn.data(), "grad_cam");
  const torch::Tensor sample = prepare_image(learn.data(), image);
  GradCam result = grad_cam(learn, sample, options);
  const torch::Tensor shown =
      visible_batch(learn.data(), {{sample.unsqueeze(0)}, {}}, false).images[0];
  const torch::Tensor& probabilities = result.prediction.probabilities;
  save_image(
      picture,
      image_grid(
          {{shown,
            {{image.filename().string()},
             {class_name(learn.data().classes, result.target)}}},
           {painted(shown, result.heat),
            {{fmt::format(
                 "p {:.2f}",
                 probabilities[result.target].item<double>())},
             {"layer " + result.layer}}}},
          {.columns = 2, .tile = 240}));
  return result;
}

}  // namespace tern
