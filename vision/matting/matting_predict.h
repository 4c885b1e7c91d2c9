#pragma once

#include <filesystem>

#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/model.h"
#include "tern/vision/interpret/show.h"

namespace tern {

/// The foreground of an image.
struct Matte {
  torch::Tensor pha;       // [H, W] kFloat, alpha, 0..1
  torch::Tensor fgr;       // [3, H, W] kFloat, RGB, 0..1
  torch::Tensor err = {};  // [H, W] kFloat, expected error of alpha, 0..1
  // [H, W] kFloat, 1 where refined, else 0; undefined of a MattingBase.
  torch::Tensor ref = {};
};

/// Loads a MattingBase or MattingRefine for inference from a file that
/// `Learner::export_model` wrote.
/// \throws DataError if the file is not an exported model; IoError.
Model load_matting_model(
    const std::filesystem::path& file,
    torch::Device device = torch::kCPU);

/// Extracts the foreground from a photograph with a second one of the
/// background.
///
///   Model model = load_matting_model("person.safetensors");
///   auto matte = find_matte(model, read_image("a.jpg"), read_image("b.jpg"));
///   save_image("c.png", place_over(matte, read_image("beach.jpg")));
///
/// \param src, bgr  [H, W, 3] kByte, RGB, of the same size: with and without
///                  the foreground, from the same camera position.
/// \return          On the device of the model, which is left in eval mode.
/// \throws c10::ValueError for images of other or different shapes, or another
///         network.
Matte find_matte(
    Model& model,
    const torch::Tensor& src,
    const torch::Tensor& bgr);

/// Composites it onto another background, which is resized to cover the image
/// and cropped.
/// \param background  [h, w, 3] kByte of any size.
/// \return            [3, H, W] kFloat in 0..1, on the matte's device.
torch::Tensor place_over(const Matte& matte, const torch::Tensor& background);

/// Plots one row per scene: the scene and its background, the actual and the
/// predicted alpha, the foreground over green, and the expected error.
///
/// \param batch    From `matting_augment`.
/// \param outputs  Of a MattingBase or a MattingRefine.
/// \param options  `count` scenes from the start of the batch; `columns` does
///                 not apply.
/// \return         [H, W, 3] kByte.
/// \throws c10::ValueError for other tensors.
torch::Tensor matting_picture(
    const Batch& batch,
    const Tensors& outputs,
    const ShowOptions& options = {.count = 3});

/// The same for the first scenes of a split.
/// \param file  A PNG file, which is replaced.
/// \throws c10::ValueError as above, or if the split is empty; IoError.
void show_mattes(
    Learner& learn,
    const std::filesystem::path& file,
    Split split = Split::valid,
    const ShowOptions& options = {.count = 3});

}  // namespace tern
