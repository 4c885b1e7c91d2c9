#pragma once

// Images with one dark or light square each, and a detector for them.

#include <string>

#include <opencv2/imgproc.hpp>
#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/vision/test_images.h"
#include "tern/vision/data_block.h"
#include "tern/vision/detection_learner.h"
#include "tern/vision/image_data_bunch.h"

namespace tern::testing_support {

/// Twelve images of 64 x 96 pixels; three are for validation.
class Squares {
 public:
  Squares() {
    for (int i = 0; i < 12; ++i) {
      const int x = 8 * i % 60, y = 5 * i % 30, side = 32;
      const bool is_light = i % 2 == 0;
      cv::Mat image(64, 96, CV_8UC3, cv::Scalar(127, 127, 127));
      const double shade = is_light ? 255 : 0;
      cv::rectangle(
          image,
          cv::Rect(x, y, side, side),
          {shade, shade, shade},
          -1);
      const auto path = (temp_ / (std::to_string(i) + ".png")).string();
      write_file(path, encode(image, ".png"));
      annotations_.images.push_back(
          {path,
           {{{static_cast<double>(x),
              static_cast<double>(y),
              static_cast<double>(x + side),
              static_cast<double>(y + side),
              is_light ? "light" : "dark"}},
            {64, 96}}});
    }
  }

  std::filesystem::path operator/(const std::string& name) const {
    return temp_ / name;
  }
  const std::string& image(size_t index) const {
    return annotations_.images.at(index).path;
  }

  ImageItems items() const { return annotations_.items(); }
  DataBlock block() const {
    return {
        .items = annotations_.items(),
        .split = split_at_random(0.25, 1),
        .boxes = annotations_.labeller()};
  }

  DataBunch data(int64_t batch_size = 4) const {
    return block().bunch(
        {.size = 64,
         .resize = ResizeMethod::pad,
         .batch_size = batch_size,
         .workers = 0,
         .device = torch::kCPU});
  }

  Learner learner(DetectionLearnerOptions options = {}, int64_t batch_size = 4)
      const {
    options.learner = quiet(options.learner);
    options.learner.seed = 1;
    return detection_learner(
        data(batch_size),
        "retinanet_resnet18_fpn",
        options);
  }

 private:
  TempFolder temp_;
  BoxAnnotations annotations_;
};

}  // namespace tern::testing_support
