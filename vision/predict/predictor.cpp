#include "tern/vision/predict/predictor.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <opencv2/core/mat.hpp>
#include <torch/utils.h>

#include "tern/data/error_text.h"
#include "tern/data/formats/error.h"
#include "tern/kernels/check.h"
#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/load_cuda.h"
#include "tern/kernels/parallel_for.h"
#include "tern/vision/image_items.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/predict/preprocess.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

void check(const PredictorOptions& options) {
  check_device_exists(
      "Predictor::load",
      options.device,
      "set PredictorOptions::device to one that is there, or to the CPU");
  TERN_CHECK_VALUE(
      options.precision == torch::kFloat || options.precision == torch::kHalf ||
          options.precision == torch::kBFloat16,
      "[Predictor::load] precision is {}; expected kFloat, kBFloat16 or kHalf.",
      torch::toString(options.precision));
  TERN_CHECK_VALUE(
      options.batch_size > 0,
      "[Predictor::load] batch_size is {}; expected at least 1.",
      options.batch_size);
}

/// Batch normalisation apart, as to_fp16 does.
void convert(Model& model, torch::ScalarType precision) {
  for (ModelTensor& t : model.state()) {
    if (t.tensor.is_floating_point() && t.layer != LayerKind::batch_norm) {
      t.tensor.set_data(t.tensor.to(precision));
    }
  }
}

/// Answers any number of prepared samples, `batch_size` at a time.
std::vector<Prediction> answer_all(
    const Predictor& predictor,
    const Tensors& prepared) {
  const auto size = static_cast<size_t>(predictor.options().batch_size);
  std::vector<Prediction> answers;
  for (size_t begin = 0; begin < prepared.size(); begin += size) {
    const size_t count = std::min(size, prepared.size() - begin);
    const auto batch = at::TensorList(prepared).slice(begin, count);
    std::ranges::move(
        predictor.answer(torch::stack(batch)),
        std::back_inserter(answers));
  }
  return answers;
}

/// `f(i)` for each of `count` files, by all cores.
template <class F>
void for_each_file(int64_t count, const F& f) {
  parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(i);
  });
}

}  // namespace

struct Predictor::Loaded {
  PredictorOptions options;
  ModelCard card;
  std::optional<ImagePreprocessor> images;
  mutable Model model;  // nothing of it changes

  const ImagePreprocessor& preprocessor() const {
    TORCH_CHECK_VALUE(
        images,
        "[Predictor] the exported model does not describe how to prepare an "
        "image; expected a floating tensor. Export it with "
        "ExportOptions::preprocessing to predict images.");
    return *images;
  }
};

Predictor::Predictor(std::shared_ptr<const Loaded> loaded)
    : loaded_(std::move(loaded)) {}

Predictor Predictor::load(
    const fs::path& path,
    const PredictorOptions& options) {
  check(options);
  auto [model, card] = load_exported(path);
  const torch::NoGradGuard no_grad;
  for (const ModelTensor& t : model.parameters()) {
    torch::Tensor(t.tensor).requires_grad_(false);
  }
  convert(model, options.precision);
  model.to(options.device);
  std::optional<ImagePreprocessor> images;
  if (card.preprocessing) images.emplace(*card.preprocessing);
  return Predictor(std::make_shared<const Loaded>(
      Loaded{options, std::move(card), std::move(images), std::move(model)}));
}

const ModelCard& Predictor::card() const {
  return loaded_->card;
}

const PredictorOptions& Predictor::options() const {
  return loaded_->options;
}

torch::Tensor Predictor::prepare(const fs::path& image) const {
  return loaded_->preprocessor().read(image.string());
}

torch::Tensor Predictor::prepare(const cv::Mat& image) const {
  return loaded_->preprocessor().convert(image, "Predictor::predict");
}

torch::Tensor Predictor::prepare(const torch::Tensor& sample) const {
  TORCH_CHECK_VALUE(
      sample.defined() && sample.dim() > 0,
      "[Predictor::predict] the sample is undefined or 0-dim; expected one "
      "input of the model without the batch dimension.");
  if (sample.is_floating_point()) return sample.detach().cpu();
  const ImagePreprocessor& images = loaded_->preprocessor();
  const int64_t channels = images.channels();
  TERN_CHECK_VALUE(
      sample.scalar_type() == torch::kByte && sample.dim() == 3 &&
          sample.size(2) == channels && sample.numel() > 0,
      "[Predictor::predict] the sample is {}; expected an image [H, W, {}] "
      "of Byte, or what the model takes as floating numbers.",
      shapes_of({sample}),
      channels);
  return images.convert(sample);
}

std::vector<Prediction> Predictor::answer(const torch::Tensor& batch) const {
  const torch::NoGradGuard no_grad;
  const PredictorOptions& options = loaded_->options;
  torch::Tensor input = batch.to(options.device);
  if (input.scalar_type() == torch::kByte) {
    loaded_->preprocessor();  // fails if there is none
    const ImagePreprocessing& images = *loaded_->card.preprocessing;
    input =
        normalize_images(input, images.mean, images.stddev, options.precision);
  } else {
    input = input.to(options.precision);
  }
  const torch::Tensor outputs =
      activate(loaded_->model.forward({input}).at(0), loaded_->card.activation)
          .cpu();
  const std::vector<std::string>& classes = loaded_->card.classes;
  std::vector<Prediction> answers;
  for (int64_t i = 0; i < outputs.size(0); ++i) {
    Prediction answer;
    answer.probabilities = outputs[i].clone();
    if (!classes.empty() && answer.probabilities.dim() == 1) {
      answer.index = answer.probabilities.argmax().item<int64_t>();
      if (answer.index < std::ssize(classes)) {
        answer.label = classes[answer.index];
      }
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

std::vector<Prediction> Predictor::predict_batch(
    const std::vector<fs::path>& images) const {
  Tensors prepared(images.size());
  for_each_file(std::ssize(images), [&](int64_t i) {
    prepared[i] = prepare(images[i]);
  });
  return answer_all(*this, prepared);
}

std::vector<Prediction> Predictor::predict_batch(
    const torch::Tensor& samples) const {
  TORCH_CHECK_VALUE(
      samples.defined() && samples.dim() > 1,
      "[Predictor::predict_batch] the samples are undefined or have no batch "
      "dimension; expected [N, ...].");
  Tensors prepared;
  for (const torch::Tensor& sample : samples.unbind()) {
    prepared.push_back(prepare(sample));
  }
  return answer_all(*this, prepared);
}

std::vector<FilePrediction> Predictor::predict_folder(
    const fs::path& folder) const {
  std::vector<FilePrediction> files;
  for (const ImageItem& item : items_from_folder(folder)) {
    files.push_back({.path = item.path});
  }
  loaded_->preprocessor();  // fails once, not for each file
  Tensors prepared(files.size());
  for_each_file(std::ssize(files), [&](int64_t i) {
    try {
      prepared[i] = prepare(fs::path(files[i].path));
    } catch (const DataError& error) {
      files[i].error = error.what();
    }
  });
  std::erase_if(prepared, [](const torch::Tensor& t) { return !t.defined(); });
  auto file = files.begin();
  for (Prediction& answer : answer_all(*this, prepared)) {
    while (!file->error.empty()) ++file;
    (file++)->prediction = std::move(answer);
  }
  return files;
}

}  // namespace tern
