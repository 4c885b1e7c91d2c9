#include "tern/vision/matting/matting_predict.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <torch/utils.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/eval_mode.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/matting/tensor_filters.h"
#include "tern/vision/models/build_model.h"

namespace tern {

namespace {

bool is_photo(const torch::Tensor& image) {
  return image.defined() && image.dim() == 3 && image.size(2) == 3 &&
         image.scalar_type() == torch::kByte && image.numel() > 0;
}

/// Repeats the last row and column until both sides are divisible by 4, as the
/// refining network requires.
torch::Tensor padded(const torch::Tensor& x) {
  const auto missing = [](int64_t size) { return (4 - size % 4) % 4; };
  return torch::replication_pad2d(
      x,
      {0, missing(x.size(3)), 0, missing(x.size(2))});
}

torch::Tensor green_like(const torch::Tensor& fgr) {
  return torch::tensor({0.2f, 0.7f, 0.35f}, fgr.options())
      .view({3, 1, 1})
      .expand_as(fgr);
}

/// Returns the third output of a MattingBase or the fifth of a MattingRefine.
const torch::Tensor& expected_error(const Tensors& outputs) {
  return outputs[outputs.size() >= 5 ? 4 : 2];
}

}  // namespace

Model load_matting_model(
    const std::filesystem::path& file,
    torch::Device device) {
  Model model = load_exported(file).first;
  model.to(device);
  return model;
}

Matte find_matte(
    Model& model,
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  TERN_CHECK_VALUE(
      is_photo(src) && is_photo(bgr) && src.sizes() == bgr.sizes(),
      "[find_matte] the image is {} and the background is {}; expected two "
      "images of the same size, [H, W, 3] kByte. Take both photos from the "
      "same place with the same camera.",
      shapes_of({src}),
      shapes_of({bgr}));
  const torch::NoGradGuard no_grad;
  const torch::Device device = model.parameters().at(0).tensor.device();
  const EvalModeGuard eval(model);
  const Tensors outputs = model.forward(
      {padded(from_bytes(src.unsqueeze(0).to(device))),
       padded(from_bytes(bgr.unsqueeze(0).to(device)))});
  TERN_CHECK_VALUE(
      outputs.size() >= 3,
      "[find_matte] the model has {} outputs; expected a MattingBase or a "
      "MattingRefine.",
      outputs.size());
  const auto cut = [&](const torch::Tensor& x) {
    return x.slice(2, 0, src.size(0))
        .slice(3, 0, src.size(1))
        .to(torch::kFloat)[0];
  };
  const auto size = outputs[0].sizes().slice(2);
  Matte matte{
      cut(outputs[0])[0],
      cut(outputs[1]),
      cut(torch::upsample_bilinear2d(expected_error(outputs), size, false))[0]};
  if (outputs.size() >= 6) {
    matte.ref = cut(torch::upsample_nearest2d(outputs[5], size))[0];
  }
  return matte;
}

torch::Tensor place_over(const Matte& matte, const torch::Tensor& background) {
  TORCH_CHECK_VALUE(
      is_photo(background),
      "[place_over] the background is not [H, W, 3] kByte; expected an image "
      "as read_image returns it.");
  const torch::Tensor behind = cover_batch(
      from_bytes(background.unsqueeze(0).to(matte.fgr.device())),
      {matte.pha.size(0), matte.pha.size(1)});
  return torch::lerp(behind[0], matte.fgr, matte.pha);
}

torch::Tensor matting_picture(
    const Batch& batch,
    const Tensors& outputs,
    const ShowOptions& options) {
  TERN_CHECK_VALUE(
      batch.inputs.size() == 2 && batch.targets.size() == 2 &&
          outputs.size() >= 3 && batch.inputs[0].dim() == 4 &&
          batch.inputs[0].size(0) > 0 &&
          outputs[1].sizes() == batch.inputs[0].sizes() && options.count > 0,
      "[matting_picture] the batch has {} inputs and {} targets, the model {} "
      "outputs, and count is {}; expected two inputs and targets, as from "
      "matting_augment, at least the three outputs of a matting network, and a "
      "count of at least 1.",
      batch.inputs.size(),
      batch.targets.size(),
      outputs.size(),
      options.count);
  std::vector<Picture> pictures;
  const int64_t count = std::min(options.count, batch.size());
  for (int64_t i = 0; i < count; ++i) {
    const torch::Tensor pha = outputs[0][i].detach();
    const torch::Tensor fgr = outputs[1][i].detach();
    const auto add = [&](const torch::Tensor& picture, const char* caption) {
      pictures.push_back({picture, {{caption}}});
    };
    add(batch.inputs[0][i], "scene");
    add(batch.inputs[1][i], "background");
    add(batch.targets[0][i], "true alpha");
    add(pha, "alpha");
    add(torch::lerp(green_like(fgr), fgr, pha), "over green");
    add(expected_error(outputs)[i], "expected error");
  }
  return image_grid(pictures, {.columns = 6, .tile = options.tile});
}

void show_mattes(
    Learner& learn,
    const std::filesystem::path& file,
    Split split,
    const ShowOptions& options) {
  DataBunch& data = learn.data();
  const DataLoader loader = data.loader(split).in_order();
  std::optional<Batch> batch = loader.epoch(0).next();
  TERN_CHECK_VALUE(
      batch,
      "[show_mattes] the {} loader has no batch; expected at least one sample.",
      to_string(split));
  *batch = batch->to(data.device);
  for (const BatchTransform& transform : data.batch_transforms) {
    transform(*batch, {});
  }
  const torch::NoGradGuard no_grad;
  const EvalModeGuard eval(learn.model());
  const Tensors outputs = learn.model().forward(batch->inputs);
  save_image(file, matting_picture(*batch, outputs, options));
}

}  // namespace tern
