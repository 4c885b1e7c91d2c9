#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/batch.h"
#include "tern/data/image_preprocessing.h"
#include "tern/data/output_info.h"
#include "tern/learner/model.h"

namespace tern {

struct OnnxOptions {
  /// Empty: "input" and "output", or "input_0", "input_1" and so on; with
  /// `detection` "boxes", "scores" and "labels".
  std::vector<std::string> input_names = {}, output_names = {};
  /// Any size of the first dimension of all inputs; otherwise the example's.
  bool dynamic_batch = true;
  /// Any height and width of inputs [N, C, H, W]: traces about twice the height
  /// and three times the width too. Of a network that cannot be run at odd sizes,
  /// multiples of the example's. One whose path differs there, as a U-Net's does,
  /// is written with that path if it gives the same at even sizes, or refused.
  bool dynamic_size = false;
  /// Stores weights of 1,000 numbers and more in fp16; all computes in fp32.
  bool half = false;
  /// Writes LayerNorm as mean, difference, power and division, for readers
  /// without LayerNormalization, such as OpenCV 4.6.
  bool decompose_layer_norm = false;
  /// If set, the file takes RGB bytes [N, H, W, C], scales them to 0..1 and
  /// normalizes. Usually `learn.data().preprocessing`; resizing stays outside.
  std::optional<ImagePreprocessing> preprocessing = std::nullopt;
  /// If set, the file gives the boxes of a RetinaNet in place of its four
  /// outputs: boxes [N, A, 4], decoded and clipped, in pixels of the input, and
  /// scores [N, A, C]. Usually `learn.data().outputs[0].detection`.
  std::optional<DetectionOptions> detection = std::nullopt;
  /// With `detection`: non-maximum suppression in the file, by its thresholds
  /// and numbers. The file gives what `decode_detections` does: boxes [N, D, 4],
  /// scores [N, D] and labels [N, D], D = detections_per_img; after the last
  /// detection 0, 0 and -1.
  bool nms = false;
  /// Writes `path`.sha256 beside it, for `sha256sum -c`: ONNX has no checksums.
  bool sha256_file = false;
};

/// Writes what a model computes in eval mode as ONNX of opset 17, for ONNX
/// Runtime, OpenCV's cv::dnn and others, without Python. BatchNorm is folded
/// into convolutions, dropout left out. An older file is replaced as a whole.
///
///   export_onnx(model, "net.onnx", {torch::rand({1, 3, 224, 224})});
///
/// `Learner::export_onnx(path, example_inputs, options)` does it for a Learner's
/// model, in fp32.
///
/// A trace has one path: what `forward` decides by looking at values is decided
/// for good. What it takes from the size of the batch is dynamic in the file.
/// What the file gives is computed, as ONNX's specification says, and compared
/// with the model for other sizes than the traced ones before it is written.
///
/// \param example_inputs  One batch of one sample or more, as `forward` gets
///                        it, on the model's device and of its type.
/// \throws c10::ValueError naming an operator that the exporter cannot write,
///         the module it is in and what to write instead; if there is no
///         input, the number of names differs from that of inputs or outputs,
///         the model is TorchScript, weights take more than 2 GiB, or the file
///         would give something else than the model; for `detection` of a
///         model that has other outputs than a RetinaNet, or out of range, and
///         for `nms` without it; IoError. Nothing is written then.
void export_onnx(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const OnnxOptions& options = {});

}  // namespace tern
