#include "tern/learner/weights/lora.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "tern/kernels/check.h"
#include "tern/learner/amp/activation_checkpoint.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/model_around.h"
#include "tern/learner/module_names.h"

namespace tern {

namespace {

// Returns the weight that a layer's forward reads; null for other modules.
torch::Tensor* weight_of(torch::nn::Module& module) {
  using namespace torch::nn;  // NOLINT: local, the list is long
  if (auto* linear = module.as<LinearImpl>()) return &linear->weight;
  if (auto* conv = module.as<Conv1dImpl>()) return &conv->weight;
  if (auto* conv = module.as<Conv2dImpl>()) return &conv->weight;
  if (auto* conv = module.as<Conv3dImpl>()) return &conv->weight;
  auto* attention = module.as<MultiheadAttentionImpl>();
  // Undefined if queries, keys and values differ in width.
  const bool is_joint = attention && attention->in_proj_weight.defined();
  return is_joint ? &attention->in_proj_weight : nullptr;
}

bool is_in_any(
    const std::string& name,
    const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) {
    return is_in_module(name, module);
  });
}

bool is_target(const std::string& name, const LoraOptions& options) {
  if (options.targets.empty()) return !is_in_any(name, options.train);
  return std::ranges::any_of(options.targets, [&](const std::string& target) {
    return name == target || name.ends_with("." + target);
  });
}

constexpr auto kA = ".lora_A.weight", kB = ".lora_B.weight";

// One adapter; layers that share a weight share it.
struct Adapter {
  std::vector<std::string> layers;
  std::vector<torch::Tensor*> weights;  // the layers' members, to be replaced
  torch::Tensor base, a, b;

  const std::string& name() const { return layers[0]; }

  torch::Tensor times(const torch::Tensor& left, const torch::Tensor& right)
      const {
    return left.flatten(1).matmul(right.flatten(1)).view(base.sizes());
  }
};

Adapter
make_adapter(const std::string& name, torch::Tensor* weight, int64_t rank) {
  std::vector<int64_t> a = weight->sizes().vec(), b(weight->dim(), 1);
  b[0] = a[0];
  a[0] = b[1] = rank;
  const auto like = weight->options();
  Adapter adapter{
      {name},
      {weight},
      *weight,
      torch::empty(a, like),
      torch::zeros(b, like)};
  torch::nn::init::kaiming_uniform_(adapter.a, std::sqrt(5));
  adapter.a.requires_grad_();
  adapter.b.requires_grad_();
  return adapter;
}

