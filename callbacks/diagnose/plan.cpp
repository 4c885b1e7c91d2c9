#include "tern/callbacks/diagnose/plan.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/data/support/memory.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"
#include "tern/learner/report/model_summary.h"
#include "tern/learner/report/run_facts.h"

namespace tern {

namespace {

constexpr int64_t kWarmUp = 2;

// Requests batches without pause: once the prefetched ones are used up, they
// arrive at the loader's speed. Measures for at most a second.
double measure_loader(const DataLoader& loader) {
  const DataLoaderOptions& options = loader.options();
  const int64_t ahead =
      std::max<int64_t>(1, options.workers * options.prefetch);
  const auto start = std::chrono::steady_clock::now();
  auto first = start, last = start;
  int64_t batches = 0;
  auto epoch = loader.epoch(0);
  while (epoch.next()) {
    last = std::chrono::steady_clock::now();
    if (batches == 0) first = last;
    ++batches;
    if (batches > 2 * ahead + 4 || last - start > std::chrono::seconds(1)) {
      break;
    }
  }
  const std::chrono::duration<double, std::milli> time =
      batches > 1 ? (last - first) / (batches - 1) : last - start;
  return time.count();
}

// Per layer group, like the learning rates; the optimizer's own groups are
// finer.
void add_groups(
    Learner& learn,
    const std::vector<std::vector<ModelTensor>>& layer_groups,
    TrainingPlan& plan) {
  const auto rates = learn.learning_rates();
  const auto masters = master_weights(learn);
  std::unordered_set<const c10::TensorImpl*> decayed;
  for (const auto& group : learn.optimizer().param_groups()) {
    if (optim::weight_decay(group.options()) == 0) continue;
    for (const torch::Tensor& p : group.params()) {
      decayed.insert(p.unsafeGetTensorImpl());
    }
  }
  for (size_t i = 0; i < rates.size(); ++i) {
    TrainingPlan::Group group{
        .lr = rates[i],
        .weight_decay = learn.options().weight_decay};
    for (const ModelTensor& p : layer_groups[i]) {
      const int64_t count = p.tensor.numel();
      const torch::Tensor stepped = masters ? masters->of(p.tensor) : p.tensor;
      group.parameters += count;
      if (p.tensor.requires_grad()) {
        group.trainable += count;
        plan.gradient_bytes += tensor_bytes(p.tensor);
      }
      if (!decayed.contains(stepped.unsafeGetTensorImpl())) {
        group.without_decay += count;
      }
    }
    plan.groups.push_back(group);
  }
}

void add_bytes(Learner& learn, TrainingPlan& plan) {
  const auto add_weight = [&](const torch::Tensor& tensor) {
    plan.weight_bytes += tensor_bytes(tensor);
  };
  for (const auto& p : learn.model().parameters()) add_weight(p.tensor);
  for (const auto& b : learn.model().buffers()) add_weight(b.tensor);
  if (const auto masters = master_weights(learn)) {
    std::ranges::for_each(masters->masters(), add_weight);
  }
  try {
    const auto names = optim::numbered_names(learn.optimizer());
    for (const auto& entry : optim::named_state(learn.optimizer(), names)) {
      plan.optimizer_bytes += tensor_bytes(entry.value());
    }
  } catch (const c10::NotImplementedError&) {
    plan.optimizer_bytes = 0;  // the optimizer's state has unknown size
  }
}

// The phases of a batch, without the slow first batches.
void add_times(const Profiler& profiler, TrainingPlan& plan) {
  const auto batches =
      static_cast<double>(std::max<int64_t>(1, profiler.batches()));
  for (size_t i = 0; i < kPhases; ++i) {
    plan.milliseconds[i] =
        1e3 * profiler.seconds(static_cast<Phase>(i)) / batches;
    plan.step_milliseconds += plan.milliseconds[i];
  }
}

void find_problems(Learner& learn, TrainingPlan& plan) {
  if (!learn.data().valid) {
    plan.problems.emplace_back(
        "there is no validation data, so nothing shows whether the model "
        "generalizes");
  }
  const int64_t left_out = plan.samples - plan.batches * plan.batch_size;
  const bool drops = learn.data().train->options().drop_last;
  if (drops && left_out * 10 > plan.samples) {
    plan.problems.push_back(fmt::format(
        "{} of {} samples of each epoch are dropped as a short last batch; "
        "use a smaller batch size",
        left_out,
        plan.samples));
  }
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    if (plan.groups[i].trainable > 0 && plan.groups[i].lr == 0) {
      plan.problems.push_back(
          fmt::format("the learning rate of group {} is 0", i));
    }
  }
}

void advise_workers(TrainingPlan& plan, double compute) {
  if (plan.loader_milliseconds <= compute) return;
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  const double needed =
      static_cast<double>(std::max<int64_t>(1, plan.workers)) *
      plan.loader_milliseconds / std::max(compute, 0.01);
  plan.advice.push_back(fmt::format(
      "the loader needs {:.1f} ms per batch, but training {:.1f} ms: training "
      "waits for data{}",
      plan.loader_milliseconds,
      compute,
      plan.workers + 1 < cores
          ? fmt::format(
                ". Use {} (now {})",
                counted(
                    std::clamp<int64_t>(
                        static_cast<int64_t>(needed) + 1,
                        plan.workers + 1,
                        cores - 1),
                    "worker"),
                plan.workers)
          : fmt::format(
                ", and all {} cores are busy. Make samples cheaper: presize "
                "images, or augment on the device",
                cores)));
}

void advise_batch_size(TrainingPlan& plan, double compute) {
  double model = 0;
  for (const Phase phase : {Phase::forward, Phase::loss, Phase::backward}) {
    model += plan.milliseconds[static_cast<size_t>(phase)];
  }
  if (compute >= 20 || model >= 0.5 * compute ||
      plan.samples <= 4 * plan.batch_size) {
    return;
  }
  plan.advice.push_back(fmt::format(
      "the model takes {:.2f} of {:.2f} ms per batch: a batch larger than {} "
      "wastes less time",
      model,
      compute,
      plan.batch_size));
}

void advise_precision(TrainingPlan& plan, bool is_cuda) {
  if (plan.precision != "fp32") return;
  if (is_cuda) {
    plan.advice.emplace_back(
        "training is in fp32: to_fp16(), to_bf16() or to_amp() are faster on "
        "this device");
    return;
  }
#if defined(__x86_64__)
  if (multiplies_bfloat16() && plan.step_milliseconds > 20) {
    plan.advice.emplace_back(
        "this processor has bfloat16 instructions: audit_precision() measures "
        "whether to_bf16() is faster");
  }
#endif
}

// Measures the dry run of the plan. A normal Profiler has
// CallbackRole::watches, and such callbacks receive no events in dry runs.
class TrialProfiler final : public Profiler {
 public:
  TrialProfiler() : Profiler(Options{.show = false}) {}
  CallbackRole role() const override { return CallbackRole::trains; }
};

}  // namespace

