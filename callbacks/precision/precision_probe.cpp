#include "tern/callbacks/precision/precision_probe.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <ranges>
#include <unordered_map>
#include <utility>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/limit_batches.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/loop.h"
#include "tern/learner/precision/autocast.h"
#include "tern/learner/precision/keep_fp32.h"
#include "tern/learner/report/op_hook.h"

namespace tern {

namespace {

constexpr int64_t kPasses = 3;     // for a type; with fp32, autocast, a step: 9
constexpr double kBadError = 0.5;  // |16 bits - fp32| / |fp32|
constexpr double kLeast = 1.0 / 3;  // of a gradient's size
constexpr double kManyLost = 0.1;   // of the updates of a module

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// A flat kDouble tensor for each module with parameters.
using ByModule = std::map<std::string, torch::Tensor>;

ByModule by_module(const LearnerParts& l, bool of_gradients) {
  std::map<std::string, Tensors> parts;
  for (const ModelTensor& p : l.model.parameters()) {
    const torch::Tensor& own = of_gradients ? p.tensor.grad() : p.tensor;
    if (!own.defined()) continue;
    parts[module_of(p.name)].push_back(own.detach().flatten());
  }
  ByModule all;
  for (const auto& [name, own] : parts) {
    all[name] = torch::cat(own).to(torch::kDouble);
  }
  return all;
}

// Watches the operations of forward passes over one batch, and the gradients of
// their results. For a type they compute as in a model of that type on a GPU,
// on any device: weights, inputs and results are rounded, and so are gradients
// on their way back. Sums within an operation stay fp32.
class Probe final : public Callback {
 public:
  explicit Probe(PrecisionAudit& audit) : audit_(audit) {}

  void on_batch_begin(Learner& learn) override {
    LearnerParts& l = learn.parts();
    generator_ = at::globalContext().defaultGenerator(l.data.device);
    random_ = generator_.get_state();
    before_ = by_module(l, false);
    audit_.modules = {{.name = "input"}};  // what comes before any weights
    for (const torch::Tensor& input : l.state.batch_data.inputs) {
      if (input.is_floating_point()) judge_input(audit_, input);
    }
    gradients_ = pass(l, nullptr);
    for (const auto& [name, gradient] : gradients_) {
      note_gradient(audit_.modules[index_of(name)], gradient);
    }
    judge_gradients(audit_, l.state.loss.item<double>(), faintest_);
    if (audit_.problems.empty()) {
      for (const SixteenBits& type : kSixteenBits) try_type(l, type, kPasses);
      if (!pays(audit_, audit_.fp16) && !pays(audit_, audit_.bf16)) {
        try_autocast(l);
      }
    }
    const ModuleAudit& input = audit_.modules[0];
    if (input.largest_output == 0 && input.fp16.fault.empty()) {
      audit_.modules.erase(audit_.modules.begin());
    }
    origins_.clear();
    results_.clear();
    l.state.outputs.clear();
    generator_.set_state(random_);
  }

  void on_step_end(Learner& learn) override {
    ByModule after = by_module(learn.parts(), false);
    for (ModuleAudit& module : audit_.modules) {
      const torch::Tensor now = after[module.name], old = before_[module.name];
      if (!now.defined()) continue;
      for (const SixteenBits& type : kSixteenBits) {
        double& lost = (module.*type.in_module).update_lost;
        lost = share(now.to(type.dtype) == old.to(type.dtype), now != old);
        (audit_.*type.in_model).needs_masters |= lost > kManyLost;
      }
    }
  }

  int order() const override { return callback_order::kLast; }

 private:
  // Where a tensor comes from.
  struct Origin {
    torch::Tensor self = {};     // so that no address comes twice
    std::string weight_of = {};  // of a parameter: its module
    size_t module = 0;           // whose weights came last
    bool is_fp32 = false;        // among 16 bits
    double error = 0;            // |16 bits - fp32| / |fp32|
  };

  TypeAudit& model() { return audit_.*type_->in_model; }
  ModuleAudit::InType& in_type(ModuleAudit& module) {
    return module.*type_->in_module;
  }
  Origin& origin_of(const torch::Tensor& tensor) {
    return origins_[tensor.unsafeGetTensorImpl()];
  }
  torch::Tensor rounded(const torch::Tensor& t) const {
    return is_amp_ ? t : t.to(type_->dtype).to(t.scalar_type());
  }
  bool keeps(const std::string& module) {
    return std::ranges::count(model().keep_fp32, module) > 0;
  }
  bool is_in_16_bits(const torch::Tensor& t, const std::string& module) {
    return type_ && !is_amp_ && t.is_floating_point() && !keeps(module);
  }

