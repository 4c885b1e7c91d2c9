#include "tern/callbacks/multi_optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <fmt/ranges.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/loop.h"
#include "tern/learner/module_names.h"
#include "tern/learner/optim/combined_optimizer.h"
#include "tern/learner/optim/optimizer_factory.h"

namespace tern {

namespace {

using Part = MultiOptimizer::Part;
using Groups = std::vector<torch::optim::OptimizerParamGroup>;

void check(const MultiOptimizer::Options& options) {
  std::set<std::string> names;
  TORCH_CHECK_VALUE(
      !options.parts.empty(),
      "[MultiOptimizer] there are no parts; expected one part per optimizer.");
  for (const Part& part : options.parts) {
    TERN_CHECK_VALUE(
        !part.name.empty() && names.insert(part.name).second,
        "[MultiOptimizer] a part is named \"{}\"; expected a unique name that "
        "is not empty.",
        part.name);
    TERN_CHECK_VALUE(
        part.loss,
        "[MultiOptimizer] part \"{}\" has no loss; expected a function of the "
        "batch.",
        part.name);
    TERN_CHECK_VALUE(
        !part.lr || (std::isfinite(*part.lr) && *part.lr >= 0),
        "[MultiOptimizer] lr of part \"{}\" is {}; expected a finite number "
        ">= 0.",
        part.name,
        *part.lr);
    TERN_CHECK_VALUE(
        part.steps == 1 || (part.steps > 1 && options.alternate),
        "[MultiOptimizer] steps of part \"{}\" is {}; expected 1, or more "
        "with .alternate = true.",
        part.name,
        part.steps);
  }
}

// The parameters of each part.
std::vector<std::vector<ModelTensor>> divide(
    const Model& model,
    const std::vector<Part>& parts) {
  std::vector<std::vector<ModelTensor>> groups(parts.size());
  std::set<std::string> found;
  for (const ModelTensor& p : model.parameters()) {
    const Part* owner = nullptr;
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const std::string& module : parts[i].modules) {
        if (!is_in_module(p.name, module)) continue;
        found.insert(module);
        if (owner == &parts[i]) continue;
        TERN_CHECK_VALUE(
            !owner,
            "[MultiOptimizer] parameter \"{}\" is in the parts \"{}\" and "
            "\"{}\"; expected it in only one part.",
            p.name,
            owner->name,
            parts[i].name);
        owner = &parts[i];
        groups[i].push_back(p);
      }
    }
    TERN_CHECK_VALUE(
        owner || !p.tensor.requires_grad(),
        "[MultiOptimizer] parameter \"{}\" is in no part; name its module in "
        "one, or call requires_grad_(false) on it if nothing trains it.",
        p.name);
  }
  for (const Part& part : parts) {
    for (const std::string& module : part.modules) {
      TERN_CHECK_VALUE(
          found.contains(module),
          "[MultiOptimizer] part \"{}\" names \"{}\", which has no parameter "
          "in the model; expected names of modules, such as \"{}\".",
          part.name,
          module,
          model.parameters()[0].name);
    }
  }
  return groups;
}

torch::Tensor loss_of(LearnerParts& l, const Part& part, const Batch& batch) {
  torch::Tensor loss;
  try {
    loss = part.loss(batch);
  } catch (const c10::Error& error) {
    loop::explain_out_of_memory(l, error, "the loss of a part");
    const std::string reason = reason_of(error);
    if (reason.starts_with('[')) throw;  // already a full sentence
    C10_THROW_ERROR(
        ValueError,
        fmt::format(
            "[MultiOptimizer] the loss of part \"{}\" failed on a batch with "
            "inputs {} and targets {}: {}",
            part.name,
            shapes_of(batch.inputs),
            shapes_of(batch.targets),
            reason));
  }
  TERN_CHECK_VALUE(
      loss.defined() && loss.dim() == 0 && loss.requires_grad(),
      "[MultiOptimizer] the loss of part \"{}\" {}; expected one number, "
      "computed by the part's modules without detach or NoGradGuard.",
      part.name,
      !loss.defined()   ? "is undefined"
      : loss.dim() != 0 ? fmt::format("has {} dimensions", loss.dim())
                        : "requires no gradient");
  return loss;
}

bool is_trained(const std::vector<ModelTensor>& parameters) {
  return std::ranges::any_of(parameters, [](const ModelTensor& p) {
    return p.tensor.requires_grad();
  });
}

}  // namespace

