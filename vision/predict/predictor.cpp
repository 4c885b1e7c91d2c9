#include "tern/vision/predict/predictor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <opencv2/core/mat.hpp>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/utils.h>

#include "tern/data/formats/error.h"
#include "tern/data/support/error_text.h"
#include "tern/data/support/memory.h"
#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/load_cuda.h"
#include "tern/kernels/parallel_for.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/inference/fused_model.h"
#include "tern/vision/datasets/image_items.h"
#include "tern/vision/datasets/preprocess.h"
#include "tern/vision/models/build_model.h"
#include "tern/vision/predict/photo_geometry.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

void check(const PredictorOptions& options) {
  check_device_exists(
      "Predictor",
      options.device,
      "set PredictorOptions::device to an existing device, or to the CPU");
  TERN_CHECK_VALUE(
      options.precision == torch::kFloat || options.precision == torch::kHalf ||
          options.precision == torch::kBFloat16,
      "[Predictor] precision is {}; expected kFloat, kBFloat16 or kHalf.",
      torch::toString(options.precision));
  TERN_CHECK_VALUE(
      options.batch_size > 0,
      "[Predictor] batch_size is {}; expected at least 1.",
      options.batch_size);
}

/// Converts all weights except BatchNorm's, as to_fp16 does.
void convert(Model& model, torch::ScalarType precision) {
  for (ModelTensor& t : model.state()) {
    if (t.tensor.is_floating_point() && t.layer != LayerKind::batch_norm) {
      t.tensor.set_data(t.tensor.to(precision));
    }
  }
}

/// Unset for a TorchScript module or a module that cannot be cloned.
std::optional<Model> clone_of(const Model& model) {
  if (!model.module()) return std::nullopt;
  try {
    Model clone = model.with_module(model.module()->clone());
    clone.eval();
    return clone;
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

/// True if the network must be fused, that is, where fusing is faster.
bool is_fused(const PredictorOptions& options) {
  if (options.exact || !options.device.is_cpu()) return false;
  return options.precision == torch::kFloat ||
         (options.precision == torch::kBFloat16 && multiplies_bfloat16());
}

/// True if two inputs can be stacked. Stacking integers of different dtypes
/// would promote them to a different dtype, and stacking uint8 with floats
/// would convert images that still need normalization.
bool are_alike(const torch::Tensor& one, const torch::Tensor& other) {
  const bool are_floating =
      one.is_floating_point() && other.is_floating_point();
  return one.sizes() == other.sizes() &&
         (are_floating || one.scalar_type() == other.scalar_type());
}

template <class F>
void for_each_sample(int64_t count, const F& f) {
  parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(i);
  });
}

}  // namespace

struct Predictor::Loaded {
  PredictorOptions options;
  ModelCard card;
  std::optional<ImagePreprocessor> images;
  mutable Model model;  // not modified

  const ImagePreprocessor& preprocessor() const {
    TORCH_CHECK_VALUE(
        images,
        "[Predictor] the exported model does not describe how to prepare an "
        "image; expected the model's own input as a tensor. Export it with "
        "ExportOptions::preprocessing to predict images.");
    return *images;
  }

  /// Converts the outputs of one sample to pixels of its original image: boxes
  /// and points, and also masks if `original_size` is set.
  Tensors on_photo(const Tensors& outputs, ImageSize photo) const {
    if (!has_places(card.outputs) && !options.original_size) return outputs;
    return PhotoGeometry(*card.preprocessing, photo)
        .outputs_on_photo(outputs, card.outputs, options.original_size);
  }

  Tensors forward(const Tensors& inputs) const {
    try {
      return model.forward(inputs);
    } catch (c10::Error& error) {
      if (!images && inputs[0].scalar_type() == torch::kByte) {
        error.add_context(
            "[Predictor] the uint8 tensor was passed to the model unchanged, "
            "since the exported model does not describe how to prepare an "
            "image. Export it with ExportOptions::preprocessing to predict "
            "images.");
      }
      throw;
    }
  }
};

Predictor Predictor::load(
    const fs::path& path,
    const PredictorOptions& options) {
  check(options);  // before reading a large file
  auto [model, card] = load_exported(path, options.trusted);
  return {std::move(model), std::move(card), options};
}

