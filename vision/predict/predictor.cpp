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

/// Nothing for a TorchScript module, and one that cannot be cloned.
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

/// Whether a network is fused: where that is faster.
bool is_fused(const PredictorOptions& options) {
  if (options.exact || !options.device.is_cpu()) return false;
  return options.precision == torch::kFloat ||
         (options.precision == torch::kBFloat16 && multiplies_bfloat16());
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
  auto [model, card] = load_exported(path, options.trusted);
  const torch::NoGradGuard no_grad;
  for (const ModelTensor& t : model.parameters()) {
    torch::Tensor(t.tensor).requires_grad_(false);
  }
  std::optional<Model> full;  // for a fused one, before it is rounded
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

Tensors Predictor::prepare(const Tensors& inputs) const {
  Tensors prepared;
  for (const torch::Tensor& input : inputs) {
    TORCH_CHECK_VALUE(
        input.defined(),
        "[Predictor::predict] an input is undefined; expected those of one "
        "sample without the batch dimension.");
    prepared.push_back(
        prepared.empty() ? prepare(input) : input.detach().cpu());
  }
  return prepared;
}

std::vector<Prediction> Predictor::answer(at::TensorList batch) const {
  const torch::NoGradGuard no_grad;
  const PredictorOptions& options = loaded_->options;
  Tensors inputs;
  for (const torch::Tensor& part : batch) {
    torch::Tensor input = part.to(options.device);
    if (inputs.empty() && input.scalar_type() == torch::kByte) {
      loaded_->preprocessor();  // fails if there is none
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
  // What TorchScript's optimizer makes of a graph has other last bits.
  const torch::jit::GraphOptimizerEnabledGuard optimizer(!options.exact);
  const Tensors outputs =
      activate(loaded_->model.forward(inputs), loaded_->card.outputs);
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
  std::vector<Prediction> answers;
  answers.reserve(samples.size());
  for (const Tensors& sample : samples) {
    answers.push_back(decode(sample, loaded_->card.outputs));
  }
  return answers;
}

std::vector<Prediction> Predictor::answer(
    const std::vector<Tensors>& samples) const {
  Tensors batch;
  for (size_t input = 0; !samples.empty() && input < samples[0].size();
       ++input) {
    Tensors parts;
    for (const Tensors& sample : samples) {
      TERN_CHECK_VALUE(
          sample.size() == samples[0].size() &&
              sample[input].sizes() == samples[0][input].sizes(),
          "[Predictor] one sample is {}, another {}; expected inputs of equal "
          "sizes in a batch. Predict samples of other sizes one by one.",
          shapes_of(samples[0]),
          shapes_of(sample));
      parts.push_back(sample[input]);
    }
    batch.push_back(torch::stack(parts));
  }
  return answer(batch);
}

std::vector<Prediction> Predictor::answer_all(
    int64_t count,
    c10::function_ref<std::optional<Tensors>(int64_t)> prepare) const {
  // As many at a time as keep all threads busy, however small the batches are.
  const int64_t batch_size = options().batch_size;
  const int64_t threads = at::get_num_threads();
  const int64_t at_once = (threads + batch_size - 1) / batch_size * batch_size;
  std::vector<Prediction> answers(count);
  for (int64_t begin = 0; begin < count; begin += at_once) {
    std::vector<std::optional<Tensors>> prepared(
        std::min(at_once, count - begin));
    for_each_sample(std::ssize(prepared), [&](int64_t i) {
      prepared[i] = prepare(begin + i);
    });
    std::vector<Tensors> batch;
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
      std::vector<Prediction> of_batch = answer(batch);
      for (size_t k = 0; k < places.size(); ++k) {
        answers[places[k]] = std::move(of_batch[k]);
      }
      batch.clear();
      places.clear();
    }
  }
  return answers;
}

std::vector<Prediction> Predictor::predict_batch(
    const torch::Tensor& samples) const {
  TORCH_CHECK_VALUE(
      samples.defined() && samples.dim() > 1,
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
  loaded_->preprocessor();  // fails once, not for each file
  const auto prepared = [&](int64_t i) -> std::optional<Tensors> {
    try {
      return Tensors{prepare(fs::path(files[i].path))};
    } catch (const DataError& error) {
      files[i].error = error.what();
      return std::nullopt;
    }
  };
  std::vector<Prediction> answers = answer_all(std::ssize(files), prepared);
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].prediction = std::move(answers[i]);
  }
  return files;
}

}  // namespace tern
