#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/weights/model_card.h"

namespace cv {
class Mat;
}

namespace tern {

struct PredictorOptions {
  torch::Device device = DataBunch::default_device();
  /// The type in which the model computes: kFloat, kBFloat16 or kHalf. Batch
  /// normalisation stays in kFloat.
  torch::ScalarType precision = torch::kFloat;
  /// Samples in one forward pass of `predict_batch` and `predict_folder`.
  int64_t batch_size = 64;
};

/// An answer to an image file, or why there is none.
struct FilePrediction {
  std::string path;
  Prediction prediction = {};
  std::string error = {};  // empty when all went well
};

/// A trained model that answers: without Learner and data set, from the file
/// that `Learner::export_model` has written.
///
///   auto predictor = Predictor::load("pets.safetensors");
///   Prediction answer = predictor.predict("cat.jpg");
///   fmt::print("{} {}\n", answer.label, answer.probabilities.max().item());
///
/// Gives the numbers that `Learner::get_preds` gives for the same files.
/// Nothing of the file is run. All calls are safe from any number of threads,
/// as long as the network's `forward` in eval mode changes nothing, which is
/// true of Tern's and LibTorch's; copies share the model. PredictorQueue makes
/// batches of the questions of many threads.
///
/// A sample is an image file; a cv::Mat, 8 or 16 bits, BGR, BGRA or grey, of
/// any size; a tensor [H, W, C] kByte, RGB, of any size; or a floating tensor,
/// which goes to the model as it is, without the batch dimension.
class Predictor {
 public:
  /// \throws DataError if the file is damaged, no exported model or one of a
  ///         later version; c10::ValueError if its architecture is not known
  ///         (see register_architecture) or the weights are not its; IoError.
  static Predictor load(
      const std::filesystem::path& path,
      const PredictorOptions& options = {});

  /// \throws DataError for a bad image; c10::ValueError for a sample that is
  ///         none of those above, or an image for a model that takes none.
  Prediction predict(const std::filesystem::path& image) const;
  Prediction predict(const cv::Mat& image) const;
  Prediction predict(const torch::Tensor& sample) const;

  /// One answer for each file, in their order; files are decoded by all cores.
  /// \throws as `predict`, for the first bad file.
  std::vector<Prediction> predict_batch(
      const std::vector<std::filesystem::path>& images) const;
  /// \param samples  [N, ...]: N samples as above, of one size.
  std::vector<Prediction> predict_batch(const torch::Tensor& samples) const;
  /// All images under a folder, at any depth, sorted by path. A bad one stops
  /// none of the others. \throws DataError if there is no such folder.
  std::vector<FilePrediction> predict_folder(
      const std::filesystem::path& folder) const;

  /// What the file says of the model: classes, preprocessing, metrics.
  const ModelCard& card() const;
  const PredictorOptions& options() const;

  // ---- In two steps; PredictorQueue makes batches between them ----

  /// The sample as it goes into a batch: [height, width, channels] kByte, or
  /// the floating tensor. On the CPU.
  torch::Tensor prepare(const std::filesystem::path& image) const;
  torch::Tensor prepare(const cv::Mat& image) const;
  torch::Tensor prepare(const torch::Tensor& sample) const;
  /// \param batch  [N, ...] of prepared samples.
  std::vector<Prediction> answer(const torch::Tensor& batch) const;

 private:
  struct Loaded;
  explicit Predictor(std::shared_ptr<const Loaded> loaded);

  std::shared_ptr<const Loaded> loaded_;
};

}  // namespace tern
