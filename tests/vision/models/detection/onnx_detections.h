#pragma once

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/formats/file_io.h"
#include "tern/kernels/boxes/box_ops.h"
#include "tern/learner/detections.h"
#include "tern/learner/export/onnx/export_onnx.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/onnx_case.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::testing_support {

/// Exports detectors for check_onnx.py.
class OnnxDetections : public testing::Test {
 protected:
  OnnxDetections() {
    const char* const shared = std::getenv("TERN_ONNX_FOLDER");
    folder_ = shared != nullptr ? std::filesystem::path(shared) : temp_.path();
    make_folders(folder_);
    torch::manual_seed(11);
  }

  void write(
      const std::string& name,
      const Model& model,
      const Tensors& inputs,
      OnnxOptions options,
      double tolerance = 1e-4,
      const Tensors& given = {}) {
    write_onnx_case(
        folder_,
        name,
        model,
        inputs,
        options,
        tolerance,
        given,
        [&](const Tensors& y) -> Tensors {
          if (options.nms) return decode_detections(y, *options.detection);
          return {
              clip_boxes_to_image(decode_boxes(y[1], y[2]), y[3]),
              y[0].sigmoid()};
        });
  }

  void refuses(
      const Model& model,
      const Tensors& inputs,
      const OnnxOptions& options,
      std::initializer_list<std::string_view> words) {
    expect_error<c10::ValueError>(
        [&] { export_onnx(model, temp_ / "refused.onnx", inputs, options); },
        words);
    EXPECT_FALSE(std::filesystem::exists(temp_ / "refused.onnx"));
  }

  TempFolder temp_;
  std::filesystem::path folder_;
  const DetectionOptions usual_{
      .score_thresh = 0.45,
      .topk_candidates = 80,
      .nms_thresh = 0.4,
      .detections_per_img = 15};
};

}  // namespace tern::testing_support