Predictor::Predictor(
    Model model,
    ModelCard card,
    const PredictorOptions& options) {
  check(options);
  const torch::NoGradGuard no_grad;
  model.eval();
  for (const ModelTensor& t : model.parameters()) {
    torch::Tensor(t.tensor).requires_grad_(false);
  }
  std::optional<Model> full;  // for fusing: the weights before rounding
  if (is_fused(options) && options.precision != torch::kFloat) {
    full = clone_of(model);
  }
  convert(model, options.precision);
  model.to(options.device);
  if (is_fused(options)) {
    keep_freed_memory();
    model = fused_model(model, full);
  }
  std::optional<ImagePreprocessor> images;
  TORCH_CHECK_VALUE(
      card.preprocessing || !options.original_size,
      "[Predictor] original_size is set, but the model does not describe how "
      "an image becomes its input. Export it with "
      "ExportOptions::preprocessing, or omit original_size.");
  if (card.preprocessing) images.emplace(*card.preprocessing);
  loaded_ = std::make_shared<const Loaded>(
      Loaded{options, std::move(card), std::move(images), std::move(model)});
}

const ModelCard& Predictor::card() const {
  return loaded_->card;
}

const PredictorOptions& Predictor::options() const {
  return loaded_->options;
}

PreparedSample Predictor::prepare_sample(const fs::path& image) const {
  ImageSize photo;
  torch::Tensor input = loaded_->preprocessor().read(image.string(), &photo);
  return {{std::move(input)}, photo};
}

PreparedSample Predictor::prepare_sample(const cv::Mat& image) const {
  return {
      {loaded_->preprocessor().convert(image, "Predictor::predict")},
      ImageSize(image.rows, image.cols)};
}

PreparedSample Predictor::prepare_sample(const torch::Tensor& sample) const {
  TORCH_CHECK_VALUE(
      sample.defined() && (sample.dim() > 0 || !sample.is_floating_point()),
      "[Predictor::predict] the sample is undefined or a 0-dim floating-point "
      "number; expected one input of the model without the batch dimension.");
  return prepare_first(sample);
}

/// Prepares the first input, which can be an image.
PreparedSample Predictor::prepare_first(const torch::Tensor& input) const {
  if (!loaded_->images || input.is_floating_point()) {
    return {{input.detach().cpu()}};
  }
  const int64_t channels = loaded_->images->channels();
  const bool has_pixels = input.dim() == 3 && input.size(2) == channels;
  const bool is_image = has_pixels && input.scalar_type() == torch::kByte;
  // Pixels of a different integer dtype are more likely a mistake than ids.
  TERN_CHECK_VALUE(
      (is_image && input.numel() > 0) ||
          (!has_pixels && input.scalar_type() != torch::kByte),
      "[Predictor::predict] the sample is {}; expected an image [H, W, {}] of "
      "Byte, or the model's input, as floating-point or whole numbers.",
      shapes_of({input}),
      channels);
  if (!is_image) return {{input.detach().cpu()}};
  return {
      {loaded_->images->convert(input)},
      ImageSize(input.size(0), input.size(1))};
}

PreparedSample Predictor::prepare_sample(const Tensors& inputs) const {
  if (inputs.size() == 1) return prepare_sample(inputs[0]);
  TORCH_CHECK_VALUE(
      !inputs.empty(),
      "[Predictor::predict] there is no input; expected the inputs of one "
      "sample.");
  PreparedSample prepared;
  for (const torch::Tensor& input : inputs) {
    TORCH_CHECK_VALUE(
        input.defined(),
        "[Predictor::predict] an input is undefined; expected the inputs of "
        "one sample without the batch dimension.");
    if (prepared.inputs.empty()) {
      prepared = prepare_first(input);
    } else {
      prepared.inputs.push_back(input.detach().cpu());
    }
  }
  return prepared;
}

std::vector<Prediction> Predictor::predict_prepared(
    at::TensorList batch) const {
  return predict_prepared(batch, Photos());
}

std::vector<Prediction> Predictor::predict_prepared(
    at::TensorList batch,
    const Photos& photos) const {
  const torch::NoGradGuard no_grad;
  const PredictorOptions& options = loaded_->options;
  Tensors inputs;
  for (const torch::Tensor& part : batch) {
    torch::Tensor input = part.to(options.device);
    if (inputs.empty() && loaded_->images &&
        input.scalar_type() == torch::kByte) {
      const ImagePreprocessing& images = *loaded_->card.preprocessing;
      input = normalize_images(
          input,
          images.mean,
          images.stddev,
          options.precision);
    } else if (input.is_floating_point()) {
      input = input.to(options.precision);
    }
    inputs.push_back(std::move(input));
  }
  // TorchScript's optimizer changes the last bits of a graph's results.
  const torch::jit::GraphOptimizerEnabledGuard optimizer(!options.exact);
  const Tensors outputs =
      activate(loaded_->forward(inputs), loaded_->card.outputs);
  std::vector<Tensors> samples(batch[0].size(0));
  for (const torch::Tensor& output : outputs) {
    const torch::Tensor on_cpu = output.cpu();
    for (size_t i = 0; i < samples.size(); ++i) {
      const bool is_of_samples =
          on_cpu.dim() > 0 && on_cpu.size(0) == std::ssize(samples);
      samples[i].push_back(
          is_of_samples ? on_cpu[static_cast<int64_t>(i)].clone()
                        : torch::Tensor());
    }
  }
  std::vector<Prediction> predictions;
  predictions.reserve(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    if (loaded_->card.preprocessing && i < photos.size() && photos[i]) {
      samples[i] = loaded_->on_photo(samples[i], *photos[i]);
    }
    predictions.push_back(decode(samples[i], loaded_->card.outputs));
  }
  return predictions;
}

