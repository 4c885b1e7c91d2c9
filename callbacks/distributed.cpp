#include "tern/callbacks/distributed.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "tern/callbacks/averages/averaged_weights.h"
#include "tern/callbacks/option_text.h"
#include "tern/data/fingerprint.h"
#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/data/support/error_text.h"
#include "tern/data/support/random.h"
#include "tern/kernels/check.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/distributed/optimizer_shard.h"
#include "tern/learner/distributed/sync_batch_norm.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/named_state.h"

namespace tern {

namespace {

// Groups of parameters that receive their gradients in the same backward pass:
// a single group with all parameters, or one group per part of a
// MultiOptimizer.
std::vector<std::vector<ModelTensor>> trained_together(Learner& learn) {
  const LearnerParts& l = parts_of(learn);
  const bool is_in_parts = !l.groups.own_lr.empty();
  std::vector<std::vector<ModelTensor>> result;
  for (const auto& group : l.groups.parameters) {
    if (is_in_parts || result.empty()) result.emplace_back();
    for (const ModelTensor& p : group) {
      if (p.tensor.requires_grad()) result.back().push_back(p);
    }
  }
  std::erase_if(result, [](const auto& none) { return none.empty(); });
  return result;
}

std::string text_of_trained(Learner& learn) {
  const auto all = learn.model().parameters();
  std::vector<std::string> names;
  for (const ModelTensor& p : all) {
    if (p.tensor.requires_grad()) names.push_back(p.name);
  }
  if (names.empty()) return "none";
  const std::string joined = fmt::to_string(fmt::join(names, "\n"));
  return fmt::format(
      "{} of {}, {} to {}, with the hash {:.8}",
      names.size(),
      all.size(),
      names.front(),
      names.back(),
      sha256(as_bytes(joined)));
}

std::string text_of(const DistributedOptions& options) {
  const auto& compress_to = options.reducer.compress_to;
  return fmt::format(
      "bucket_megabytes {}, find_unused_parameters {}, compress_to {}, "
      "sync_batch_norm {}, shard_optimizer {}, shard_data {}, check_weights {}",
      options.reducer.bucket_megabytes,
      options.reducer.find_unused_parameters,
      compress_to ? c10::toString(*compress_to) : "nothing",
      options.sync_batch_norm,
      options.shard_optimizer,
      options.shard_data,
      options.check_weights);
}

class ShardedOptimizer final : public Callback {
 public:
  explicit ShardedOptimizer(std::shared_ptr<OptimizerShard> shard)
      : shard_(std::move(shard)) {}

  void on_train_begin(Learner& learn) override {
    is_divided_ = false;
    const auto average = learn.find<WeightAverage>();
    TERN_CHECK_VALUE(
        !average || !master_weights(learn),
        "[to_distributed] shard_optimizer divides the fp32 weights among the "
        "ranks, but {} reads all of them at each step; omit one of the two, or "
        "train in fp32 or with to_amp.",
        average ? average->name() : "");
  }

  // On the first batch, after everything, including a loaded checkpoint, has
  // set up the optimizer.
  void on_batch_begin(Learner& learn) override {
    if (is_divided_ || !learn.state().training) return;
    shard_->divide(learn.optimizer(), master_weights(learn));
    is_divided_ = true;
  }

  void on_train_end(Learner& learn) override {
    if (!shard_->has_released_masters()) return;
    if (learn.state().failed) return shard_->restore_masters();
    try {
      shard_->gather_masters();
    } catch (...) {
      shard_->restore_masters();
      throw;
    }
  }

  // Before the callbacks that save or load at the end.
  int order() const override { return callback_order::kFirst; }