class LoraModel final : public ModelImpl,
                        public std::enable_shared_from_this<LoraModel> {
 public:
  /// \param frozen  Names of the parameters to leave frozen after a merge.
  LoraModel(
      Model inner,
      const LoraOptions& options,
      std::set<std::string> frozen)
      : inner_(std::move(inner)),
        train_(options.train),
        frozen_(std::move(frozen)),
        scale_(options.alpha / static_cast<double>(options.rank)) {
    std::string out_proj;  // of a targeted attention
    for (const auto& item : inner_.module()->named_modules()) {
      const std::string& name = item.key();
      torch::Tensor* const weight = weight_of(*item.value());
      if (!weight) continue;
      if (name != out_proj && !is_target(name, options)) continue;
      add(name, weight, options.rank);
      if (item.value()->as<torch::nn::MultiheadAttentionImpl>()) {
        out_proj = name + ".out_proj";
      }
    }
    check_no_checkpoint();
    leave_out_what_others_share(/*may_leave_out=*/options.targets.empty());
    TERN_CHECK_VALUE(
        !adapters_.empty(),
        "[add_lora] none of the targets \"{}\" is a linear, convolution or "
        "attention layer; expected names of such layers.",
        fmt::join(options.targets, "\", \""));
    for (const ModelTensor& item : inner_.parameters()) {
      item.tensor.requires_grad_(is_in_any(item.name, train_));
      if (!item.tensor.requires_grad()) item.tensor.mutable_grad().reset();
    }
  }

  // Creates a replica on another device. It copies the adapters to its device
  // in each forward, so that their gradients reach the original adapters.
  LoraModel(
      const LoraModel& other,
      const std::shared_ptr<torch::nn::Module>& replica)
      : LoraModel(other) {
    inner_ = inner_.with_module(replica);
    const auto modules = replica->named_modules();
    for (Adapter& adapter : adapters_) {
      adapter.weights.clear();
      for (const std::string& layer : adapter.layers) {
        adapter.weights.push_back(weight_of(*modules[layer]));
      }
      adapter.base = *adapter.weights[0];
      adapter.a = adapter.a.to(adapter.base.device());
      adapter.b = adapter.b.to(adapter.base.device());
    }
  }

  Tensors forward(const Tensors& inputs) override {
    if (is_merged_) return inner_.forward(inputs);
    const auto restore = c10::make_scope_exit([&] {
      for (Adapter& adapter : adapters_) {
        for (torch::Tensor* const weight : adapter.weights) {
          *weight = adapter.base;
        }
      }
    });
    for (Adapter& adapter : adapters_) {
      const torch::Tensor product =
          scale_ * adapter.times(adapter.b, adapter.a);
      const torch::Tensor sum =
          adapter.base + product.to(adapter.base.scalar_type());
      for (torch::Tensor* const weight : adapter.weights) *weight = sum;
    }
    return inner_.forward(inputs);
  }

  std::vector<ModelTensor> parameters() const override {
    std::vector<ModelTensor> all;
    for (const Adapter& adapter : adapters_) {
      all.push_back({adapter.name() + kA, adapter.a});
      all.push_back({adapter.name() + kB, adapter.b});
    }
    for (const ModelTensor& item : inner_.parameters()) {
      if (is_in_any(item.name, train_)) all.push_back(item);
    }
    return all;
  }
  // Includes frozen weights, so that they are moved and converted with the
  // model.
  std::vector<ModelTensor> buffers() const override {
    std::vector<ModelTensor> all = inner_.buffers();
    for (const ModelTensor& item : inner_.parameters()) {
      if (!is_in_any(item.name, train_)) all.push_back(item);
    }
    return all;
  }
  std::vector<ModelTensor> state() const override {
    if (is_merged_) return inner_.state();
    std::vector<ModelTensor> all = parameters();
    for (const ModelTensor& item : inner_.buffers()) {
      if (is_in_any(item.name, train_)) all.push_back(item);
    }
    return all;
  }

  void train(bool on) override {
    inner_.train(on);
    for (const auto& item : inner_.module()->named_modules()) {
      const bool is_norm = item.value()->as<torch::nn::BatchNorm1d>() ||
                           item.value()->as<torch::nn::BatchNorm2d>() ||
                           item.value()->as<torch::nn::BatchNorm3d>();
      if (is_norm && !is_in_any(item.key(), train_)) item.value()->eval();
    }
  }
  bool is_training() const override { return inner_.is_training(); }
  void to(torch::Device device) override {
    inner_.to(device);
    for (Adapter& adapter : adapters_) {
      adapter.a.set_data(adapter.a.to(device));
      adapter.b.set_data(adapter.b.to(device));
    }
  }
  std::shared_ptr<torch::nn::Module> module() const override {
    return inner_.module();
  }
  std::shared_ptr<ModelImpl> with_module(
      const std::shared_ptr<torch::nn::Module>& module) const override {
    if (module == inner_.module()) {
      return std::const_pointer_cast<LoraModel>(shared_from_this());
    }
    // A merged model needs no adapters, and the copy would share them.
    if (is_merged_) return inner_.with_module(module).impl();
    return std::make_shared<LoraModel>(*this, module);
  }

  bool is_merged() const { return is_merged_; }
  const Model& inner() const { return inner_; }
  const std::vector<Adapter>& adapters() const { return adapters_; }
  // Names of the parameters that were frozen before the adapters were added.
  const std::set<std::string>& frozen_before() const { return frozen_; }

  /// Merges the adapters, or their values in `exact` if given.
  /// \return  The weights before.
  Tensors merge(const StateDict& exact = {}) {
    const torch::NoGradGuard no_grad;
    Tensors before;
    for (Adapter& adapter : adapters_) {
      before.push_back(adapter.base.detach());
      const auto type =
          torch::promote_types(adapter.base.scalar_type(), torch::kFloat);
      const auto matrix = [&](const char* part, const torch::Tensor& rounded) {
        const torch::Tensor* const found = exact.find(adapter.name() + part);
        return (found ? *found : rounded).to(rounded.device(), type);
      };
      adapter.base.set_data(
          adapter.base.to(type) +
          scale_ * adapter.times(matrix(kB, adapter.b), matrix(kA, adapter.a)));
    }
    is_merged_ = true;
    return before;
  }
  void unmerge(const Tensors& before) {
    for (size_t i = 0; i < adapters_.size(); ++i) {
      adapters_[i].base.set_data(before[i]);
    }
    is_merged_ = false;
  }

 private:
  void add(const std::string& layer, torch::Tensor* weight, int64_t rank) {
    for (Adapter& adapter : adapters_) {
      if (!adapter.base.is_same(*weight)) continue;
      adapter.layers.push_back(layer);
      adapter.weights.push_back(weight);
      return;
    }
    adapters_.push_back(make_adapter(layer, weight, rank));
  }

  // Otherwise an update merged into the weight would change the other layer
  // too.
  void leave_out_what_others_share(bool may_leave_out) {
    for (const auto& item : inner_.module()->named_modules()) {
      torch::Tensor* weight = weight_of(*item.value());
      if (auto* const table = item.value()->as<torch::nn::Embedding>()) {
        weight = &table->weight;
      }
      if (!weight) continue;
      std::erase_if(adapters_, [&](const Adapter& adapter) {
        // A module may have several names.
        const bool is_adapted = std::ranges::count(adapter.weights, weight) > 0;
        const bool shares = !is_adapted && weight->is_same(adapter.base);
        TERN_CHECK_VALUE(
            may_leave_out || !shares,
            "[add_lora] the layer \"{}\" is a target and shares its weight "
            "with \"{}\", which is not a target, so merging would change both; "
            "expected targets that share weights only with other targets. Name "
            "both if they are of the same kind, or omit this one.",
            adapter.name(),
            item.key());
        return shares;
      });
    }
  }

  // Backward would recompute these layers without their adapters.
  void check_no_checkpoint() const {
    for (const auto& item : inner_.module()->named_modules()) {
      if (!item.value()->as<ActivationCheckpoint>()) continue;
      for (const Adapter& adapter : adapters_) {
        TERN_CHECK_VALUE(
            !item.key().empty() && std::ranges::none_of(
                                       adapter.layers,
                                       [&](const std::string& layer) {
                                         return is_in_module(layer, item.key());
                                       }),
            "[add_lora] the layer \"{}\" is in an ActivationCheckpoint, which "
            "computes it a second time without its adapter. Omit the "
            "ActivationCheckpoint, or name `targets` outside it.",
            adapter.name());
      }
    }
  }

  Model inner_;
  std::vector<std::string> train_;
  std::set<std::string> frozen_;
  double scale_;
  std::vector<Adapter> adapters_;
  bool is_merged_ = false;
};

