#include "tern/callbacks/distributed.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "tern/callbacks/save_model.h"
#include "tern/callbacks/sharded_optimizer.h"
#include "tern/data/error_text.h"
#include "tern/data/random.h"
#include "tern/data/sharded_sampler.h"
#include "tern/learner/distributed/broadcast_state.h"
#include "tern/learner/distributed/convert_sync_batchnorm.h"
#include "tern/learner/learner.h"
#include "tern/learner/master_weights.h"
#include "tern/learner/optim/named_state.h"

namespace tern {

namespace {

const ShardedSampler& shard(Learner& learn) {
  const DataLoader& train = learn.data().loader(Split::train);
  return dynamic_cast<const ShardedSampler&>(*train.sampler());
}

Tensors trained_parameters(Learner& learn) {
  Tensors result;
  for (const ModelTensor& p : learn.model().parameters()) {
    if (p.tensor.requires_grad()) result.push_back(p.tensor);
  }
  return result;
}

std::string names_of_callbacks(const Learner& learn) {
  std::vector<std::string> names;
  for (const auto& callback : learn.callbacks()) {
    names.push_back(callback->name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Distributed::Distributed(
    std::shared_ptr<ProcessGroup> group,
    GradientReducerOptions options)
    : group_(std::move(group)), options_(options) {
  TORCH_CHECK_VALUE(
      group_,
      "[Distributed] the process group is null; connect one, or call "
      "Learner::to_distributed.");
}

void Distributed::check_equal(Learner& learn) {
  const TrainState& state = learn.state();
  const DataLoader& train = learn.data().loader(Split::train);
  const auto number = [](auto value) { return fmt::format("{}", value); };
  group_->check_equal("LibTorch version", TORCH_VERSION);
  group_->check_equal("number of samples", number(train.dataset().size()));
  group_->check_equal("batch size", number(train.options().batch_size));
  group_->check_equal("loader's seed", number(train.options().seed));
  group_->check_equal("number of epochs", number(state.epochs));
  group_->check_equal("step to go on from", number(state.iteration));
  group_->check_equal(
      "learning rates",
      fmt::format("{}", fmt::join(learn.learning_rates(), ", ")));
  group_->check_equal("list of callbacks", names_of_callbacks(learn));
}

void Distributed::on_train_begin(Learner& learn) {
  learn.state().on_error = [this](const std::exception& error) {
    explain(error);
  };
  check_equal(learn);
  reducer_ = std::make_unique<GradientReducer>(
      group_,
      trained_parameters(learn),
      options_);
  broadcast_weights(learn);
}

void Distributed::broadcast_weights(Learner& learn) {
  Tensors weights;
  for (const ModelTensor& p : learn.model().parameters()) {
    weights.push_back(p.tensor.detach());
  }
  if (learn.masters()) {
    for (const torch::Tensor& master : learn.masters()->masters()) {
      weights.push_back(master.detach());
    }
  }
  group_->broadcast(weights);
  broadcast_buffers(learn);
}

// Running statistics differ between ranks while they train, which nobody sees:
// a forward pass in training does not read them. Rank 0's are kept.
void Distributed::broadcast_buffers(Learner& learn) {
  Tensors buffers;
  for (const ModelTensor& b : learn.model().buffers()) {
    buffers.push_back(b.tensor.detach());
  }
  group_->broadcast(buffers);
}

void Distributed::on_batch_begin(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  const DataLoader& train = learn.data().loader(Split::train);
  SampleRng rng(train.options().seed, group_->rank(), state.iteration);
  torch::manual_seed(rng());
}

// From here on gradients that are complete go out to the others.
void Distributed::on_backward_begin(Learner& learn) {
  TrainState& state = learn.state();
  const auto samples = shard(learn).real_samples(state.batch);
  const double weight =
      static_cast<double>(samples.of_rank * group_->world_size()) /
      static_cast<double>(samples.of_all);
  if (weight != 1) state.loss_grad = state.loss_grad * weight;
  if (state.skip_step) return;  // accumulating: the last batch's is the sum
  reducer_->before_forward();
  reducer_->before_backward({state.loss_grad});
}

void Distributed::on_batch_end(Learner& learn) {
  if (learn.state().training) agree(learn);
}

// What one rank wants, all do after the same step.
void Distributed::agree(Learner& learn) {
  TrainState& state = learn.state();
  const auto wishes = torch::tensor(
      {learn.stop_wanted() ? 1 : 0,
       state.stop_training ? 1 : 0,
       state.stop_epoch ? 1 : 0},
      torch::kInt);
  group_->all_reduce_max(wishes);
  const auto* const agreed = wishes.const_data_ptr<int>();
  if (agreed[0]) learn.agree_to_stop();
  state.stop_training = agreed[1] != 0;
  state.stop_epoch = agreed[2] != 0;
}

void Distributed::on_eval_begin(Learner& learn) {
  if (learn.is_fitting()) broadcast_buffers(learn);
}

// Says what happened on the rank where it happened, if that was not here.
void Distributed::explain(const std::exception& error) {
  if (dynamic_cast<const DistributedError*>(&error)) {  // it was told already
    group_->leave();
    return;
  }
  const std::string reason = message_of(error);
  const auto told = group_->error_of_others();
  const bool is_connection = ProcessGroup::is_about_connections(reason);
  if (!told && !is_connection) group_->tell_error(reason);
  group_->leave();
  if (told) throw DistributedError(fmt::format("[Learner::fit] {}", *told));
  if (is_connection) {
    throw DistributedError(fmt::format(
        "[Learner::fit] rank {} of {} lost the others in the middle of a step; "
        "one has ended without a word, or did not answer within {} ms: {}",
        group_->rank(),
        group_->world_size(),
        group_->options().timeout.count(),
        reason));
  }
}

void Distributed::on_train_end(Learner& learn) {
  if (reducer_ && !learn.state().failed) times_ = reducer_->times();
  reducer_.reset();
  learn.state().on_error = nullptr;
  if (learn.state().failed) return;
  // SaveModel of rank 0 may have gone back to the best weights.
  broadcast_weights(learn);
  const auto saver = learn.find<SaveModel>();
  if (saver && saver->has_loaded()) broadcast_optimizer(learn);
}

// Or the next fit would take other steps on each rank.
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
  group_options.device = data_.device;
  auto group = ProcessGroup::connect(environment, group_options);
  set_ranks(group);
  if (!is_main_process()) options_.sink = silent();
  if (options.sync_batch_norm) convert_sync_batchnorm(model_, group);
  if (options.shard_optimizer) {
    const auto shard = std::make_shared<OptimizerShard>(group);
    set_training_shard(shard);
    add<ShardedOptimizer>(shard);
  }
  return add<Distributed>(std::move(group), options.reducer);
}

}  // namespace tern
