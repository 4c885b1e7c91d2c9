#pragma once

// Folders with a few pairs and backgrounds, and a tiny network.

#include <filesystem>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/interpret/image_grid.h"

namespace tern::testing_support {

/// Folders pairs/{pha,fgr} and backgrounds: discs of increasing brightness, in
/// front of shades of gray. A foreground is black where its alpha is 0;
/// elsewhere it is a color whose red channel is alpha.
class Scenes {
 public:
  explicit Scenes(int64_t pairs = 4, int64_t backgrounds = 5) {
    for (int64_t i = 0; i < pairs; ++i) {
      const std::string name = std::to_string(i) + ".png";
      const torch::Tensor alpha = disc(20 + i);
      write("pairs/pha/" + name, alpha);
      write("pairs/fgr/" + name, colors(alpha));
    }
    for (int64_t i = 0; i < backgrounds; ++i) {
      write(
          "backgrounds/" + std::to_string(i) + ".png",
          torch::full({24, 30, 3}, 40 * (i % 5 + 1), torch::kByte));
    }
  }

  std::filesystem::path pairs() const { return temp_ / "pairs"; }
  std::filesystem::path backgrounds() const { return temp_ / "backgrounds"; }
  std::filesystem::path operator/(const std::string& name) const {
    return temp_ / name;
  }

  void write(const std::string& name, const torch::Tensor& image) const {
    make_folders((temp_ / name).parent_path());
    // PNG bytes for any file name.
    const auto bytes = png_of(image);
    write_file(temp_ / name, bytes);
  }

  /// Returns a disc of radius 6 in the center, [size, size + 4] kByte.
  static torch::Tensor disc(int64_t size) {
    const auto from_middle = [](int64_t n) {
      return torch::arange(n, torch::kFloat) - static_cast<double>(n - 1) / 2;
    };
    const torch::Tensor y = from_middle(size).view({-1, 1});
    const torch::Tensor x = from_middle(size + 4).view({1, -1});
    return ((7 - (x * x + y * y).sqrt()).clamp(0, 1) * 255).to(torch::kByte);
  }

  static torch::Tensor colors(const torch::Tensor& alpha) {
    return torch::stack({alpha, alpha / 2, alpha / 4}, 2).to(torch::kByte);
  }

 private:
  TempFolder temp_;
};

/// One convolution with outputs alpha, foreground and expected error.
class TinyMattingImpl : public torch::nn::Module {
 public:
  TinyMattingImpl() { register_module("conv", conv_); }

  std::vector<torch::Tensor> forward(
      const torch::Tensor& src,
      const torch::Tensor& bgr) {
    const torch::Tensor x = conv_->forward(torch::cat({src, bgr}, 1)).sigmoid();
    return {x.slice(1, 0, 1), x.slice(1, 1, 4), x.slice(1, 4, 5)};
  }

 private:
  torch::nn::Conv2d conv_{torch::nn::Conv2dOptions(6, 5, 3).padding(1)};
};
TORCH_MODULE(TinyMatting);

}  // namespace tern::testing_support