// Checks that each name is a module name, or with `is_end_enough` the end of
// one.
void check_names(
    const Model& model,
    const char* what,
    const std::vector<std::string>& names,
    bool is_end_enough) {
  const std::vector<std::string> known = model.module()->named_modules().keys();
  for (const std::string& name : names) {
    TERN_CHECK_VALUE(
        std::ranges::any_of(
            known,
            [&](const std::string& module) {
              return module == name ||
                     (is_end_enough && module.ends_with("." + name));
            }),
        "[add_lora] there is no module \"{}\" of `{}`; expected the names of "
        "modules, such as \"{}\".",
        name,
        what,
        known.back());
  }
}

// Also finds the adapters of a model on several devices.
std::shared_ptr<LoraModel> lora_of(const Model& model) {
  return std::dynamic_pointer_cast<LoraModel>(
      model.impl()->with_module(model.module()));
}

}  // namespace

namespace {

std::set<std::string> frozen_parameters(const Model& model) {
  std::set<std::string> names;
  for (const ModelTensor& item : model.parameters()) {
    if (!item.tensor.requires_grad()) names.insert(item.name);
  }
  return names;
}

Model with_adapters(
    const Model& model,
    const LoraOptions& options,
    std::set<std::string> frozen) {
  TORCH_CHECK_VALUE(
      model.module() && !lora_of(model),
      "[add_lora] the model is TorchScript or has adapters already; expected a "
      "module written in C++, without adapters. Merge existing adapters with "
      "merge_lora.");
  TORCH_CHECK_VALUE(
      !dynamic_cast<const ModelAround*>(model.impl().get()),
      "[add_lora] the model runs on several devices; expected one device. Call "
      "add_lora first, then to_parallel or parallel_model.");
  TERN_CHECK_VALUE(
      options.rank > 0 && std::isfinite(options.alpha),
      "[add_lora] rank is {} and alpha is {}; expected a rank of at least 1 "
      "and a finite alpha.",
      options.rank,
      options.alpha);
  check_names(model, "targets", options.targets, /*is_end_enough=*/true);
  check_names(model, "train", options.train, /*is_end_enough=*/false);
  const auto lora =
      std::make_shared<LoraModel>(model, options, std::move(frozen));
  lora->train(model.is_training());
  return Model(lora);
}

}  // namespace

