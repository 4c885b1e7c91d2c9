#include "tern/learner/export/export_model.h"

#include <string_view>

#include <tern_python_loader.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/file_io.h"
#include "tern/kernels/check.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/export/card_of.h"
#include "tern/learner/export/embedded_torchscript.h"
#include "tern/learner/export/model_card.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/lora.h"
#include "tern/learner/weights/model_weights.h"
#include "tern/learner/weights/weights.h"

namespace tern {

ModelCard card_of(Learner& learn, const ExportOptions& options) {
  loop::choose_loss_by_data(parts_of(learn));
  loop::warn_of_raw_outputs(parts_of(learn));
  std::optional<Architecture> architecture = architecture_of(learn.model());
  if (!architecture || options.traced) architecture = {kGraph};
  const std::vector<OutputInfo> outputs =
      output_info(learn.data(), learn.options().loss);
  ModelCard card{
      .architecture = *architecture,
      .classes = learn.data().classes,
      .activation = *outputs[0].activation,
      .outputs = outputs,
      .preprocessing = options.preprocessing ? options.preprocessing
                                             : learn.data().preprocessing,
      .metadata = options.metadata};
  if (!learn.recorder().epochs().empty()) {
    const EpochRecord& last = learn.recorder().epochs().back();
    card.metrics = last.metrics;
    card.metrics.insert(
        card.metrics.begin(),
        {{"train_loss", last.train_loss}, {"valid_loss", last.valid_loss}});
  }
  return card;
}

namespace {

// True if the Python program can build this network.
bool is_in_python(const std::string& network) {
  const std::string_view program = kPythonLoader;
  const size_t begin = program.find("NETWORKS = (");
  return program.substr(begin, program.find(')', begin) - begin)
             .find('"' + network + '"') != std::string_view::npos;
}

// Rejects models with which the Python program would fail at run time.
void check_python_loader(const ModelCard& card) {
  TORCH_CHECK_VALUE(
      card.preprocessing,
      "[Learner::export_model] python_loader is set, but the preprocessing of "
      "an image is unknown; set ExportOptions::preprocessing, or omit "
      "python_loader.");
  for (const OutputInfo& output : card.outputs) {
    TORCH_CHECK_VALUE(
        output.kind != TargetKind::boxes && output.kind != TargetKind::points,
        "[Learner::export_model] python_loader is set, but the model predicts "
        "boxes or points, which the Python program cannot map to pixels of the "
        "original image; expected classes, masks or regression. Omit "
        "python_loader and use Predictor, or export_onnx.");
  }
  if (card.architecture.name == kGraph) return;
  std::string network = card.architecture.name;
  std::string options = card.architecture.options;
  if (network == "vision_model") {
    const std::string body = "\"body\": \"";
    options.erase(0, options.find(body) + body.size());
    network = options.substr(0, options.find('"'));
  }
  const auto has = [&](const std::string& text) {
    return options.find(text) != std::string::npos;
  };
  const bool is_dilated =  // torchvision cannot dilate these
      (network == "resnet18" || network == "resnet34" ||
       network == "mobilenet_v2") &&
      (has("\"output_stride\": 8") || has("\"output_stride\": 16"));
  const ImagePreprocessing& images = *card.preprocessing;
  const bool is_resized =  // torchvision's ViTs have one size
      has("\"image_size\": ") &&
      (images.height != images.width ||
       !has(fmt::format("\"image_size\": {},", images.height)));
  TERN_CHECK_VALUE(
      is_in_python(network) && !has("\"num_classes\": 0,") && !is_dilated &&
          !is_resized,
      "[Learner::export_model] python_loader is set, but torchvision has no {} "
      "with {}; expected one of its networks as a classifier, or simple_cnn. "
      "Omit python_loader, or set traced: the file then holds the model's "
      "graph, which Python's torch runs.",
      network,
      card.architecture.options);
}

StateDict weights_of(const Learner& learn, bool half) {
  const torch::NoGradGuard no_grad;
  StateDict state;
  for (const ModelTensor& t : fp32_tensors(learn)) {
    torch::Tensor tensor = t.tensor.detach();
    if (tensor.is_floating_point()) {
      TERN_CHECK_VALUE(
          torch::isfinite(tensor).all().item<bool>(),
          "[Learner::export_model] the tensor {} has values that are not "
          "finite; expected finite weights. Load an earlier state, and "
          "find the batch that caused it with TerminateOnNaN.",
          t.name);
      if (half && t.layer != LayerKind::batch_norm && fits_half(tensor)) {
        tensor = tensor.to(torch::kHalf);
      }
    }
    state.insert(t.name, tensor);
  }
  return state;
}

}  // namespace

void Learner::export_model(const std::filesystem::path& path) {
  export_model(path, {});
}

void Learner::export_model(
    const std::filesystem::path& path,
    const ExportOptions& options) {
  const ModelCard card = card_of(*this, options);
  if (options.python_loader) check_python_loader(card);
  const auto metadata = to_metadata(card);
  const MergedLora merged(model(), state_dict());
  StateDict weights = weights_of(*this, options.half);
  if (card.architecture.name == kGraph) {
    weights = {{kGraph, graph_of(*this, options.half)}};
    this->options().sink->line(fmt::format(
        "{} holds the model's graph, which is a program: Predictor::load needs "
        "PredictorOptions::trusted to load it.",
        path.string()));
  }
  if (path.has_parent_path()) make_folders(path.parent_path());
  if (options.python_loader) {
    AtomicFile file(std::filesystem::path(path).replace_extension(".py"));
    file.write(std::string_view(kPythonLoader));
    file.commit();
  }
  save_safetensors(
      path,
      weights,
      metadata,
      {.checksum = true, .sha256_file = options.sha256_file});
}

}  // namespace tern
