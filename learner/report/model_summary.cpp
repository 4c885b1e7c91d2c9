#include "tern/learner/report/model_summary.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/eval_mode.h"
#include "tern/learner/loop.h"
#include "tern/learner/module_names.h"
#include "tern/learner/report/forward_hooks.h"
#include "tern/learner/report/op_hook.h"

namespace tern {

namespace {

// Returns the modules that count as layers, with all numbers 0.
std::vector<LayerSummary> layers_of(const Model& model) {
  std::vector<LayerSummary> layers;
  const auto module = model.module();
  if (!module) return layers;
  for (const auto& item : module->named_modules()) {
    const torch::nn::Module& layer = *item.value();
    if (layer.children().empty() || !layer.parameters(false).empty()) {
      layers.push_back({item.key(), module_class_name(layer.name()), {}});
    }
  }
  return layers;
}

// Returns the multiply-adds of a convolution or matrix product. Returns 0 for
// other operations, including operations that call convolutions or matrix
// products.
int64_t multiply_adds(const OpHook::Op& op) {
  const std::string_view name = op.name;
  if (op.outputs.empty()) return 0;
  const torch::Tensor& output = op.outputs[0];
  if (name == "aten::convolution" && op.inputs.size() >= 2) {
    const torch::Tensor &input = op.inputs[0], &weight = op.inputs[1];
    // In a transposed convolution each input element uses the weights of its
    // channel.
    const bool is_transposed =
        weight.size(0) == input.size(1) && weight.size(0) != output.size(1);
    return (is_transposed ? input : output).numel() * weight.numel() /
           weight.size(0);
  }
  const size_t first = name == "aten::addmm" || name == "aten::baddbmm" ? 1 : 0;
  const bool is_product = first == 1 || name == "aten::mm" ||
                          name == "aten::bmm" || name == "aten::mv";
  if (!is_product || op.inputs.size() < first + 2) return 0;
  return output.numel() * op.inputs[first].size(-1);
}

class Summarizer {
 public:
  explicit Summarizer(Model& model) : model_(model) {
    summary_.layers = layers_of(model);
    for (size_t i = 0; i < summary_.layers.size(); ++i) {
      index_[summary_.layers[i].name] = i;
    }
    for (const ModelTensor& p : model.parameters()) add_parameter(p);
    // Frozen weights of a model with adapters, which lists them as buffers.
    std::unordered_set<const c10::TensorImpl*> frozen;
    if (model.module()) {
      for (const torch::Tensor& p : model.module()->parameters()) {
        frozen.insert(p.unsafeGetTensorImpl());
      }
    }
    for (const ModelTensor& b : model.buffers()) {
      if (frozen.contains(b.tensor.unsafeGetTensorImpl())) {
        add_parameter(b);
      } else {
        summary_.buffer_bytes += static_cast<int64_t>(b.tensor.nbytes());
      }
    }
  }

  ModelSummary run(const Tensors& inputs) {
    const torch::NoGradGuard no_grad;
    const EvalModeGuard eval(model_);
    find_shapes(inputs);
    {
      const OpHook observer([this](const OpHook::Op& op) { see(op); });
      model_.forward(inputs);
    }
    for (const torch::Tensor& input : inputs) {
      summary_.inputs.push_back(input.sizes().vec());
    }
    return std::move(summary_);
  }

 private:
  void add_parameter(const ModelTensor& parameter) {
    const size_t dot = parameter.name.rfind('.');
    const std::string layer =
        dot == std::string::npos ? "" : parameter.name.substr(0, dot);
    const auto [at, is_new] = index_.try_emplace(layer, summary_.layers.size());
    if (is_new) summary_.layers.push_back({layer, "", {}});
    LayerSummary& summary = summary_.layers[at->second];
    const int64_t count = parameter.tensor.numel();
    const int64_t learns = parameter.tensor.requires_grad() ? count : 0;
    summary.parameters += count;
    summary.trainable += learns;
    summary_.parameters += count;
    summary_.trainable += learns;
    summary_.parameter_bytes += static_cast<int64_t>(parameter.tensor.nbytes());
    owners_[parameter.tensor.storage().unsafeGetStorageImpl()] = at->second;
  }

  // Shapes of layers without parameters are only known in a Sequential whose
  // children all take and return one tensor.
  void find_shapes(const Tensors& inputs) {
    std::vector<std::string> names;
    const ForwardHooks taps(
        model_,
        [&](size_t layer, const torch::Tensor& output) {
          const auto at = index_.find(names[layer]);
          if (at == index_.end()) return;
          summary_.layers[at->second].output = output.sizes().vec();
        });
    names = taps.names();
    try {
      model_.forward(inputs);
    } catch (const c10::Error&) {
      // A fault of the model itself also occurs in the pass without hooks.
    }
  }

  // Operations inside another operation are reported before it.
  void see(const OpHook::Op& op) {
    inner_multiply_adds_ += multiply_adds(op);
    if (op.depth > 0) return;
    const int64_t work = std::exchange(inner_multiply_adds_, 0);
    summary_.multiply_adds += work;
    add_outputs(op);
    for (const torch::Tensor& input : op.inputs) {
      if (!input.has_storage()) continue;
      const auto at = owners_.find(input.storage().unsafeGetStorageImpl());
      if (at == owners_.end()) continue;
      LayerSummary& layer = summary_.layers[at->second];
      layer.multiply_adds += work;
      if (!op.outputs.empty()) layer.output = op.outputs[0].sizes().vec();
      return;
    }
  }

