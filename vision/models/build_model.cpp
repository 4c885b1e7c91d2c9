#include "tern/vision/models/build_model.h"

#include <map>
#include <memory>
#include <mutex>
#include <ranges>
#include <string_view>
#include <utility>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/ranges.h>

#include "tern/data/formats/error.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/export/embedded_torchscript.h"
#include "tern/learner/weights/weights.h"
#include "tern/vision/models/cnn/resnet.h"
#include "tern/vision/models/cnn/simple_cnn.h"
#include "tern/vision/models/detection/retinanet.h"
#include "tern/vision/models/dynamic_unet.h"
#include "tern/vision/models/matting/matting_base.h"
#include "tern/vision/models/matting/matting_refine.h"
#include "tern/vision/models/vision_model.h"

namespace tern {

namespace {

std::mutex mutex;

// Guarded by `mutex`.
std::map<std::string, ModelBuilder>& builders() {
  static auto by_name = [] {
    auto all = network_builders();
    all.insert({
        {"dynamic_unet", build_dynamic_unet},
        {"matting_base", build_matting_base},
        {"matting_refine", build_matting_refine},
        {"resnet", build_resnet},
        {"retinanet", build_retinanet},
        {"simple_cnn", build_simple_cnn},
        {"vision_model", build_vision_model},
    });
    return all;
  }();
  return by_name;
}

ModelBuilder find_builder(const std::string& name) {
  const std::lock_guard lock(mutex);
  const auto at = builders().find(name);
  TERN_CHECK_VALUE(
      at != builders().end(),
      "[build_model] there is no architecture '{}'; expected one of {}. Call "
      "register_architecture for your own network.",
      name,
      fmt::join(std::views::keys(builders()), ", "));
  return at->second;
}

}  // namespace

bool is_architecture(const std::string& name) {
  const std::lock_guard lock(mutex);
  return builders().contains(name);
}

Model build_model(const Architecture& architecture) {
  return find_builder(architecture.name)(architecture);
}

namespace {

[[noreturn]] void throw_too_large(const std::string& file) {
  throw_data_error(
      file,
      "describes a network that is much larger than the weights in the file; "
      "expected a file written by Learner::export_model. Export it again.");
}

// Limits the memory that a thread allocates. LibTorch reports each allocation
// of a thread to its profiler; this class is registered in place of the
// profiler.
class AllocationLimit final : public c10::MemoryReportingInfoBase {
 public:
  AllocationLimit(int64_t limit, std::string file)
      : left_(limit), file_(std::move(file)) {}

  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(
      void* memory,
      int64_t size,
      size_t,
      size_t,
      c10::Device device) override {
    if (!device.is_cpu()) return;
    left_ -= size;
    if (size <= 0 || left_ >= 0) return;
    // No tensor owns the memory yet, so it is freed here.
    c10::profiledCPUMemoryReporter().Delete(memory);
    c10::free_cpu(memory);
    throw_too_large(file_);
  }

 private:
  int64_t left_;
  std::string file_;
};

// Builds a network with a limit on memory. Its shapes can be compared with the
// file only after it is built. Without the limit, a file of a few kilobytes
// could describe a network of gigabytes.
Model build_of_size(
    const Architecture& architecture,
    const StateDict& weights,
    const std::string& file) {
  constexpr int64_t kAlways = 64 << 20;
  constexpr int64_t kTimes = 3;  // peak while weights are initialized
  int64_t limit = kAlways;
  for (const auto& item : weights) {
    limit += kTimes * item.value().numel() *
             std::max<int64_t>(item.value().element_size(), sizeof(float));
  }
  // A profiler of the caller would use the same slot with its own state.
  constexpr auto kPlace = c10::DebugInfoKind::PROFILER_STATE;
  if (c10::ThreadLocalDebugInfo::get(kPlace)) return build_model(architecture);
  const c10::DebugInfoGuard guard(
      kPlace,
      std::make_shared<AllocationLimit>(limit, file));
  try {
    return build_model(architecture);
  } catch (const c10::Error& error) {
    // An allocation that exceeds the machine's memory fails before it is
    // reported.
    if (std::string_view(error.what_without_backtrace())
            .find("can't allocate memory") == std::string_view::npos) {
      throw;
    }
    throw_too_large(file);
  }
}

}  // namespace

std::pair<Model, ModelCard> load_exported(
    const std::filesystem::path& file,
    bool trusted) {
  ModelCard card = parse_model_card(safetensors_metadata(file), file.string());
  const bool is_graph = card.architecture.name == kGraph;
  TERN_CHECK_VALUE(
      trusted || !is_graph,
      "[load_exported] {} holds a TorchScript graph, which is a program that "
      "LibTorch would run; expected a trusted file. Set "
      "PredictorOptions::trusted if you trust its source.",
      file.string());
  const StateDict weights = load_weights(file);
  if (is_graph && !weights.contains(kGraph)) {
    throw DataError(
        file.string(),
        "should hold a TorchScript graph but has none. Export it again.");
  }
  Model model = is_graph
                    ? model_of_graph(weights[kGraph], file.string())
                    : build_of_size(card.architecture, weights, file.string());
  if (!is_graph) model.load_state_dict(weights);
  model.eval();
  return {std::move(model), std::move(card)};
}

void register_architecture(const std::string& name, ModelBuilder builder) {
  TORCH_CHECK_VALUE(
      !name.empty() && builder,
      "[register_architecture] the name or the builder is empty; expected a "
      "name and a function that returns a Model.");
  const std::lock_guard lock(mutex);
  TERN_CHECK_VALUE(
      builders().emplace(name, std::move(builder)).second,
      "[register_architecture] the name '{}' is already registered; choose "
      "another.",
      name);
}

}  // namespace tern
