#include "tern/vision/models/patches.h"

namespace tern {

namespace {

// [N, C, H, W] -> [N, H, W, C], contiguous; no copy if it is channels-last.
torch::Tensor channels_behind(const torch::Tensor& images) {
  return images.permute({0, 2, 3, 1}).contiguous();
}

torch::Tensor channels_second(const torch::Tensor& images) {
  return images.permute({0, 3, 1, 2});
}

}  // namespace

PatchPlaces patch_places(const torch::Tensor& chosen) {
  const torch::Tensor at = chosen.nonzero();
  return {at.select(1, 0), at.select(1, 1), at.select(1, 2)};
}

torch::Tensor crop_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    int64_t side,
    int64_t border) {
  const int64_t channels = images.size(1), full = side + 2 * border;
  const torch::Tensor padded =
      border == 0
          ? images
          : torch::constant_pad_nd(images, {border, border, border, border});
  // [N, H + 2 * border, w, full * C]: what of each row of pixels belongs to a
  // patch of that column. A view, in which patches overlap.
  const torch::Tensor rows = channels_behind(padded).flatten(2).unfold(
      2,
      full * channels,
      side * channels);
  const torch::Tensor row_numbers = places.row.unsqueeze(1) * side +
                                    torch::arange(full, places.row.options());
  const torch::Tensor patches = rows.index(
      {places.image.unsqueeze(1), row_numbers, places.column.unsqueeze(1)});
  return channels_second(patches.view({-1, full, full, channels}));
}

torch::Tensor replace_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    const torch::Tensor& patches) {
  const int64_t side = patches.size(2), channels = images.size(1);
  const int64_t h = images.size(2) / side, w = images.size(3) / side;
  const torch::Tensor result = channels_behind(images);
  torch::Tensor grid =
      result.view({images.size(0), h, side, w, side * channels})
          .transpose(2, 3);
  grid.index_put_(
      {places.image, places.row, places.column},
      channels_behind(patches.to(images.scalar_type()))
          .view({-1, side, side * channels}));
  return channels_second(result);
}

}  // namespace tern