 private:
  std::shared_ptr<OptimizerShard> shard_;
  bool is_divided_ = false;
};

}  // namespace

Distributed::Distributed(
    std::shared_ptr<ProcessGroup> group,
    const DistributedOptions& options)
    : group_(std::move(group)), options_(options) {
  TORCH_CHECK_VALUE(
      group_,
      "[Distributed] the process group is null; connect a ProcessGroup, or "
      "call Learner::to_distributed.");
}

void Distributed::check_equal(Learner& learn) {
  const TrainState& state = learn.state();
  const DataLoader& train = learn.data().loader(Split::train);
  const auto number = [](auto value) { return fmt::format("{}", value); };
  group_->check_equal("LibTorch version", TORCH_VERSION);
  group_->check_equal("choice of DistributedOptions", text_of(options_));
  check_same_data(learn);
  group_->check_equal("batch size", number(train.options().batch_size));
  group_->check_equal("loader's seed", number(train.options().seed));
  group_->check_equal("number of epochs", number(state.epochs));
  group_->check_equal(
      "learning rates",
      fmt::format("{}", fmt::join(learn.learning_rates(), ", ")));
  group_->check_equal("optimizer", optim::class_name(learn.optimizer()));
  group_->check_equal("weight decay", number(learn.options().weight_decay));
  group_->check_equal("precision", loop::precision_text(parts_of(learn)));
  const auto metrics =
      learn.options().metrics |
      std::views::transform([](const Metric& metric) { return metric.name(); });
  group_->check_equal(
      "list of metrics",
      fmt::to_string(fmt::join(metrics, ", ")));
  const auto names = learn.callbacks() |
                     std::views::transform([](auto& c) { return c->name(); });
  group_->check_equal(
      "list of callbacks",
      fmt::to_string(fmt::join(names, ", ")));
}

void Distributed::check_same_data(Learner& learn) {
  LearnerParts& l = parts_of(learn);
  const std::string& known = loop::data_fingerprint(l);  // called on all ranks
  const auto valid = l.data.valid;
  group_->check_equal("choice of validation data", valid ? "some" : "none");
  if (!options_.shard_data) {
    group_->check_equal(
        "number of training batches in an epoch",
        std::to_string(loop::training_loader(l).size()),
        "give all ranks the same number, with LimitBatches or drop_last");
    return;
  }
  const std::string advice =
      "give all ranks the same data, of which each trains on its part (is a "
      "file missing on one?), or set DistributedOptions::shard_data to false; "
      "each rank then trains on all of its data";
  const auto samples = [](const DataLoader& loader) {
    return std::to_string(loader.dataset().size());
  };
  group_->check_equal(
      "number of samples",
      samples(l.data.loader(Split::train)),
      advice);
  group_->check_equal("fingerprint of the training data", known, advice);
  if (!valid) return;
  group_->check_equal("number of validation samples", samples(*valid), advice);
  if (compared_valid_ != valid->dataset_ptr()) {
    compared_valid_ = valid->dataset_ptr();
    valid_fingerprint_ = fingerprint(*compared_valid_);
  }
  group_->check_equal(
      "fingerprint of the validation data",
      valid_fingerprint_,
      advice);
}

void Distributed::on_train_begin(Learner& learn) {
  loads_ = 0;
  check_equal(learn);
  reducers_.clear();
  follow_frozen(learn);
  broadcast_weights(learn);
}

// Callbacks and checkpoints may freeze and unfreeze parameter groups during a
// fit, on all ranks in the same event. If only one rank does so, the other
// ranks call a different collective than its check_equal, which is an error on
// all ranks.
void Distributed::follow_frozen(Learner& learn) {
  auto trained = trained_together(learn);
  const auto is_same = [](const auto& a, const Reduced& b) {
    return std::ranges::equal(
        a,
        b.parameters,
        [](const auto& p, const auto& q) {
          return p.tensor.is_same(q.tensor);
        });
  };
  if (std::ranges::equal(trained, reducers_, is_same)) return;
  group_->check_equal(
      "choice of trained parameters (freeze, unfreeze)",
      text_of_trained(learn));
  reducers_.clear();  // destroyed before the new ones are created
  for (auto& parameters : trained) {
    Tensors tensors;
    for (const ModelTensor& p : parameters) tensors.push_back(p.tensor);
    auto reducer =
        std::make_unique<GradientReducer>(group_, tensors, options_.reducer);
    reducers_.push_back({std::move(parameters), std::move(reducer)});
  }
}

void Distributed::broadcast_weights(Learner& learn) {
  Tensors weights;
  for (const ModelTensor& p : learn.model().parameters()) {
    weights.push_back(p.tensor.detach());
  }
  if (const auto masters = master_weights(learn)) {
    for (const torch::Tensor& master : masters->masters()) {
      weights.push_back(master.detach());
    }
  }
  for (const ModelTensor& b : learn.model().buffers()) {
    weights.push_back(b.tensor.detach());
  }
  group_->broadcast(weights);
}

void Distributed::on_batch_begin(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  follow_frozen(learn);  // last, after all other callbacks
  const DataLoader& train = learn.data().loader(Split::train);
  SampleRng rng(train.options().seed, group_->rank(), state.iteration);
  torch::manual_seed(rng());
}

// From here on, complete gradients are sent to the other ranks. During
// accumulation each rank keeps its own gradients; the last batch of the window
// sends the sum.
void Distributed::on_backward_begin(Learner& learn) {
  TrainState& state = learn.state();
  if (state.accumulating) return;
  // During a part's turn the other parts require no gradient.
  const bool is_in_parts = !parts_of(learn).groups.own_lr.empty();
  for (const auto& [parameters, reducer] : reducers_) {
    const bool has_turn = !is_in_parts || parameters[0].tensor.requires_grad();
    if (!has_turn) continue;
    reducer->before_forward();
    reducer->before_backward({state.loss_grad});
  }
}

// Checked before the next collective, because other ranks may still wait in
// backward for a gradient that this rank does not have. Otherwise both sides
// would wait until the timeout.
void Distributed::on_backward_end(Learner& learn) {
  if (learn.state().accumulating) return;
  for (const auto& [parameters, reducer] : reducers_) {
    reducer->after_backward(
        [&p = parameters](size_t index) { return p.at(index).name; });
  }
}

void Distributed::on_epoch_end(Learner& learn) {
  if (!options_.check_weights) return;
  loop::check_same_weights(
      parts_of(learn),
      fmt::format("after epoch {}", learn.state().epoch));
}

void Distributed::on_load(Learner&) {
  ++loads_;
}

// Reports an error of this rank to the others, unless it is a broken connection
// caused by an error that another rank has reported.
void Distributed::on_exception(Learner&, const std::exception& error) {
  if (dynamic_cast<const DistributedError*>(&error)) {  // already reported
    group_->leave();
    return;
  }
  const std::string reason = message_of(error);
  const bool is_of_data = dynamic_cast<const DataError*>(&error) != nullptr;
  if (is_of_data || !ProcessGroup::is_about_connections(reason)) {
    group_->tell_error(reason);
    group_->leave();
    return;
  }
  const auto told = group_->error_of_others();
  group_->leave();
  if (told) throw DistributedError(fmt::format("[Learner::fit] {}", *told));
  throw DistributedError(fmt::format(
      "[Learner::fit] rank {} of {} lost its connection to the other ranks in "
      "the middle of a step; one of them exited without an error, or did not "
      "respond within {} ms: {}",
      group_->rank(),
      group_->world_size(),
      group_->options().timeout.count(),
      reason));
}

void Distributed::on_train_end(Learner& learn) {
  if (!learn.state().failed) {
    times_ = {};
    for (const auto& [parameters, reducer] : reducers_) {
      const CommunicationTimes times = reducer->times();
      times_.backward += times.backward;
      times_.communication += times.communication;
      times_.hidden += times.hidden;
    }
  }
  reducers_.clear();
  if (learn.state().failed) return;
  broadcast_weights(learn);
  // SaveModel on rank 0 may have loaded the best epoch. If all ranks loaded the
  // same state, as on resume, nothing needs to be sent, and rank 0's optimizer
  // may then hold only a shard.
  const torch::Tensor of_main = torch::scalar_tensor(loads_, torch::kLong);
  group_->broadcast({of_main});
  const bool lacks_one = loads_ != of_main.item<int64_t>();
  if (!loop::first_rank_where(parts_of(learn), lacks_one)) return;
  broadcast_optimizer(learn);
  if (lacks_one) loop::invalidate_derived_state(parts_of(learn));
}

// Otherwise the ranks' steps would differ in the next fit.
void Distributed::broadcast_optimizer(Learner& learn) {
  const auto names = optim::numbered_names(learn.optimizer());
  const StateDict state =
      broadcast_state(*group_, optim::named_state(learn.optimizer(), names));
  if (group_->rank() == 0) return;
  optim::load_named_state(learn.optimizer(), names, state);
}

Learner& Learner::to_distributed() {
  return to_distributed(DistributedOptions{});
}

Learner& Learner::to_distributed(const DistributedOptions& options) {
  const auto environment = LaunchEnvironment::read();
  if (!environment.is_distributed()) return *this;
  ProcessGroupOptions group_options = options.group;
  group_options.device = parts_->data.device;
  auto group = ProcessGroup::connect(environment, group_options);
  loop::set_communicator(*parts_, group, options.shard_data);
  if (!group->is_main_process()) parts_->options.sink = silent();
  if (options.sync_batch_norm) convert_sync_batchnorm(parts_->model, group);
  if (options.shard_optimizer) {
    const auto shard = std::make_shared<OptimizerShard>(group);
    parts_->ranks.training_shard = shard;
    add<ShardedOptimizer>(shard);
  }
  return add<Distributed>(std::move(group), options);
}

OptionValues Distributed::option_values() const {
  return {
      {"sync_batch_norm", option_text(options_.sync_batch_norm)},
      {"shard_optimizer", option_text(options_.shard_optimizer)},
      {"shard_data", option_text(options_.shard_data)},
      {"check_weights", option_text(options_.check_weights)}};
}

}  // namespace tern
