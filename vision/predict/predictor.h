#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/learner/compare_predictions.h"
#include "tern/learner/export/model_card.h"
#include "tern/learner/learner.h"
#include "tern/vision/decode/image_size.h"

namespace cv {
class Mat;
}

namespace tern {

struct PredictorOptions {
  torch::Device device = DataBunch::default_device();
  /// Dtype of the model: kFloat, kBFloat16 or kHalf. BatchNorm stays kFloat.
  torch::ScalarType precision = torch::kFloat;
  /// Allows a file with a TorchScript graph (`ExportOptions::traced`). A graph
  /// is executable code that LibTorch runs, so allow it only for files from
  /// sources you trust.
  bool trusted = false;
  /// Samples per forward pass in `predict_batch` and `predict_folder`.
  int64_t batch_size = 64;
  /// Computes bit-identical results to the Learner's.
  ///
  /// If false, the network is fused on a CPU in kFloat, and in kBFloat16 if the
  /// processor supports bfloat16 multiplication: BatchNorm is folded into the
  /// convolutions, and oneDNN fuses the operations that follow them. In kFloat,
  /// outputs are within 1e-4 of the exact ones, and a ResNet is 1.3 to 1.5
  /// times as fast. The first batch takes longer. The first batch of each
  /// batch size is computed without fusion, as in the Learner, as are images
  /// whose size differs from that of the first batch. Weights take two or three
  /// times the memory. A network whose computation depends on the number of
  /// samples is not fused.
  bool exact = false;
  /// Returns masks, and the probabilities of their pixels, in the size of the
  /// original image instead of the model's input. Padding is removed, and parts
  /// that a crop removed have class 0 with probabilities of 0. Applies to image
  /// files, cv::Mats and image tensors. Each prediction takes 4 bytes per class
  /// and pixel. Boxes and points of such samples are always in pixels of the
  /// original image.
  bool original_size = false;
};

/// A sample that is ready to be batched.
struct PreparedSample {
  /// One tensor per input of the model, on the CPU. inputs[0] is an image
  /// [height, width, channels] kByte, or the model's own input.
  Tensors inputs;
  /// Height and width of the image that inputs[0] was prepared from, as
  /// displayed; not set for the model's own input.
  std::optional<ImageSize> photo = {};
};

/// The prediction for an image file, or an error.
struct FilePrediction {
  std::string path;
  Prediction prediction = {};
  std::string error = {};  // empty on success
};

/// Runs a trained model without a Learner or a dataset, from a file that
/// `Learner::export_model` wrote.
///
///   auto predictor = Predictor::load("pets.safetensors");
///   Prediction prediction = predictor.predict("cat.jpg");
///   fmt::print("{}\n", prediction.label);
///
/// `learn.predictor()` creates a Predictor from a Learner without a file. A
/// callback can call it too, so other threads can predict while training
/// continues. It copies the current weights in fp32 (the master weights of a
/// 16-bit model, with the adapters of `add_lora` merged) and the model card
/// that `export_model` would write. The copy is on the device of the data
/// unless the options specify another one. It is always `exact`, so that its
/// predictions are bit-identical to `get_preds` at that moment. A model that
/// has neither a registered name nor a clone() is copied as its traced graph;
/// see `ExportOptions::traced`.
///
/// A Predictor returns the same predictions as `Learner::get_preds`,
/// bit-identical if `exact`. It executes no code from the file unless the file
/// is `trusted`. It is thread-safe if the network's `forward` has no side
/// effects in eval mode, as is the case for the networks of Tern and LibTorch.
/// Copies share the model. PredictorQueue batches requests from many threads.
///
/// A sample can be:
///
/// - the path of an image file.
/// - a cv::Mat of any size with 8 or 16 bits: BGR, BGRA or gray.
/// - a tensor [H, W, C] kByte, RGB, of any size.
/// - the model's own input without the batch dimension, which is passed
///   unchanged: floating point, or integers such as word or category ids, which
///   can be 0-dim. A kByte tensor is an image if the file describes how to
///   prepare images; otherwise it contains integers like these.
/// - Tensors: the inputs of a model with several inputs. The first is any of
///   the above; the others are passed unchanged.
class Predictor {
 public:
  /// Loads an exported model.
  /// \throws DataError if the file is damaged, is not an exported model or has
  ///         a newer format version; c10::ValueError if its architecture is
  ///         unknown (see register_architecture), its weights do not fit, or it
  ///         contains a graph and is not `trusted`; IoError.
  static Predictor load(
      const std::filesystem::path& path,
      const PredictorOptions& options = {});
  /// Uses a model in memory and takes ownership: sets it to eval mode, and
  /// converts and moves it according to the options.
  /// \param card  Describes the outputs and how to prepare an image.
  /// \throws c10::ValueError for invalid options.
  Predictor(Model model, ModelCard card, const PredictorOptions& options = {});

  /// \throws DataError for a bad image; c10::ValueError for any other sample,
  ///         and for an image if the file does not describe how to prepare one.
  template <class Sample>
  Prediction predict(const Sample& sample) const {
    return predict_prepared(
        std::vector<PreparedSample>(1, prepare_sample(sample)))[0];
  }