std::vector<Prediction> Predictor::predict_prepared(
    const std::vector<Tensors>& samples) const {
  std::vector<PreparedSample> prepared;
  prepared.reserve(samples.size());
  for (const Tensors& inputs : samples) prepared.push_back({inputs});
  return predict_prepared(prepared);
}

std::vector<Prediction> Predictor::predict_prepared(
    const std::vector<PreparedSample>& samples) const {
  Tensors batch;
  for (size_t input = 0; !samples.empty() && input < samples[0].inputs.size();
       ++input) {
    Tensors parts;
    for (const PreparedSample& sample : samples) {
      TERN_CHECK_VALUE(
          sample.inputs.size() == samples[0].inputs.size() &&
              are_alike(sample.inputs[input], samples[0].inputs[input]),
          "[Predictor] one sample is {}, another {}; expected inputs of equal "
          "sizes and dtypes in a batch. Predict the samples one by one, or pad "
          "them as in training.",
          shapes_of(samples[0].inputs),
          shapes_of(sample.inputs));
      parts.push_back(sample.inputs[input]);
    }
    batch.push_back(torch::stack(parts));
  }
  Photos photos;
  photos.reserve(samples.size());
  for (const PreparedSample& sample : samples) photos.push_back(sample.photo);
  return predict_prepared(batch, photos);
}

std::vector<Prediction> Predictor::predict_all(
    int64_t count,
    c10::function_ref<std::optional<PreparedSample>(int64_t)> prepare) const {
  // Prepares enough samples at a time to keep all threads busy, even if the
  // batch size is small.
  const int64_t batch_size = options().batch_size;
  const int64_t threads = at::get_num_threads();
  const int64_t at_once = (threads + batch_size - 1) / batch_size * batch_size;
  std::vector<Prediction> predictions(count);
  for (int64_t begin = 0; begin < count; begin += at_once) {
    std::vector<std::optional<PreparedSample>> prepared(
        std::min(at_once, count - begin));
    for_each_sample(std::ssize(prepared), [&](int64_t i) {
      prepared[i] = prepare(begin + i);
    });
    std::vector<PreparedSample> batch;
    std::vector<int64_t> places;
    for (int64_t i = 0; i < std::ssize(prepared); ++i) {
      if (prepared[i]) {
        batch.push_back(std::move(*prepared[i]));
        places.push_back(begin + i);
      }
      const bool is_last = i + 1 == std::ssize(prepared);
      if (batch.empty() || (std::ssize(batch) < batch_size && !is_last)) {
        continue;
      }
      std::vector<Prediction> of_batch = predict_prepared(batch);
      for (size_t k = 0; k < places.size(); ++k) {
        predictions[places[k]] = std::move(of_batch[k]);
      }
      batch.clear();
      places.clear();
    }
  }
  return predictions;
}

std::vector<Prediction> Predictor::predict_batch(
    const torch::Tensor& samples) const {
  TORCH_CHECK_VALUE(
      samples.defined() &&
          samples.dim() > (samples.is_floating_point() ? 1 : 0),
      "[Predictor::predict_batch] the samples are undefined or have no batch "
      "dimension; expected [N, ...].");
  return predict_batch(samples.unbind());
}

std::vector<FilePrediction> Predictor::predict_folder(
    const fs::path& folder) const {
  std::vector<FilePrediction> files;
  for (const ImageItem& item : items_from_folder(folder)) {
    files.push_back({.path = item.path});
  }
  loaded_->preprocessor();  // throws once instead of for each file
  const auto prepared = [&](int64_t i) -> std::optional<PreparedSample> {
    try {
      return prepare_sample(fs::path(files[i].path));
    } catch (const DataError& error) {
      files[i].error = error.what();
      return std::nullopt;
    }
  };
  std::vector<Prediction> predictions =
      predict_all(std::ssize(files), prepared);
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].prediction = std::move(predictions[i]);
  }
  return files;
}

}  // namespace tern