Model add_lora(const Model& model, const LoraOptions& options) {
  return with_adapters(model, options, frozen_parameters(model));
}

Learner& add_lora(Learner& learn, const LoraOptions& options) {
  LearnerParts& parts = parts_of(learn);
  TORCH_CHECK_VALUE(
      !parts.optimizer && !parts.stepped_weights,
      "[add_lora] the Learner has an optimizer or 16-bit weights; expected "
      "add_lora before the first fit and before to_fp16 or to_bf16.");
  LoraOptions all = options;
  if (all.train.empty() && parts.groups.parameters.size() > 1) {
    std::set<std::string> modules;
    for (const ModelTensor& item : parts.groups.parameters.back()) {
      modules.insert(item.name.substr(0, item.name.rfind('.')));
    }
    all.train.assign(modules.begin(), modules.end());
  }
  // What `freeze` has frozen is trainable again after a merge.
  std::set<std::string> frozen = frozen_parameters(parts.model);
  for (const std::string& name : parts.groups.frozen) frozen.erase(name);
  parts.model = with_adapters(parts.model, all, std::move(frozen));
  parts.groups.frozen.clear();
  return learn.split({});
}

Model merge_lora(const Model& model) {
  const auto lora = lora_of(model);
  if (!lora) return model;
  const Tensors before = lora->merge();
  for (size_t i = 0; i < before.size(); ++i) {
    const torch::Tensor& weight = lora->adapters()[i].base;
    weight.set_data(weight.to(before[i].scalar_type()));
  }
  for (const ModelTensor& item : lora->inner().parameters()) {
    item.tensor.requires_grad_(!lora->frozen_before().contains(item.name));
  }
  return lora->inner();
}

MergedLora::MergedLora(const Model& model, const StateDict& exact) {
  const auto lora = lora_of(model);
  if (!lora || lora->is_merged()) return;
  model_ = lora;
  before_ = lora->merge(exact);
}

MergedLora::~MergedLora() {
  if (model_) static_cast<LoraModel&>(*model_).unmerge(before_);
}

}  // namespace tern