  // Views and in-place results use memory that is already counted.
  void add_outputs(const OpHook::Op& op) {
    for (const torch::Tensor& output : op.outputs) {
      const bool is_old = std::ranges::any_of(
          op.inputs,
          [&](const torch::Tensor& t) { return t.is_alias_of(output); });
      if (!is_old) {
        summary_.activation_bytes += static_cast<int64_t>(output.nbytes());
      }
    }
  }

  Model& model_;
  ModelSummary summary_;
  std::unordered_map<std::string, size_t> index_;  // layer name to index
  std::unordered_map<const c10::StorageImpl*, size_t> owners_;
  int64_t inner_multiply_adds_ = 0;
};

}  // namespace

ModelSummary summarize(Model& model, const Tensors& inputs) {
  // Runs a model of several devices on one device, so that this thread runs all
  // operations.
  Model plain = model.module() ? model.with_module(model.module()) : model;
  return Summarizer(plain).run(inputs);
}

std::string with_commas(int64_t number) {
  return fmt::to_string(fmt::group_digits(number));
}

std::string counted(int64_t number, const std::string& noun) {
  if (number == 1) return "1 " + noun;
  const bool takes_es = noun == "batch" || noun.ends_with("s");
  return with_commas(number) + " " + noun + (takes_es ? "es" : "s");
}

namespace {

std::string shape_text(const std::vector<int64_t>& sizes) {
  return sizes.empty() ? "" : fmt::format("[{}]", fmt::join(sizes, ", "));
}

// Formats one line per layer; columns are as wide as their contents.
std::string layer_table(const std::vector<LayerSummary>& layers) {
  size_t name_width = 5, kind_width = 4, output_width = 6;
  for (const LayerSummary& layer : layers) {
    name_width = std::max(name_width, layer.name.size());
    kind_width = std::max(kind_width, layer.kind.size());
    output_width = std::max(output_width, shape_text(layer.output).size());
  }
  const auto line = [&](const std::string& name,
                        const std::string& kind,
                        const std::string& output,
                        const std::string& parameters,
                        const std::string& multiply_adds) {
    return fmt::format(
        "{:<{}}  {:<{}}  {:<{}}  {:>12}  {:>14}",
        name,
        name_width,
        kind,
        kind_width,
        output,
        output_width,
        parameters,
        multiply_adds);
  };
  const auto figure = [](int64_t number) {
    return number != 0 ? with_commas(number) : std::string();
  };
  std::string text =
      line("layer", "kind", "output", "parameters", "multiply-adds") + "\n";
  for (const LayerSummary& layer : layers) {
    std::string row = line(
        layer.name,
        layer.kind,
        shape_text(layer.output),
        figure(layer.parameters),
        figure(layer.multiply_adds));
    if (layer.parameters > 0 && layer.trainable == 0) row += "  frozen";
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

// Recurrent layers run as one fused operation, whose multiply-adds are not
// counted.
std::string uncounted_layers(const std::vector<LayerSummary>& layers) {
  std::vector<std::string> names;
  for (const LayerSummary& layer : layers) {
    const bool is_recurrent =
        layer.kind == "LSTM" || layer.kind == "GRU" || layer.kind == "RNN";
    if (is_recurrent && layer.multiply_adds == 0) {
      names.push_back(fmt::format("{} ({})", layer.name, layer.kind));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string ModelSummary::to_string() const {
  std::vector<std::string> input_shapes;
  for (const auto& sizes : inputs) input_shapes.push_back(shape_text(sizes));
  std::string text = layer_table(layers);
  text += fmt::format(
      "{} parameters in {}, {} of them trained; buffers take {}\n"
      "input {}: {} multiply-adds, {} of activations\n",
      with_commas(parameters),
      bytes_text(parameter_bytes),
      with_commas(trainable),
      bytes_text(buffer_bytes),
      fmt::join(input_shapes, ", "),
      with_commas(multiply_adds),
      bytes_text(activation_bytes));
  const std::string uncounted = uncounted_layers(layers);
  if (!uncounted.empty()) {
    text += fmt::format(
        "not counted: the multiply-adds of {}, each one fused operation\n",
        uncounted);
  }
  return text;
}

ModelSummary Learner::summary() {
  auto batch = parts_->data.loader(Split::train).epoch(0).next();
  TORCH_CHECK_VALUE(
      batch,
      "[Learner::summary] the train loader has no batch; expected at least one "
      "to run the model on.");
  EvalScope eval(*parts_);
  loop::start_batch(*parts_, std::move(*batch));
  loop::run(*parts_, Event::batch_begin);
  ModelSummary summary;
  loop::in_forward_precision(*parts_, [&] {
    summary = summarize(parts_->model, parts_->state.batch_data.inputs);
  });
  eval.end();
  return summary;
}

}  // namespace tern