  void blame(ModuleAudit& module, const std::string& fault) {
    model().is_sound = false;
    if (keeps(module.name)) return;
    model().keep_fp32.push_back(module.name);
    in_type(module).fault = fault;
  }

  size_t index_of(const std::string& name) {
    std::vector<ModuleAudit>& all = audit_.modules;
    const auto at = std::ranges::find(all, name, &ModuleAudit::name);
    const size_t index = at - all.begin();
    if (at == all.end()) all.push_back({.name = name});
    return index;
  }

  void note_gradient(ModuleAudit& module, const torch::Tensor& gradient) {
    const auto count = gradient.count_nonzero().item<double>();
    if (count == 0) return;
    take_worst(module.largest_gradient, gradient.abs().max().item<double>());
    faintest_ = std::min(faintest_, norm_of(gradient) / std::sqrt(count));
  }

  Tensors forward(LearnerParts& l) {
    Tensors inputs = l.state.batch_data.inputs;
    for (torch::Tensor& input : inputs) {
      const bool is_rounded = is_in_16_bits(input, "input");
      if (is_rounded) input = rounded(input);
      origin_of(input) = {.self = input, .is_fp32 = type_ && !is_rounded};
    }
    for (const ModelTensor& item : l.model.state()) {
      const torch::Tensor weight = item.tensor.variable_data();
      if (item.layer == LayerKind::batch_norm ||
          !is_in_16_bits(weight, module_of(item.name))) {
        continue;
      }
      originals_.emplace_back(weight, weight.clone());
      weight.copy_(rounded(weight));
    }
    for (const ModelTensor& p : l.model.parameters()) {
      origin_of(p.tensor) = {.self = p.tensor, .weight_of = module_of(p.name)};
    }
    const AutocastGuard autocast(l.data.device, {}, is_amp_);
    const OpHook hook([this](const OpHook::Op& op) { see(op); });
    return loop::run_model(l, inputs);
  }

  // Returns the gradients of the weights, with the loss scale.
  ByModule pass(LearnerParts& l, const SixteenBits* type) {
    type_ = type;
    next_ = 0;
    origins_.clear();
    generator_.set_state(random_);
    l.state.outputs = forward(l);
    for (torch::Tensor& output : l.state.outputs) {
      if (c10::isReducedFloatingType(output.scalar_type()))
        output = output.to(torch::kFloat);
    }
    l.state.loss = loop::compute_loss(l);
    const double scale = type ? model().loss_scale : 1;
    (l.state.loss * scale).backward();
    ByModule gradients = by_module(l, true);
    loop::zero_grad(l);
    for (; !originals_.empty(); originals_.pop_back()) {
      originals_.back().first.copy_(originals_.back().second);
    }
    return gradients;
  }

  void try_type(LearnerParts& l, const SixteenBits& type, int64_t passes) {
    TypeAudit& model = audit_.*type.in_model;
    for (int64_t i = 0; i < passes && !model.is_sound; ++i) {
      const size_t kept = model.keep_fp32.size();
      model.is_sound = true;  // unless a module is to blame
      compare_gradients(pass(l, &type));
      if (model.keep_fp32.size() == kept) return;
    }
  }

  void try_autocast(LearnerParts& l) {
    const PrecisionAudit with_16_bit_weights = audit_;
    const SixteenBits& type = kSixteenBits[l.data.device.is_cuda() ? 0 : 1];
    TypeAudit& model = audit_.*type.in_model;
    model = {.loss_scale = model.loss_scale};
    is_amp_ = true;
    try_type(l, type, 1);
    const bool is_sound = model.is_sound;
    audit_ = with_16_bit_weights;
    audit_.amp_is_sound = is_sound;
  }

  // One that is lost or overflows spoils those of all modules before it, and is
  // to blame if the forward pass is not.
  void compare_gradients(ByModule own) {
    const double scale = model().loss_scale;
    for (ModuleAudit& module : std::views::reverse(audit_.modules)) {
      torch::Tensor is = own[module.name], right = gradients_[module.name];
      const double size = right.defined() ? norm_of(right) : 0;
      if (size == 0) continue;
      is = (keeps(module.name) ? is : rounded(is)) / scale;
      const double normal = type_->smallest_normal / scale;
      note_change(in_type(module).gradient, is, right, normal);
      // Rounding turns a gradient a little; what is lost has no size.
      const double kept = norm_of(is) / size;
      const bool is_bad = !(kept > kLeast && kept < 1 / kLeast);
      if (!is_bad || !model().is_sound) continue;
      const std::string what = kept <= kLeast ? "is lost" : "overflows";
      blame(module, "its gradient " + what);
    }
  }

