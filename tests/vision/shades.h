#pragma once

// Gray images of two classes, and a model that classifies them by their mean.

#include <array>
#include <string>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/image_data_bunch.h"

namespace tern::testing_support {

/// One validation image of class "dark" is light, and one of class "light" is
/// slightly dark.
class Shades {
 public:
  Shades() {
    for (const int value : {0, 30, 60}) write("train/dark", value);
    for (const int value : {190, 220, 250}) write("train/light", value);
    for (const int value : {10, 40, 250}) write("valid/dark", value);
    for (const int value : {120, 200, 240}) write("valid/light", value);
  }

  const std::filesystem::path& path() const { return temp_.path(); }
  std::filesystem::path operator/(const std::string& name) const {
    return temp_ / name;
  }

  DataBunch data(ImageDataBunchOptions options = {}) const {
    options.stats = stats::none();
    options.batch_size = 4;
    options.workers = 0;
    options.device = torch::kCPU;
    return ImageDataBunch::from_folder(path(), options);
  }

  /// Predicts "light" if the mean is above one half.
  static torch::nn::Sequential net() {
    torch::nn::Sequential net(
        torch::nn::AdaptiveAvgPool2d(1),
        torch::nn::Flatten(),
        torch::nn::Linear(3, 2));
    const torch::NoGradGuard no_grad;
    const Tensors parameters = net->parameters();
    parameters[0][0].fill_(-1);
    parameters[0][1].fill_(1);
    parameters[1].copy_(torch::tensor({1.5f, -1.5f}));
    return net;
  }

 private:
  void write(const std::string& folder, int value) const {
    make_folders(temp_ / folder);
    const std::string name = folder + "/" + std::to_string(value) + ".png";
    const cv::Mat image(20, 20, CV_8UC3, cv::Scalar::all(value));
    write_file(temp_ / name, encode(image, ".png"));
  }

  TempFolder temp_;
};

/// Returns true if a plot has pixels close to this color.
inline bool has_color(
    const torch::Tensor& picture,
    const std::array<uint8_t, 3>& color) {
  const torch::Tensor wanted = torch::tensor(
      {static_cast<int>(color[0]),
       static_cast<int>(color[1]),
       static_cast<int>(color[2])});
  return ((picture.to(torch::kInt) - wanted).abs().amax(-1) < 12)
      .any()
      .item<bool>();
}

}  // namespace tern::testing_support
