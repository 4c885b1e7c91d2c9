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
  /// Accept any size of the first dimension of all inputs. False: only the
  /// example's size.
  bool dynamic_batch = true;
  /// Accept any height and width of inputs [N, C, H, W]. The model is also
  /// traced at about twice the height and three times the width. If it cannot
  /// run at odd sizes, the file accepts multiples of the example's size. If its
  /// control flow differs at odd sizes, as in a U-Net, the file follows the
  /// path for odd sizes, provided that this path gives the same result at even
  /// sizes; otherwise export fails.
  bool dynamic_size = false;
  /// Store weights of 1,000 or more numbers in fp16; computations stay in fp32.
  bool half = false;
  /// Write LayerNorm as mean, difference, power and division, for runtimes
  /// without LayerNormalization, such as OpenCV 4.6.
  bool decompose_layer_norm = false;
  /// If set, the file takes RGB images [N, H, W, C] in uint8, scales them to
  /// 0..1 and normalizes them. Usually `learn.data().preprocessing`. Resizing
  /// is not included.
  std::optional<ImagePreprocessing> preprocessing = std::nullopt;
  /// If set, the file outputs the boxes of a RetinaNet in place of its four
  /// outputs: boxes [N, A, 4], decoded and clipped, in pixels of the input, and
  /// scores [N, A, C]. Usually `learn.data().outputs[0].detection`.
  std::optional<DetectionOptions> detection = std::nullopt;
  /// With `detection`: include non-maximum suppression, with the thresholds and
  /// limits in `detection`. The outputs are as from `decode_detections`: boxes
  /// [N, D, 4], scores [N, D] and labels [N, D] with D = detections_per_img.
  /// After the last detection they are 0, 0 and -1.
  bool nms = false;
  /// Also write `path`.sha256, for `sha256sum -c`, as ONNX has no checksums.
  bool sha256_file = false;
};

/// Writes a model in eval mode as ONNX, opset 17, for ONNX Runtime, OpenCV's
/// cv::dnn and other runtimes. Does not need Python. BatchNorm is folded into
/// convolutions, and dropout is left out. If writing fails, an existing file is
/// unchanged.
///
///   export_onnx(model, "net.onnx", {torch::rand({1, 3, 224, 224})});
///
/// `Learner::export_onnx(path, example_inputs, options)` does the same for a
/// Learner's model, in fp32.
///
/// A trace records one path: a decision that `forward` bases on tensor values
/// is fixed in the file. Numbers that it computes from the batch size are
/// dynamic. Before the file is written, its outputs are computed according to
/// ONNX's specification and compared with the model's, at sizes other than the
/// traced ones.
///
/// \param example_inputs  One batch of one or more samples, as passed to
///                        `forward`, on the model's device and of its dtype.
/// \throws c10::ValueError naming an operator that the exporter does not
///         support, its module and what to write instead; if there is no input;
///         if the number of names differs from the number of inputs or outputs;
///         if the model is TorchScript; if weights take more than 2 GiB; if the
///         file's outputs would differ from the model's; if `detection` is set
///         for a model whose outputs are not a RetinaNet's, or is out of range;
///         if `nms` is set without it. IoError. In all these cases nothing is
///         written.
void export_onnx(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const OnnxOptions& options = {});

}  // namespace tern