class MultiOptimizer::Runner final : public StepRunner {
 public:
  explicit Runner(Options options) : options_(std::move(options)) {
    for (Part& part : options_.parts) {
      if (part.modules.empty()) part.modules = {part.name};
    }
    check(options_);
  }

  OptionValues option_values() const {
    std::vector<std::string> names;
    for (const Part& part : options_.parts) names.push_back(part.name);
    return {
        {"parts", option_text(names)},
        {"alternate", option_text(options_.alternate)}};
  }

  void begin(Learner&) override {}
  void end(Learner&) override {}
  void forget() override {}

  // Undoes the mask of the current turn during the change, since the other
  // parts require no gradient only for this turn.
  void change_frozen(c10::function_ref<void()> change) override {
    end_mask();
    change();
    if (!learner_) return;
    begin_mask();
    // The part has no trainable parameters left.
    if (!is_trained(learner_->groups.parameters[active_])) {
      learner_->state.skip_step = true;
    }
  }

  void attach(LearnerParts& l) {
    l.groups.parameters = divide(l.model, options_.parts);
    learners_ = std::exchange(l.options.optimizer, {});
    l.options.optimizer = [this, &l](const Groups& groups) {
      return make_optimizer(l, groups);
    };
    for (const Part& part : options_.parts) {
      l.groups.own_lr.push_back(part.lr.value_or(l.options.lr));
    }
  }

  void detach(LearnerParts& l) {
    l.groups.parameters = {l.model.parameters()};
    l.groups.own_lr.clear();
    l.options.optimizer = learners_;
    l.optimizer.reset();
    l.step.runner.reset();
  }

  void step(Learner& learn) override {
    LearnerParts& l = parts_of(learn);
    TrainState& s = l.state;
    TORCH_CHECK_VALUE(
        !s.batch_loss,
        "[MultiOptimizer] a callback has replaced the loss of this batch, as "
        "MixUp and CutMix do; expected the losses of the parts. Remove that "
        "callback.");
    const bool is_left_out = s.skip_step;
    bool has_stepped = false;
    StepResult result = StepResult::skipped;
    torch::Tensor loss, overflowed;
    for (const size_t i : parts_on_this_batch(l)) {
      // A callback froze it during the turn of another part.
      if (!is_trained(l.groups.parameters[i])) continue;
      s.skip_step = is_left_out;
      step_part(l, i);
      learn.log(options_.parts[i].name + "_loss", s.loss);
      TORCH_CHECK_VALUE(
          !s.skip_zero_grad,
          "[MultiOptimizer] a callback keeps the gradients of this batch by "
          "skip_zero_grad; expected a step for every batch. Remove that "
          "callback.");
      loss = loss.defined() ? loss + s.loss : s.loss;
      if (s.skip_step) continue;
      has_stepped = true;
      if (s.step_result == StepResult::stepped) {
        result = StepResult::stepped;
      } else if (
          s.step_result == StepResult::unknown &&
          result != StepResult::stepped) {
        result = StepResult::unknown;
        overflowed = overflowed.defined()
                         ? torch::minimum(overflowed, s.step_overflowed)
                         : s.step_overflowed;
      }
    }
    s.loss = loss;
    s.skip_step = !has_stepped;
    if (!has_stepped) return;
    s.step_result = result;
    s.step_overflowed = result == StepResult::unknown ? overflowed : Tensor();
    loop::run(l, Event::step_end);
  }

  int64_t turn = 0;  // batches so far in this fit

 private:
  using Tensor = torch::Tensor;

  std::unique_ptr<torch::optim::Optimizer> make_optimizer(
      const LearnerParts& l,
      const Groups& groups) const {
    optim::CombinedOptimizer::Optimizers made;
    for (size_t i = 0; i < options_.parts.size(); ++i) {
      Groups its;
      for (size_t j = 0; j < groups.size(); ++j) {
        const auto part =
            static_cast<size_t>(l.groups.param_group_kinds[j].layer_group);
        if (part == i) its.push_back(groups[j]);
      }
      const Part& part = options_.parts[i];
      made.push_back(
          part.optimizer ? part.optimizer(its)
          : learners_    ? learners_(its)
                         : default_optimizer(l.options.true_weight_decay)(its));
      TERN_CHECK_VALUE(
          made.back(),
          "[MultiOptimizer] the optimizer factory of part \"{}\" returned no "
          "optimizer; expected an optimizer over the parameters passed to it.",
          part.name);
    }
    return optim::CombinedOptimizer::combine(std::move(made));
  }

