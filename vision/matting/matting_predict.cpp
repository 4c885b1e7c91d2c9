#include "tern/vision/matting/matting_predict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include "tern/learner/weights/model_card.h"
#include "tern/learner/weights/weights.h"
#include "tern/vision/matting/tensor_filters.h"
#include "tern/vision/models/build_model.h"

namespace tern {
namespace {

bool is_photograph(const torch::Tensor& image) {
  return image.defined() && image.dim() == 3 && image.size(2) == 3 &&
         image.scalar_type() == torch::kByte && image.numel() > 0;
}

/// Repeats the last row and column until both sides divide by 4, which the
/// refining network wants.
torch::Tensor padded(const torch::Tensor& x) {
  const auto missing = [](int64_t size) { return (4 - size % 4) % 4; };
  return torch::replication_pad2d(
      x,
      {0, missing(x.size(3)), 0, missing(x.size(2))});
}

}  // namespace

Model load_matting_model(
    const std::filesystem::path& file,
    torch::Device device) {
  const ModelCard card =
      parse_model_card(safetensors_metadata(file), file.string());
  Model model = build_model(card.architecture);
  model.load_state_dict(load_weights(file));
  model.to(device);
  model.eval();
  return model;
}

Matte find_matte(
    Model& model,
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  const auto shape = [](const torch::Tensor& image) {
    return image.defined() ? fmt::format(
                                 "[{}] {}",
                                 fmt::join(image.sizes(), ", "),
                                 c10::toString(image.scalar_type()))
                           : "undefined";
  };
  TORCH_CHECK_VALUE(
      is_photograph(src) && is_photograph(bgr) && src.sizes() == bgr.sizes(),
      fmt::format(
          "[find_matte] the photograph is {} and that of the background {}; "
          "expected two of one size, [H, W, 3] kByte. Take both from the same "
          "place with the same camera.",
          shape(src),
          shape(bgr)));
  const torch::NoGradGuard no_grad;
  const torch::Device device = model.parameters().at(0).tensor.device();
  model.eval();
  const Tensors outputs = model.forward(
      {padded(from_bytes(src.unsqueeze(0).to(device))),
       padded(from_bytes(bgr.unsqueeze(0).to(device)))});
  TORCH_CHECK_VALUE(
      outputs.size() >= 3,
      fmt::format(
          "[find_matte] the model has {} outputs; expected a MattingBase or a "
          "MattingRefine.",
          outputs.size()));
  const auto cut = [&](const torch::Tensor& x) {
    return x.slice(2, 0, src.size(0))
        .slice(3, 0, src.size(1))
        .to(torch::kFloat);
  };
  return {cut(outputs[0])[0][0], cut(outputs[1])[0]};
}

torch::Tensor place_over(const Matte& matte, const torch::Tensor& background) {
  TORCH_CHECK_VALUE(
      is_photograph(background),
      "[place_over] the background is no [H, W, 3] kByte; expected a "
      "photograph "
      "as read_image gives it.");
  const torch::Tensor behind = cover_batch(
      from_bytes(background.unsqueeze(0).to(matte.fgr.device())),
      {matte.pha.size(0), matte.pha.size(1)});
  return torch::lerp(behind[0], matte.fgr, matte.pha);
}

}  // namespace tern
