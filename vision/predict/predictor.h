#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

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
  /// Allows a file with a TorchScript graph, `ExportOptions::traced`: a
  /// program, which LibTorch runs. For files from people you trust.
  bool trusted = false;
  /// Samples per forward pass in `predict_batch` and `predict_folder`.
  int64_t batch_size = 64;
  /// Computes as the Learner does, to the last bit. Otherwise, on a CPU in
  /// kFloat, and in kBFloat16 where the processor multiplies it, BatchNorm is
  /// folded into the convolutions and oneDNN fuses what follows them: in kFloat
  /// within 1e-4, a ResNet 1.3 to 1.5 times as fast, after a first batch that takes longer and one of each size that is computed as by
  /// the Learner; weights take two or three times the memory. A network that
  /// takes another path for other numbers of samples is computed as by the
  /// Learner.
  bool exact = false;
  /// Gives masks, and the probabilities of their pixels, the height and width of
  /// the photograph instead of the model's: padding is cut off, and what a crop
  /// has left out is of class 0 with probabilities of 0. For files, cv::Mats and
  /// images as tensors. Each prediction takes 4 bytes for each class and pixel.
  /// Boxes and points of these are in pixels of the photograph in any case.
  bool original_size = false;
};

/// A sample as part of a batch.
struct PreparedSample {
  /// [height, width, channels] kByte, or the model's own input, on the CPU; of a
  /// model with several inputs each.
  Tensors inputs;
  /// Height and width of the image that inputs[0] was made of, as seen; unset
  /// for the model's own input.
  std::optional<ImageSize> photo = {};
};

/// The prediction for an image file, or an error.
struct FilePrediction {
  std::string path;
  Prediction prediction = {};
  std::string error = {};  // empty on success
};

/// Runs a trained model without Learner and dataset, from a file that
/// `Learner::export_model` wrote.
///
///   auto predictor = Predictor::load("pets.safetensors");
///   Prediction prediction = predictor.predict("cat.jpg");
///   fmt::print("{}\n", prediction.label);
///
/// `learn.predictor()` makes one of a Learner without a file, also from a
/// callback, for other threads to use while the training goes on: a copy of the
/// model's weights as they are then, in fp32 (of a 16-bit model the master
/// weights; adapters of `add_lora` merged), with what `export_model` would say
/// of it. It is on the data's device unless the options name one, and always
/// `exact`, so that it answers as `get_preds` does then to the last bit. A
/// model that no name builds again and that has no clone() is copied as its
/// graph, as `ExportOptions::traced` says.
///
/// Returns the numbers of `Learner::get_preds`, to the last bit if it is
/// `exact`. Executes no code from the file, unless it is `trusted`. Thread-safe
/// if the network's `forward` in eval mode has no side effects, as is the case
/// for Tern's and LibTorch's; copies share the model. PredictorQueue batches
/// the requests of many threads.
///
/// A sample is an image file; a cv::Mat, 8 or 16 bits, BGR, BGRA or gray, of
/// any size; a tensor [H, W, C] kByte, RGB, of any size; or the model's own
/// input without the batch dimension, which is passed unchanged: floating
/// numbers, or whole ones such as the ids of words and categories, which may be
/// 0-dim. Bytes are an image where the file describes how to prepare one, else
/// numbers as well. Tensors are the inputs of a model that has several: the
/// first as above, the others passed unchanged.
class Predictor {
 public:
  /// \throws DataError if the file is damaged, not an exported model or of a
  ///         later version; c10::ValueError if its architecture is unknown (see
  ///         register_architecture), the weights do not fit, or it holds a
  ///         graph and is not `trusted`; IoError.
  static Predictor load(
      const std::filesystem::path& path,
      const PredictorOptions& options = {});
  /// Of a model in memory, which belongs to the Predictor from now on: it is put
  /// into eval mode, converted and moved as the options say.
  /// \param card  What its outputs mean and how an image is prepared.
  /// \throws c10::ValueError for options that make no sense.
  Predictor(Model model, ModelCard card, const PredictorOptions& options = {});

  /// \throws DataError for a bad image; c10::ValueError for any other sample,
  ///         or an image if the file does not describe how to prepare one.
  template <class Sample>
  Prediction predict(const Sample& sample) const {
    return answer(std::vector<PreparedSample>(1, prepare_sample(sample)))[0];
  }

  /// Returns one prediction per sample, in order; prepares a batch at a time, or
  /// several small ones, on all cores.
  /// \param samples  Paths, cv::Mats or tensors, as for `predict`.
  /// \throws as `predict`, for the first bad sample; c10::ValueError if the
  ///         model's own inputs differ in size or type.
  template <class Sample>
  std::vector<Prediction> predict_batch(
      const std::vector<Sample>& samples) const {
    return answer_all(
        std::ssize(samples),
        [&](int64_t i) -> std::optional<PreparedSample> {
          return prepare_sample(samples[i]);
        });
  }
  /// The same, for `predict_batch({"cat.jpg", "dog.jpg"})`.
  std::vector<Prediction> predict_batch(
      const std::vector<std::filesystem::path>& images) const {
    return predict_batch<std::filesystem::path>(images);
  }
  /// \param samples  [N, ...]: N samples as above, of one size; [N] of whole
  ///                 numbers are N of them.
  std::vector<Prediction> predict_batch(const torch::Tensor& samples) const;
  /// Predicts all images below a folder, sorted by path. A bad image does not
  /// affect the others. \throws DataError if there is no such folder.
  std::vector<FilePrediction> predict_folder(
      const std::filesystem::path& folder) const;

  /// Classes, preprocessing and metrics from the file.
  const ModelCard& card() const;
  const PredictorOptions& options() const;

  // ---- In two steps; PredictorQueue batches between them ----

  /// Returns the sample as part of a batch.
  PreparedSample prepare_sample(const std::filesystem::path& image) const;
  PreparedSample prepare_sample(const cv::Mat& image) const;
  PreparedSample prepare_sample(const torch::Tensor& sample) const;
  /// Prepares the inputs of one sample for a model that has several.
  PreparedSample prepare_sample(const Tensors& inputs) const;
  /// Answers prepared samples in one forward pass.
  /// \throws c10::ValueError if their sizes or types differ.
  std::vector<Prediction> answer(
      const std::vector<PreparedSample>& samples) const;
  /// The same without the size of the photograph, for which `original_size`
  /// then has no effect.
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
  /// \param batch  [N, ...] of prepared samples, for each input of the model.
  std::vector<Prediction> answer(at::TensorList batch) const;
  /// The same of samples, each a list of inputs.
  std::vector<Prediction> answer(const std::vector<Tensors>& samples) const;

 private:
  struct Loaded;
  using Photos = std::vector<std::optional<ImageSize>>;
  PreparedSample prepare_first(const torch::Tensor& input) const;
  /// \param photos  Of each sample; empty: of none.
  std::vector<Prediction> answer(at::TensorList batch, const Photos& photos)
      const;
  /// Prepares some samples in parallel, answers them in batches, and goes on.
  /// \param prepare  Nothing for a sample that is left out, whose prediction is
  ///                 empty.
  std::vector<Prediction> answer_all(
      int64_t count,
      c10::function_ref<std::optional<PreparedSample>(int64_t)> prepare) const;

  std::shared_ptr<const Loaded> loaded_;
};

}  // namespace tern