  std::vector<size_t> parts_on_this_batch(const LearnerParts& l) {
    std::vector<size_t> trained, turns;
    for (size_t i = 0; i < l.groups.parameters.size(); ++i) {
      if (!is_trained(l.groups.parameters[i])) continue;
      trained.push_back(i);
      turns.insert(turns.end(), options_.parts[i].steps, i);
    }
    TORCH_CHECK_VALUE(
        !trained.empty(),
        "[MultiOptimizer] the parameters of all parts are frozen; call "
        "unfreeze().");
    const int64_t now = turn++;
    if (!options_.alternate) return trained;
    return {turns[now % static_cast<int64_t>(turns.size())]};
  }

  void begin_mask() {
    const auto& groups = learner_->groups.parameters;
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const ModelTensor& p : groups[i]) {
        if (i != active_ && p.tensor.requires_grad())
          masked_.push_back(p.tensor);
      }
    }
    for (torch::Tensor& other : masked_) other.requires_grad_(false);
  }

  void end_mask() {
    for (torch::Tensor& other : masked_) other.requires_grad_(true);
    masked_.clear();
  }

  void step_part(LearnerParts& l, size_t part) {
    learner_ = &l;
    active_ = part;
    begin_mask();
    const auto put_back = c10::make_scope_exit([&] {
      l.step.part_loss = {};
      end_mask();
      learner_ = nullptr;
    });
    l.step.part_loss = [&](const Batch& batch) {
      TERN_CHECK_VALUE(
          is_trained(l.groups.parameters[part]),
          "[MultiOptimizer] part \"{}\" was frozen during its own step, before "
          "its loss; expected freeze_to in on_batch_begin, on_batch_end, or in "
          "on_backward_begin or later.",
          options_.parts[part].name);
      return loss_of(l, options_.parts[part], batch);
    };
    dynamic_cast<optim::CombinedOptimizer&>(l.self->optimizer()).activate(part);
    loop::train_step(l);
  }

  Options options_;
  OptimizerFactory learners_;  // the Learner's own
  // During a part's turn: the Learner, and the parameters of the other parts.
  LearnerParts* learner_ = nullptr;
  size_t active_ = 0;
  Tensors masked_;
};

MultiOptimizer::MultiOptimizer(Options options)
    : runner_(std::make_shared<Runner>(std::move(options))) {}

MultiOptimizer::~MultiOptimizer() = default;

void MultiOptimizer::on_add(Learner& learn) {
  LearnerParts& l = parts_of(learn);
  TORCH_CHECK_VALUE(
      !l.optimizer,
      "[MultiOptimizer] the Learner's optimizer exists already; add "
      "MultiOptimizer before the first fit, once.");
  TORCH_CHECK_VALUE(
      !l.step.runner,
      "[MultiOptimizer] another callback or to_cuda_graph runs the steps of "
      "this Learner; omit one of the two.");
  runner_->attach(l);
  l.step.runner = runner_;
}

void MultiOptimizer::on_remove(Learner& learn) {
  check_not_fitting(learn, "MultiOptimizer::on_remove");
  runner_->detach(parts_of(learn));
}

void MultiOptimizer::on_train_begin(Learner& learn) {
  const LearnerParts& l = parts_of(learn);
  const Accumulation& accumulation = l.state.accumulation;
  TORCH_CHECK_VALUE(
      accumulation.batches <= 1 && accumulation.samples == 0,
      "[MultiOptimizer] cannot accumulate gradients; remove "
      "GradientAccumulation and use larger batches.");
  TORCH_CHECK_VALUE(
      !l.step.is_parallel && !l.ranks.training_shard,
      "[MultiOptimizer] does not support to_parallel, whose replicas its "
      "losses do not use, or .shard_optimizer, which shards a single "
      "optimizer. Remove the one that you use.");
  runner_->turn = 0;
}

StateDict MultiOptimizer::state_dict() const {
  return {{"turn", torch::tensor(runner_->turn, torch::kLong)}};
}

void MultiOptimizer::load_state_dict(const StateDict& state) {
  runner_->turn = saved_value("MultiOptimizer", state, "turn").item<int64_t>();
}

OptionValues MultiOptimizer::option_values() const {
  return runner_->option_values();
}

}  // namespace tern
