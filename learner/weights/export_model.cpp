#include "tern/learner/weights/export_model.h"

#include <limits>
#include <string_view>

#include <tern_python_loader.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/file_io.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner.h"
#include "tern/learner/recorder.h"
#include "tern/learner/weights/model_card.h"
#include "tern/learner/weights/model_weights.h"
#include "tern/learner/weights/weights.h"

namespace tern {

namespace {

ModelCard card_of(Learner& learn, const ExportOptions& options) {
  const std::optional<Architecture> architecture =
      architecture_of(learn.model());
  TORCH_CHECK_VALUE(
      architecture,
      "[Learner::export_model] the model does not say how it can be built "
      "again; expected a module that is a HasArchitecture. Derive it from "
      "tern::HasArchitecture and call register_architecture, or use "
      "export_torchscript, which needs neither.");
  const Loss& loss = learn.options().loss;
  const std::vector<std::string>& classes = learn.data().classes;
  ModelCard card{
      .architecture = *architecture,
      .classes = classes,
      // Before the first batch with a target, class names tell what is learnt.
      .activation = loss              ? loss.activation()
                    : classes.empty() ? Activation::none
                                      : Activation::softmax,
      .preprocessing = options.preprocessing ? options.preprocessing
                                             : learn.data().preprocessing};
  if (!learn.recorder().epochs().empty()) {
    const EpochRecord& last = learn.recorder().epochs().back();
    card.metrics = last.metrics;
    card.metrics.insert(
        card.metrics.begin(),
        {{"train_loss", last.train_loss}, {"valid_loss", last.valid_loss}});
  }
  return card;
}

bool fits_half(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ||
         tensor.abs().max().item<double>() <=
             static_cast<double>(std::numeric_limits<at::Half>::max());
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
  const auto metadata = to_metadata(card_of(*this, options));
  const StateDict weights = weights_of(*this, options.half);
  if (path.has_parent_path()) make_folders(path.parent_path());
  if (options.python_loader) {
    AtomicFile file(std::filesystem::path(path).replace_extension(".py"));
    file.write(std::string_view(kPythonLoader));
    file.commit();
  }
  save_safetensors(path, weights, metadata, {.checksum = true});
}

}  // namespace tern
