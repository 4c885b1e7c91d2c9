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
  /// takes numbers from the size of the batch, as an LSTM's state does, is
  /// computed as by the Learner.
  bool exact = false;
};

/// The prediction for an image file, or an error.
struct FilePrediction {
  std::string path;
  Prediction prediction = {};
  std::string error = {};  // empty on success
};

/// Runs a trained model without Learner and data set, from a file that
/// `Learner::export_model` wrote.
///
///   auto predictor = Predictor::load("pets.safetensors");
///   Prediction prediction = predictor.predict("cat.jpg");
///   fmt::print("{}\n", prediction.label);
///
/// Returns the numbers of `Learner::get_preds`, to the last bit if it is
/// `exact`. Executes no code from the file, unless it is `trusted`. Thread-safe
/// if the network's `forward` in eval mode has no side effects, as is the case
/// for Tern's and LibTorch's; copies share the model. PredictorQueue batches
/// the requests of many threads.
///
/// A sample is an image file; a cv::Mat, 8 or 16 bits, BGR, BGRA or grey, of
/// any size; a tensor [H, W, C] kByte, RGB, of any size; a floating tensor
/// without the batch dimension, which is passed to the model unchanged; or
/// Tensors, the inputs of a model that has several: the first as above, the
/// others passed unchanged.
class Predictor {
 public:
  /// \throws DataError if the file is damaged, not an exported model or of a
  ///         later version; c10::ValueError if its architecture is unknown (see
  ///         register_architecture), the weights do not fit, or it holds a
  ///         graph and is not `trusted`; IoError.
  static Predictor load(
      const std::filesystem::path& path,
      const PredictorOptions& options = {});

  /// \throws DataError for a bad image; c10::ValueError for any other sample,
  ///         or an image if the file does not describe how to prepare one.
  template <class Sample>
  Prediction predict(const Sample& sample) const {
    return answer(std::vector<Tensors>(1, Tensors{prepare(sample)}))[0];
  }

  /// Returns one prediction per sample, in order; prepares a batch at a time, or
  /// several small ones, on all cores.
  /// \param samples  Paths, cv::Mats or tensors, as for `predict`.
  /// \throws as `predict`, for the first bad sample; c10::ValueError if
  ///         floating tensors differ in size.
  template <class Sample>
  std::vector<Prediction> predict_batch(
      const std::vector<Sample>& samples) const {
    return answer_all(
        std::ssize(samples),
        [&](int64_t i) -> std::optional<Tensors> {
          return Tensors{prepare(samples[i])};
        });
  }
  /// The same, for `predict_batch({"cat.jpg", "dog.jpg"})`.
  std::vector<Prediction> predict_batch(
      const std::vector<std::filesystem::path>& images) const {
    return predict_batch<std::filesystem::path>(images);
  }
  /// \param samples  [N, ...]: N samples as above, of one size.
  std::vector<Prediction> predict_batch(const torch::Tensor& samples) const;
  /// Predicts all images below a folder, sorted by path. A bad image does not
  /// affect the others. \throws DataError if there is no such folder.
  std::vector<FilePrediction> predict_folder(
      const std::filesystem::path& folder) const;

  /// Classes, preprocessing and metrics from the file.
  const ModelCard& card() const;
  const PredictorOptions& options() const;

  // ---- In two steps; PredictorQueue batches between them ----

  /// Returns the sample as part of a batch: [height, width, channels] kByte, or
  /// the floating tensor, on the CPU.
  torch::Tensor prepare(const std::filesystem::path& image) const;
  torch::Tensor prepare(const cv::Mat& image) const;
  torch::Tensor prepare(const torch::Tensor& sample) const;
  /// Prepares the inputs of one sample for a model that has several.
  Tensors prepare(const Tensors& inputs) const;
  /// \param batch  [N, ...] of prepared samples, for each input of the model.
  std::vector<Prediction> answer(at::TensorList batch) const;
  /// Answers prepared samples, each a list of inputs, in one forward pass.
  /// \throws c10::ValueError if their sizes differ.
  std::vector<Prediction> answer(const std::vector<Tensors>& samples) const;

 private:
  struct Loaded;
  /// Prepares some samples in parallel, answers them in batches, and goes on.
  /// \param prepare  Nothing for a sample that is left out, whose prediction is
  ///                 empty.
  std::vector<Prediction> answer_all(
      int64_t count,
      c10::function_ref<std::optional<Tensors>(int64_t)> prepare) const;
  explicit Predictor(std::shared_ptr<const Loaded> loaded);

  std::shared_ptr<const Loaded> loaded_;
};

}  // namespace tern
