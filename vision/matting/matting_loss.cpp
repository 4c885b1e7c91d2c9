#include "tern/vision/matting/matting_loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/error_text.h"

namespace tern {
namespace {

bool is_picture(const torch::Tensor& tensor, int64_t channels) {
  return tensor.dim() == 4 && tensor.size(1) == channels &&
         tensor.is_floating_point();
}

/// \param channels  Of each output that the loss looks at.
/// \param full      How many of them have the size of the targets.
void check(
    const char* name,
    const Tensors& outputs,
    const Tensors& targets,
    const std::vector<int64_t>& channels,
    size_t full) {
  bool fits = outputs.size() >= channels.size() && targets.size() == 2 &&
              is_picture(targets[0], 1) && is_picture(targets[1], 3);
  for (size_t i = 0; fits && i < channels.size(); ++i) {
    fits = is_picture(outputs[i], channels[i]) &&
           (i >= full ||
            outputs[i].sizes() == targets[channels[i] == 1 ? 0 : 1].sizes());
  }
  TORCH_CHECK_VALUE(
      fits,
      fmt::format(
          "[{}] the outputs are {} and the targets {}; expected pictures of {} "
          "channels, the first {} of the size of the targets, and as targets "
          "alpha [N, 1, H, W] and foreground [N, 3, H, W]. Use matting_data, "
          "and the network that belongs to the loss.",
          name,
          shapes_of(outputs),
          shapes_of(targets),
          fmt::join(channels, ", "),
          full));
}

torch::Tensor resized(const torch::Tensor& x, const torch::Tensor& like) {
  return torch::upsample_bilinear2d(
      x,
      {like.size(2), like.size(3)},
      /*align_corners=*/false);
}

/// Of alpha, its gradient, and the foreground where there is some.
torch::Tensor picture_loss(
    const torch::Tensor& pha,
    const torch::Tensor& fgr,
    const torch::Tensor& true_pha,
    const torch::Tensor& true_fgr) {
  const torch::Tensor mask = true_pha != 0;
  return torch::l1_loss(pha, true_pha) +
         torch::l1_loss(sobel(pha), sobel(true_pha)) +
         torch::l1_loss(fgr * mask, true_fgr * mask);
}

}  // namespace

torch::Tensor matting_base_loss(
    const Tensors& outputs,
    const Tensors& targets) {
  check("matting_base_loss", outputs, targets, {1, 3, 1}, 3);
  const torch::Tensor &pha = outputs[0], &true_pha = targets[0];
  return picture_loss(pha, outputs[1], true_pha, targets[1]) +
         torch::mse_loss(outputs[2], (pha.detach() - true_pha).abs());
}

torch::Tensor matting_refine_loss(
    const Tensors& outputs,
    const Tensors& targets) {
  check("matting_refine_loss", outputs, targets, {1, 3, 1, 3, 1}, 2);
  const torch::Tensor &true_pha = targets[0], &true_fgr = targets[1];
  const torch::Tensor &pha_sm = outputs[2], &fgr_sm = outputs[3];
  // Here, other than in the base's loss, the error learns alpha too.
  const torch::Tensor error = (resized(pha_sm, true_pha) - true_pha).abs();
  return picture_loss(outputs[0], outputs[1], true_pha, true_fgr) +
         picture_loss(
             pha_sm,
             fgr_sm,
             resized(true_pha, pha_sm),
             resized(true_fgr, fgr_sm)) +
         torch::mse_loss(resized(outputs[4], true_pha), error);
}

// Sums of shifted pictures and no convolution, which autocast would compute in
// 16 bits.
torch::Tensor sobel(const torch::Tensor& x) {
  TORCH_CHECK_VALUE(
      x.dim() == 4 && x.is_floating_point(),
      fmt::format(
          "[sobel] x is [{}] {}; expected [N, C, H, W] floating.",
          fmt::join(x.sizes(), ", "),
          c10::toString(x.scalar_type())));
  const torch::Tensor padded = torch::replication_pad2d(x, {1, 1, 1, 1});
  const auto shifted = [&](const torch::Tensor& t, int64_t dim, int64_t by) {
    return t.slice(dim, by, by + x.size(dim));
  };
  const auto smooth = [&](int64_t dim) {
    return shifted(padded, dim, 0) + 2 * shifted(padded, dim, 1) +
           shifted(padded, dim, 2);
  };
  const auto difference = [&](int64_t dim, const torch::Tensor& t) {
    return (shifted(t, dim, 2) - shifted(t, dim, 0)) / 8;
  };
  const torch::Tensor gx = difference(3, smooth(2));
  const torch::Tensor gy = difference(2, smooth(3));
  return (gx.square() + gy.square() + 1e-6).sqrt();
}

}  // namespace tern