  /// Returns one prediction per sample, in order. Prepares one batch at a time,
  /// or several small batches, on all cores.
  /// \param samples  Paths, cv::Mats or tensors, as for `predict`.
  /// \throws DataError or c10::ValueError like `predict`, for the first bad
  ///         sample; c10::ValueError if the model's own inputs differ in size
  ///         or dtype.
  template <class Sample>
  std::vector<Prediction> predict_batch(
      const std::vector<Sample>& samples) const {
    return predict_all(
        std::ssize(samples),
        [&](int64_t i) -> std::optional<PreparedSample> {
          return prepare_sample(samples[i]);
        });
  }
  /// Predicts image files, for `predict_batch({"cat.jpg", "dog.jpg"})`.
  std::vector<Prediction> predict_batch(
      const std::vector<std::filesystem::path>& images) const {
    return predict_batch<std::filesystem::path>(images);
  }
  /// \param samples  [N, ...]: N samples of one size, as for `predict`.
  ///                 Integers [N] are N 0-dim samples.
  std::vector<Prediction> predict_batch(const torch::Tensor& samples) const;
  /// Predicts all images below a folder, sorted by path. A bad image does not
  /// affect the others: its `error` is set.
  /// \throws DataError if the folder does not exist.
  std::vector<FilePrediction> predict_folder(
      const std::filesystem::path& folder) const;

  /// Compares the predictions of this Predictor with those of another for the
  /// same model, to find out what a faster precision costs:
  ///
  ///   auto exact = Predictor::load("pets.safetensors", {.exact = true});
  ///   auto fast = Predictor::load(
  ///       "pets.safetensors",
  ///       {.precision = torch::kBFloat16});
  ///   auto cost = fast.compare(exact, {"cat.jpg", "dog.jpg"});
  ///   fmt::print("{}\n", cost.to_string());
  ///
  /// \param samples  As for `predict_batch`. They are predicted twice, because
  ///                 the first batch of each size is computed without fusion.
  /// \throws c10::ValueError if the outputs differ in kind or size, and like
  ///         `predict_batch`.
  template <class Samples>
  PredictionDifference compare(
      const Predictor& reference,
      const Samples& samples) const {
    for (const Predictor* one : {this, &reference}) {
      if (!one->options().exact) one->predict_batch(samples);
    }
    return compare_predictions(
        predict_batch(samples),
        reference.predict_batch(samples));
  }
  PredictionDifference compare(
      const Predictor& reference,
      const std::vector<std::filesystem::path>& images) const {
    return compare<std::vector<std::filesystem::path>>(reference, images);
  }

  /// Classes, preprocessing and metrics, from the file.
  const ModelCard& card() const;
  const PredictorOptions& options() const;

  // ---- The two steps of `predict`; PredictorQueue batches between them ----

  /// Prepares a sample for a batch.
  PreparedSample prepare_sample(const std::filesystem::path& image) const;
  PreparedSample prepare_sample(const cv::Mat& image) const;
  PreparedSample prepare_sample(const torch::Tensor& sample) const;
  /// Prepares one sample of a model with several inputs.
  PreparedSample prepare_sample(const Tensors& inputs) const;
  /// Predicts prepared samples in one forward pass.
  /// \throws c10::ValueError if their sizes or dtypes differ.
  std::vector<Prediction> predict_prepared(
      const std::vector<PreparedSample>& samples) const;
  /// Prepares a sample but drops the original image's size, so `original_size`
  /// has no effect on its prediction.
  torch::Tensor prepare(const std::filesystem::path& image) const {
    return prepare_sample(image).inputs[0];
  }
  torch::Tensor prepare(const cv::Mat& image) const {
    return prepare_sample(image).inputs[0];
  }
  torch::Tensor prepare(const torch::Tensor& sample) const {
    return prepare_sample(sample).inputs[0];
  }
  Tensors prepare(const Tensors& inputs) const {
    return prepare_sample(inputs).inputs;
  }
  /// \param batch  One tensor [N, ...] of prepared samples for each input of
  ///               the model.
  std::vector<Prediction> predict_prepared(at::TensorList batch) const;
  /// Predicts prepared samples, each a list of inputs.
  std::vector<Prediction> predict_prepared(
      const std::vector<Tensors>& samples) const;

 private:
  struct Loaded;
  using Photos = std::vector<std::optional<ImageSize>>;
  PreparedSample prepare_first(const torch::Tensor& input) const;
  /// \param photos  Original image size of each sample; can be empty.
  std::vector<Prediction> predict_prepared(
      at::TensorList batch,
      const Photos& photos) const;
  /// Repeatedly prepares some samples in parallel and predicts them in batches.
  /// \param prepare  Returns nullopt to skip a sample, whose prediction is then
  ///                 empty.
  std::vector<Prediction> predict_all(
      int64_t count,
      c10::function_ref<std::optional<PreparedSample>(int64_t)> prepare) const;

  std::shared_ptr<const Loaded> loaded_;
};

}  // namespace tern
