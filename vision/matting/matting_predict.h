#pragma once

#include <filesystem>

#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/model.h"
#include "tern/vision/interpret/show.h"

namespace tern {

/// The extracted foreground of an image.
struct Matte {
  torch::Tensor pha;       // [H, W] kFloat, alpha, 0..1
  torch::Tensor fgr;       // [3, H, W] kFloat, RGB, 0..1
  torch::Tensor err = {};  // [H, W] kFloat, expected error of alpha, 0..1
  // [H, W] kFloat, 1 where refined, else 0; undefined for a MattingBase.
  torch::Tensor ref = {};
};

/// Loads a MattingBase or MattingRefine for inference from a file that
/// `Learner::export_model` wrote.
/// \throws DataError if the file is not an exported model; IoError.
Model load_matting_model(
    const std::filesystem::path& file,
    torch::Device device = torch::kCPU);

/// Extracts the foreground of a photo, given a second photo of the background
/// alone.
///
///   Model model = load_matting_model("person.safetensors");
///   auto matte = find_matte(model, read_image("a.jpg"), read_image("b.jpg"));
///   save_image("c.png", place_over(matte, read_image("beach.jpg")));
///
/// \param src, bgr  [H, W, 3] kByte, RGB, of the same size: photos with and
///                  without the foreground, from the same camera position.
/// \return          On the model's device. The model runs in eval mode; its
///                  previous mode is restored.
/// \throws c10::ValueError if the images have any other shape or differ in
///         shape, or if the model is any other network.
Matte find_matte(
    Model& model,
    const torch::Tensor& src,
    const torch::Tensor& bgr);

/// Composites the matte onto a different background, which is resized to cover
/// the image and center-cropped.
/// \param background  [h, w, 3] kByte of any size.
/// \return            [3, H, W] kFloat in 0..1, on the device of the matte.
torch::Tensor place_over(const Matte& matte, const torch::Tensor& background);

/// Plots scenes, one row each: the scene, its background, the actual and the
/// predicted alpha, the foreground over green, and the expected error.
///
/// \param batch    From `matting_augment`.
/// \param outputs  From a MattingBase or a MattingRefine.
/// \param options  Plots the first `count` scenes of the batch; `columns` is
///                 ignored.
/// \return         [H, W, 3] kByte
/// \throws c10::ValueError for tensors of any other form.
torch::Tensor matting_picture(
    const Batch& batch,
    const Tensors& outputs,
    const ShowOptions& options = {.count = 3});

/// Plots the first scenes of a split, as `matting_picture` does.
/// \param file  A PNG file, which is replaced.
/// \throws the errors of `matting_picture`; c10::ValueError if the split is
///         empty; IoError.
void show_mattes(
    Learner& learn,
    const std::filesystem::path& file,
    Split split = Split::valid,
    const ShowOptions& options = {.count = 3});

}  // namespace tern
