#include "tern/learner/weights/torchscript.h"

#include <sstream>

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/script.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"
#include "tern/learner/weights/trace.h"

namespace tern {

namespace {

namespace jit = torch::jit;

}  // namespace

void export_torchscript(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const TorchScriptOptions& options) {
  TORCH_CHECK_VALUE(
      !example_inputs.empty() && model.module(),
      "[export_torchscript] there is no example input, or the model is "
      "TorchScript already; expected a batch and a module of C++. "
      "torch::jit::Module::save writes one of TorchScript.");
  const torch::NoGradGuard no_grad;
  const auto restore = c10::make_scope_exit(
      [&, was_training = model.is_training()] { model.train(was_training); });
  model.eval();
  const MergedLora merged(model);
  const Tensors expected = model.forward(example_inputs);
  jit::Module traced = trace(model, example_inputs);
  TORCH_CHECK_VALUE(
      outputs_alike(expected, Model(traced).forward(example_inputs)),
      "[export_torchscript] the traced module's output differs from the "
      "model's; expected a deterministic forward. Take out of it what is "
      "random or counts its calls.");
  std::ostringstream bytes;
  traced.save(bytes);
  AtomicFile file(path);
  file.write(bytes.str());
  file.commit_with_sum(options.sha256_file);
}

Model load_torchscript_trusted(const std::filesystem::path& path) {
  ByteFile file(path);  // for an error that names it
  check_sha256_file(path, sum_beside(path));
  try {
    return jit::load(path.string(), torch::kCPU);
  } catch (const c10::Error& error) {
    throw DataError(
        path.string(),
        fmt::format(
            "LibTorch cannot read it as TorchScript: {}. Expected what "
            "export_torchscript or Python's torch.jit.save writes",
            error.what_without_backtrace()));
  }
}

void export_torchscript(
    Learner& learn,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const TorchScriptOptions& options) {
  const Fp32Weights fp32(learn);
  export_torchscript(
      learn.model(),
      path,
      to_device(example_inputs, learn.data().device),
      options);
}

}  // namespace tern
