#pragma once

#include <cstdint>

#include <torch/types.h>

namespace tern {

/// Squares of the pictures of a batch, on a grid: entry i is in picture
/// `image[i]`, the `row[i]`-th from above and the `column[i]`-th from the left.
struct PatchPlaces {
  torch::Tensor image, row, column;  // [P] kLong

  int64_t size() const { return image.size(0); }
};

/// Where `chosen` [N, h, w] is not 0. On a GPU this waits for it: how many
/// there are decides the shapes of what follows.
PatchPlaces patch_places(const torch::Tensor& chosen);

/// Cuts squares out of pictures.
///
/// \param images  [N, C, h * side, w * side].
/// \param places  On the grid [N, h, w], on the device of `images`.
/// \param border  How far a patch reaches beyond its square, on all sides;
///                outside the picture there are zeros.
/// \return [P, C, side + 2 * border, side + 2 * border], channels-last.
///
/// Copies whole rows of a patch, all channels at once.
torch::Tensor crop_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    int64_t side,
    int64_t border);

/// Pictures with patches in the place of their squares.
///
/// \param images   [N, C, h * side, w * side]; may be written to, so no leaf
///                 that gradients are wanted for.
/// \param places   On the grid [N, h, w], each at most once.
/// \param patches  [P, C, side, side]; takes the type of `images`.
/// \return as `images`, channels-last.
torch::Tensor replace_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    const torch::Tensor& patches);

}  // namespace tern
