#pragma once

#include <filesystem>

#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern {

/// What was in front in a photograph.
struct Matte {
  torch::Tensor pha;  // [H, W] kFloat, how much of a pixel it is, 0..1
  torch::Tensor fgr;  // [3, H, W] kFloat, its RGB, 0..1
};

/// The network in a file that `Learner::export_model` wrote of a MattingBase or
/// a MattingRefine, to answer with.
/// \throws DataError if the file is none, IoError.
Model load_matting_model(
    const std::filesystem::path& file,
    torch::Device device = torch::kCPU);

/// Finds what stands before a background of which there is a photograph too.
///
///   Model model = load_matting_model("person.safetensors");
///   auto matte = find_matte(model, read_image("a.jpg"), read_image("b.jpg"));
///   save_image("c.png", place_over(matte, read_image("beach.jpg")));
///
/// \param src, bgr  [H, W, 3] kByte, RGB, of one size and any: with what is in
///                  front, and without it, from the same place.
/// \return          On the device of the model, which is in eval mode
///                  afterwards.
/// \throws c10::ValueError for pictures of other or different shapes, or
///         another kind of network.
Matte find_matte(
    Model& model,
    const torch::Tensor& src,
    const torch::Tensor& bgr);

/// Puts it before another background, which is enlarged or made smaller so that
/// it covers the picture, and cut.
/// \param background  [h, w, 3] kByte of any size.
/// \return            [3, H, W] kFloat in 0..1, on the matte's device.
torch::Tensor place_over(const Matte& matte, const torch::Tensor& background);

}  // namespace tern
