#include "tern/learner/report/run_facts.h"

#include <array>
#include <fstream>
#include <optional>
#include <ranges>
#include <sys/utsname.h>
#include <thread>
#include <typeinfo>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/recorder.h"
#include "tern/learner/report/model_summary.h"
#include "tern/version.h"

namespace tern {

namespace {

// Returns the text after `key` and a colon in a system file such as
// /proc/cpuinfo.
std::string line_of(const std::filesystem::path& file, const char* key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string gpu_name() {
  std::error_code none;
  const std::filesystem::path gpus = "/proc/driver/nvidia/gpus";
  for (const auto& gpu : std::filesystem::directory_iterator(gpus, none)) {
    return line_of(gpu.path() / "information", "Model");
  }
  return "";
}

std::string describe(const DataLoader* loader) {
  if (!loader) return "none";
  const DataLoaderOptions& options = loader->options();
  return fmt::format(
      "{}, {} of {}, {}",
      counted(loader->dataset().size(), "sample"),
      counted(loader->size(), "batch"),
      options.batch_size,
      counted(options.workers, "worker"));
}

int64_t count_parameters(const Model& model, bool only_trained) {
  int64_t count = 0;
  for (const ModelTensor& p : model.parameters()) {
    if (!only_trained || p.tensor.requires_grad()) count += p.tensor.numel();
  }
  return count;
}

std::string model_name(const Model& model) {
  if (const auto module = model.module()) {
    const torch::nn::Module& made = *module;
    return c10::demangle(typeid(made).name());
  }
  return "TorchScript";
}

const char* yes_or_no(bool value) {
  return value ? "yes" : "no";
}

struct Line {
  const char* text;  // as printed, with indentation
  std::optional<Event> event = {};
};

constexpr std::array kLines = {
    Line{"on_train_begin", Event::train_begin},
    Line{"for each epoch"},
    Line{"  on_epoch_begin", Event::epoch_begin},
    Line{"  for each training batch"},
    Line{"    on_batch_begin", Event::batch_begin},
    Line{"    outputs = model(inputs)"},
    Line{"    on_loss_begin", Event::loss_begin},
    Line{"    loss = loss(outputs, targets)"},
    Line{"    on_backward_begin", Event::backward_begin},
    Line{"    loss.backward()"},
    Line{"    on_backward_end", Event::backward_end},
    Line{"    on_step", Event::step},
    Line{"    optimizer.step()"},
    Line{"    on_step_end", Event::step_end},
    Line{"    zero the gradients"},
    Line{"    on_batch_end", Event::batch_end},
    Line{"  on_eval_begin", Event::eval_begin},
    Line{"  for each validation batch: on_batch_begin, model, on_loss_begin, "
         "loss, on_batch_end"},
    Line{"  on_eval_end", Event::eval_end},
    Line{"  on_epoch_end", Event::epoch_end},
    Line{"on_train_end", Event::train_end}};

}  // namespace

std::string optimizer_text(Learner& learner) {
  return parts_of(learner).optimizer ? optim::class_name(learner.optimizer())
                                     : "created when the first fit begins";
}

Facts configuration(Learner& learner) {
  const LearnerOptions& options = learner.options();
  const DataBunch& data = learner.data();
  const auto metrics = options.metrics | std::views::transform(&Metric::name);
  const auto callbacks =
      learner.callbacks() |
      std::views::transform([](const auto& c) { return c->name(); });
  Facts facts = {
      {"model", model_name(learner.model())},
      {"parameters",
       fmt::format(
           "{}, {} trained, in {}",
           with_commas(count_parameters(learner.model(), false)),
           with_commas(count_parameters(learner.model(), true)),
           counted(parts_of(learner).groups.size(), "layer group"))},
      {"training data", describe(data.train.get())},
      {"validation data", describe(data.valid.get())},
      {"precision", loop::precision_text(parts_of(learner))},
      {"device", data.device.str()},
      {"optimizer", optimizer_text(learner)},
      {"learning rate of a fit without one", fmt::format("{}", options.lr)},
      {"loss", options.loss ? options.loss.name() : "chosen by the targets"},
      {"weight decay",
       fmt::format(
           "{}, decoupled: {}, normalization and biases too: {}",
           options.weight_decay,
           yes_or_no(options.true_weight_decay),
           yes_or_no(options.bn_weight_decay))},
      {"metrics", fmt::format("{}", fmt::join(metrics, ", "))},
      {"callbacks", fmt::format("{}", fmt::join(callbacks, ", "))}};
  if (parts_of(learner).optimizer) {
    facts.emplace_back(
        "learning rates now",
        fmt::format("{:.4g}", fmt::join(learner.learning_rates(), ", ")));
  }
  const auto& shape = learner.recorder().input_shape();
  if (!shape.empty()) {
    facts.emplace_back(
        "input of the model",
        fmt::format("[{}]", fmt::join(shape, ", ")));
  }
  if (options.seed != 0) {
    facts.emplace_back("seed", std::to_string(options.seed));
  }
  if (data.train) {
    facts.emplace_back(
        "loader's seed",
        std::to_string(data.train->options().seed));
  }
  if (!data.classes.empty()) {
    constexpr size_t kShown = 20;
    facts.emplace_back(
        "classes",
        fmt::format(
            "{}: {}{}",
            data.classes.size(),
            fmt::join(data.classes | std::views::take(kShown), ", "),
            kShown < data.classes.size() ? ", ..." : ""));
  }
  return facts;
}

Facts environment(torch::Device device) {
  Facts facts = {
      {"Tern", TERN_VERSION_STRING},
      {"LibTorch", TORCH_VERSION},
      {"processor",
       fmt::format(
           "{}, {} threads, {}",
           line_of("/proc/cpuinfo", "model name"),
           std::thread::hardware_concurrency(),
           at::get_cpu_capability())},
      {"threads of operations", std::to_string(at::get_num_threads())}};
  if (device.is_cuda()) facts.emplace_back("GPU", gpu_name());
  utsname system{};
  if (::uname(&system) == 0) {
    facts.emplace_back(
        "system",
        fmt::format(
            "{} {} {}",
            system.sysname,
            system.release,
            system.machine));
  }
  facts.emplace_back("compiler", "GCC-compatible " __VERSION__);
  return facts;
}

std::vector<std::string> training_loop(const Callbacks& callbacks) {
  std::vector<std::string> lines;
  for (const Line& line : kLines) {
    std::vector<std::string> names;
    for (const CallbackHandle& callback : callbacks) {
      if (line.event && callback.acts_at(*line.event)) {
        names.push_back(callback->name());
      }
    }
    lines.push_back(
        names.empty()
            ? line.text
            : fmt::format("{:<26}{}", line.text, fmt::join(names, ", ")));
  }
  return lines;
}

}  // namespace tern