  void see(const OpHook::Op& op) {
    if (op.depth > 0 || op.outputs.empty()) return;
    const torch::Tensor& output = op.outputs[0];
    std::string name = op.name;
    name.erase(0, name.rfind(':') + 1);
    Origin result;
    bool has_weights = false, is_view = false;
    for (const torch::Tensor& tensor : op.inputs) {
      const Origin& origin = origin_of(tensor);
      is_view |= tensor.is_alias_of(output) && !tensor.is_same(output);
      result.is_fp32 |= origin.is_fp32 && tensor.dim() > 0;
      result.error = std::max(result.error, origin.error);
      if (!origin.weight_of.empty()) {
        has_weights = true;
        result.module = index_of(origin.weight_of);
      } else if (!has_weights) {
        result.module = std::max(result.module, origin.module);
      }
    }
    ModuleAudit& module = audit_.modules[result.module];
    const bool is_kept = type_ && has_weights && keeps(module.name);
    const bool converts =
        type_ && has_weights && !is_kept && computes_in_type_of_weights(name);
    // A conversion that the model asks for is to fp32.
    result.is_fp32 = name == "to" || is_kept || (result.is_fp32 && !converts);
    for (const torch::Tensor& tensor : op.inputs) {
      if (!converts || !origin_of(tensor).is_fp32) continue;
      const double lost = share(~rounded(tensor).isfinite(), tensor.isfinite());
      if (lost > 0) blame(module, name + " overflows");
    }
    // Neither a view nor memory to be written into is a result.
    const bool is_result = !is_view && !name.starts_with("empty");
    if (output.is_floating_point() && output.numel() > 0 && is_result) {
      note(name, output, result);
    }
    for (const torch::Tensor& tensor : op.outputs) {
      result.self = tensor;
      origin_of(tensor) = result;
    }
  }

  void note(const std::string& name, torch::Tensor output, Origin& origin) {
    const size_t i = origin.module;
    if (type_) {
      // As it is stored, also for backward; not a change that autograd may see.
      compare(name, output.variable_data(), origin);
    } else {
      results_.push_back(output.detach().clone());
      const double largest = results_.back().abs().max().item<double>();
      take_worst(audit_.modules[i].largest_output, largest);
    }
    if (!output.requires_grad() || (type_ && origin.is_fp32)) return;
    output.register_hook([this, i](const torch::Tensor& g) {
      if (type_) return rounded(g);
      note_gradient(audit_.modules[i], g);
      return g;
    });
  }

  void compare(const std::string& name, torch::Tensor stored, Origin& origin) {
    if (!origin.is_fp32) stored.copy_(rounded(stored));
    const size_t i = next_++;
    if (i >= results_.size() || results_[i].sizes() != stored.sizes()) return;
    ModuleAudit& module = audit_.modules[origin.module];
    const auto [overflow, tiny, error] = note_change(
        in_type(module).output,
        stored,
        results_[i],
        type_->smallest_normal);
    // Rounding that adds up from layer to layer is noise, and nobody's fault.
    const bool is_sudden = error > std::max(kBadError, 8 * origin.error);
    origin.error = error;
    if (overflow == 0 && !is_sudden) return;
    const auto wrong = fmt::format("{} is {:.0f} % wrong", name, 100 * error);
    blame(module, overflow > 0 ? name + " overflows" : wrong);
    // What comes after is judged by itself, and in this module in fp32.
    stored.copy_(results_[i]);
    origin.error = 0;
    origin.is_fp32 = true;
  }

  PrecisionAudit& audit_;
  at::Generator generator_;
  torch::Tensor random_;
  ByModule before_, gradients_;  // weights, and their gradients in fp32
  Tensors results_;              // of operations, in fp32
  double faintest_ = std::numeric_limits<double>::infinity();
  // Of a pass:
  const SixteenBits* type_ = nullptr;
  bool is_amp_ = false;  // which rounds by itself
  size_t next_ = 0;      // of results_
  std::unordered_map<const c10::TensorImpl*, Origin> origins_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> originals_;  // weights
};

}  // namespace

void probe_precision(
    Learner& learn,
    const LearningRates& lr,
    PrecisionAudit& audit) {
  const auto probe = std::make_shared<Probe>(audit);
  undo(learn, [&] { fit_batches(learn, 1, lr, {probe}); });
}

}  // namespace tern