double TrainingPlan::seconds() const {
  return 1e-3 * static_cast<double>(epochs * batches) *
         std::max(step_milliseconds, loader_milliseconds);
}

std::string TrainingPlan::to_string() const {
  std::string text = fmt::format(
      "{} of {} of {} on {}, {}, {}\n",
      counted(epochs, "epoch"),
      counted(batches, "batch"),
      counted(batch_size, "sample"),
      device,
      precision,
      optimizer);
  text += "group    parameters       trained          lr  weight decay\n";
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    text += fmt::format(
        "{:<5}{:>14}{:>14}{:>12.4g}{:>14.4g}{}{}\n",
        i,
        with_commas(group.parameters),
        with_commas(group.trainable),
        group.lr,
        group.weight_decay,
        group.trainable == 0 ? "  frozen" : "",
        group.without_decay && group.weight_decay > 0
            ? fmt::format(
                  "  ({} without weight decay)",
                  with_commas(group.without_decay))
            : "");
  }
  text += fmt::format("\n{}\n\n", fmt::join(loop, "\n"));
  for (size_t i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (phase == Phase::validation) continue;
    text += fmt::format(
        "{:<11}{:>9.3f} ms\n",
        tern::to_string(phase),
        milliseconds[i]);
  }
  text += fmt::format(
      "a batch    {:>9.3f} ms; the loader alone loads one in {:.3f} ms with "
      "{}\n"
      "about {:.1f} s in all, without validation\n"
      "memory     {} weights, {} optimizer, {} at the peak of a step ({} of it "
      "gradients): {}\n",
      step_milliseconds,
      loader_milliseconds,
      counted(workers, "worker"),
      seconds(),
      bytes_text(weight_bytes),
      bytes_text(optimizer_bytes),
      bytes_text(step_bytes),
      bytes_text(gradient_bytes),
      bytes_text(bytes()));
  for (const std::string& problem : problems) {
    text += fmt::format("problem: {}.\n", problem);
  }
  for (const std::string& hint : advice) {
    text += fmt::format("advice: {}.\n", hint);
  }
  return text;
}

TrainingPlan Learner::plan() {
  return plan(TrainingPlanOptions{});
}

TrainingPlan Learner::plan(const TrainingPlanOptions& options) {
  check_at_least("Learner::plan", "batches", options.batches, 1);
  check_at_least("Learner::plan", "epochs", options.epochs, 0);
  check_not_fitting(*this, "Learner::plan");
  const DataLoader& train = parts_->data.loader(Split::train);
  TrainingPlan plan;
  plan.device = parts_->data.device.str();
  plan.precision = loop::precision_text(*parts_);
  plan.epochs = options.epochs;
  plan.samples = train.dataset().size();
  plan.batch_size = train.options().batch_size;
  plan.batches = loop::training_loader(*parts_).size();
  plan.workers = train.options().workers;
  plan.loop = training_loop(parts_->callbacks.all);

  const auto profiler = std::make_shared<TrialProfiler>();
  const auto warm_up = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_batch_end =
          [profiler, done = int64_t{0}](Learner&) mutable {
            if (++done == kWarmUp) profiler->restart();
          },
      .order = callback_order::kLast + 1});
  const bool had_optimizer = parts_->optimizer != nullptr;
  undo(*this, [&] {
    const int64_t peak = peak_bytes_of_batches(
        *this,
        kWarmUp + options.batches,
        options.lr,
        {profiler, warm_up});
    plan.optimizer = optimizer_text(*this);
    add_groups(*this, parts_->groups.parameters, plan);
    add_bytes(*this, plan);
    const int64_t made = had_optimizer ? 0 : plan.optimizer_bytes;
    plan.step_bytes = std::max<int64_t>(0, peak - made);
  });
  add_times(*profiler, plan);
  plan.loader_milliseconds = measure_loader(train);
  find_problems(*this, plan);
  const double compute =
      plan.step_milliseconds -
      plan.milliseconds[static_cast<size_t>(Phase::data_wait)];
  advise_workers(plan, compute);
  advise_batch_size(plan, compute);
  advise_precision(plan, parts_->data.device.is_cuda());
  return plan;
}

}  // namespace tern
