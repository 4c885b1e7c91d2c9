#include "tern/learner/export/torchscript.h"

#include <sstream>

#include <fmt/format.h>
#include <torch/script.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/sha256.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/export/fp32_weights.h"
#include "tern/learner/inference/dynamic_trace.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/learner.h"
#include "tern/learner/weights/lora.h"

namespace tern {

namespace jit = torch::jit;

void export_torchscript(
    Model model,
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const TorchScriptOptions& options) {
  TORCH_CHECK_VALUE(
      !example_inputs.empty() && model.module(),
      "[export_torchscript] there is no example input, or the model is "
      "TorchScript already; expected a batch and a module written in C++. Save "
      "a TorchScript module with torch::jit::Module::save.");
  // A trace does not include computations of other threads on other devices.
  model = model.with_module(model.module());
  const torch::NoGradGuard no_grad;
  const EvalModeGuard eval(model);
  const MergedLora merged(model);
  const KeptRandomState random(example_inputs[0].device());
  const jit::Module traced = dynamic_trace(
      model,
      example_inputs,
      {.call = "export_torchscript",
       .dynamic_batch = options.dynamic_batch,
       .cure =
           "Compute with whole batches, not sample by sample, and use the "
           "batch size only in multiples. TorchScriptOptions::dynamic_batch = "
           "false exports for this batch size only; export_model of a "
           "HasArchitecture needs no graph."});
  std::ostringstream bytes;
  traced.save(bytes);
  AtomicFile file(path);
  file.write(bytes.str());
  file.commit_with_sum(options.sha256_file);
}

Model load_torchscript_trusted(const std::filesystem::path& path) {
  ByteFile file(path);  // its error names the file
  check_sha256_file(path, sum_beside(path));
  try {
    return jit::load(path.string(), torch::kCPU);
  } catch (const c10::Error& error) {
    throw DataError(
        path.string(),
        fmt::format(
            "LibTorch cannot read it as TorchScript: {}. Expected a file "
            "written by export_torchscript or Python's torch.jit.save.",
            error.what_without_backtrace()));
  }
}

void Learner::export_torchscript(
    const std::filesystem::path& path,
    const Tensors& example_inputs) {
  export_torchscript(path, example_inputs, TorchScriptOptions{});
}

void Learner::export_torchscript(
    const std::filesystem::path& path,
    const Tensors& example_inputs,
    const TorchScriptOptions& options) {
  const Fp32Weights fp32(*this);
  const Tensors inputs = to_device(example_inputs, data().device);
  tern::export_torchscript(model(), path, inputs, options);
}

}  // namespace tern
