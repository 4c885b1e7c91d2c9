// Synchronizes the ranks: their start, their decisions and their shards of the
// data.

#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/data/sampler.h"
#include "tern/data/support/error_text.h"
#include "tern/data/support/mentions.h"
#include "tern/kernels/check.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/loop.h"
#include "tern/learner/tensor_hash.h"

namespace tern {

namespace {

class SingleProcess final : public Communicator {
 public:
  int64_t rank() const override { return 0; }
  int64_t world_size() const override { return 1; }
  void all_reduce(const torch::Tensor&) override {}
  void broadcast(const Tensors&, int64_t) override {}
  void check_equal(const std::string&, const std::string&) override {}
};

// Returns the value of each rank: [world_size] kDouble.
torch::Tensor values_of_ranks(Communicator& ranks, double own) {
  auto all = torch::zeros({ranks.world_size()}, torch::kDouble);
  all[ranks.rank()].fill_(own);
  ranks.all_reduce(all);
  return all;
}

}  // namespace

double Communicator::mean(double value) {
  if (world_size() == 1) return value;
  const torch::Tensor sum = torch::scalar_tensor(value, torch::kDouble);
  all_reduce(sum);
  return sum.item<double>() / static_cast<double>(world_size());
}

Communicator& communicator(const Learner& learn) {
  static SingleProcess alone;
  const auto& together = parts_of(learn).ranks.communicator;
  return together ? *together : alone;
}

void loop::set_communicator(
    LearnerParts& l,
    std::shared_ptr<Communicator> communicator,
    bool shard_data) {
  TORCH_CHECK_VALUE(
      communicator && !l.ranks.communicator && !l.state.is_fitting,
      "[Learner::to_distributed] the communicator is null, is already set, or "
      "fit is running; set it once, before the first fit.");
  l.ranks.communicator = std::move(communicator);
  l.ranks.shard_data = shard_data;
}

int64_t loop::data_shards(const LearnerParts& l) {
  const bool is_divided = l.ranks.communicator && l.ranks.shard_data;
  return is_divided ? l.ranks.communicator->world_size() : 1;
}

const DataLoader& loop::training_loader(LearnerParts& l) {
  const DataLoader& whole = l.data.loader(Split::train);
  const bool is_divided = l.ranks.communicator && l.ranks.shard_data;
  return is_divided ? shard_of(l, whole, /*equal_batches=*/true) : whole;
}

const DataLoader&
loop::shard_of(LearnerParts& l, const DataLoader& loader, bool equal_batches) {
  auto& shard = l.ranks.shards[{loader.sampler().get(), equal_batches}];
  const bool is_same =
      shard && shard->dataset_ptr() == loader.dataset_ptr() &&
      shard->options().batch_size == loader.options().batch_size;
  if (!is_same) {
    TERN_CHECK_VALUE(
        equal_batches ||
            loader.sampler()->size() >= l.ranks.communicator->world_size(),
        "[Learner::validate] got {} samples for {} processes; expected at "
        "least one sample per process.",
        loader.sampler()->size(),
        l.ranks.communicator->world_size());
    shard = std::make_shared<DataLoader>(loader.shard(
        l.ranks.communicator->rank(),
        l.ranks.communicator->world_size(),
        equal_batches));
  }
  return *shard;
}

// A rank that found a different checkpoint from the others would train, or skip
// fits, alone.
void loop::check_same_checkpoint(LearnerParts& l) {
  if (!l.ranks.communicator) return;
  l.ranks.communicator->check_equal(
      "checkpoint to resume from",
      l.position.continuation ? l.position.continuation->checkpoint_name()
                              : "none");
  l.ranks.communicator->check_equal(
      "number of steps so far",
      std::to_string(l.state.iteration));
}

// Different weights before the first step would be averaged without notice.
void loop::check_same_start(LearnerParts& l) {
  if (!l.ranks.communicator) return;
  l.ranks.communicator->check_equal(
      "position to start from",
      fmt::format("epoch {}, batch {}", l.state.epoch, l.position.first_batch));
  check_same_weights(l, "before the first step");
}

void loop::check_same_weights(LearnerParts& l, const std::string& when) {
  if (!l.ranks.communicator) return;
  const torch::NoGradGuard no_grad;
  const std::vector<ModelTensor> parameters = l.model.parameters();
  Tensors each;
  for (const ModelTensor& p : parameters) {
    each.push_back(tensor_hash(p.tensor.detach()));
  }
  if (each.empty()) return;
  const torch::Tensor own = torch::stack(each).cpu();
  const torch::Tensor of_rank_0 = own.clone();
  l.ranks.communicator->broadcast({of_rank_0}, 0);
  const torch::Tensor differ = own.ne(of_rank_0).any(1).nonzero();
  const auto other = first_rank_where(l, differ.size(0) > 0);
  if (!other) return;
  const std::string name =
      differ.size(0) > 0 ? parameters[differ[0].item<int64_t>()].name : "";
  const std::string text = fmt::format(
      "{} of {} parameters, the first of which is {},",
      differ.size(0),
      parameters.size(),
      name);
  throw DistributedError(fmt::format(
      "[Learner::fit] {} the weights of rank {} differ from rank 0's weights: "
      "{} differ. Only one rank has changed them: look for a callback that "
      "changes weights, loads or steps on a condition. "
      "DistributedOptions::check_weights = false turns this check off.",
      when,
      *other,
      broadcast_text(*l.ranks.communicator, text, *other)));
}

// A flag set by one rank applies to all ranks; learning rates are taken from
// rank 0.
void loop::sync_decisions(LearnerParts& l) {
  if (!l.ranks.communicator) return;
  TrainState& s = l.state;
  auto& groups = l.self->optimizer().param_groups();
  const bool is_main = communicator(*l.self).is_main_process();
  std::vector<double> said = {
      s.skip_step ? 1.0 : 0,
      s.skip_zero_grad ? 1.0 : 0,
      s.stop_epoch ? 1.0 : 0,
      s.stop_training ? 1.0 : 0,
      l.stop.requested_here ? 1.0 : 0};
  const size_t rates = said.size();
  for (const auto& group : groups) {
    said.push_back(is_main ? group.options().get_lr() : 0);
  }
  const torch::Tensor agreed = torch::tensor(said, torch::kDouble);
  l.ranks.communicator->all_reduce(agreed);
  const double* const all = agreed.const_data_ptr<double>();
  s.skip_step = all[0] > 0;
  s.skip_zero_grad = all[1] > 0;
  s.stop_epoch = all[2] > 0;
  s.stop_training = all[3] > 0;
  if (all[4] > 0) l.stop.requested = true;
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(all[rates + i]);
  }
}

int64_t loop::common_batches(LearnerParts& l, const DataLoader& whole) {
  if (l.ranks.shard_data) {
    return whole.sampler()->size() /
           (whole.options().batch_size * l.ranks.communicator->world_size());
  }
  const auto own = static_cast<double>(whole.size());
  return values_of_ranks(*l.ranks.communicator, own).min().item<int64_t>();
}

// If one rank received a stop request, the pass ends on all ranks after the
// same batch; some ranks may have more batches than others.
void loop::sync_validation_stop(LearnerParts& l, int64_t common_batches) {
  if (l.state.batch >= common_batches) return;
  const auto wishes =
      torch::scalar_tensor(l.stop.requested_here ? 1 : 0, torch::kDouble);
  l.ranks.communicator->all_reduce(wishes);
  if (wishes.item<double>() > 0) l.stop.requested = true;
}

std::optional<int64_t> loop::first_rank_where(LearnerParts& l, bool is_true) {
  const torch::Tensor all = values_of_ranks(communicator(*l.self), is_true);
  const double* const values = all.const_data_ptr<double>();
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    if (values[rank] > 0) return rank;
  }
  return std::nullopt;
}

void loop::run_on_all_ranks(LearnerParts& l, c10::function_ref<void()> act) {
  if (!l.ranks.communicator) return act();
  std::exception_ptr own;
  std::string text;
  bool is_of_data = false;
  try {
    act();
  } catch (const DistributedError&) {
    throw;  // the ranks are already disconnected
  } catch (const DataError& error) {
    own = std::current_exception();
    text = error.what();
    is_of_data = true;
  } catch (const std::exception& error) {
    own = std::current_exception();
    text = message_of(error);
  }
  std::optional<int64_t> failed;
  try {
    failed = first_rank_where(l, own != nullptr);
    if (!failed) return;
    text = broadcast_text(
        *l.ranks.communicator,
        (is_of_data ? "d" : " ") + text,
        *failed);
  } catch (const std::exception&) {
    // If the other ranks are lost, this rank's own error is more informative.
    if (own) std::rethrow_exception(own);
    throw;
  }
  if (own) std::rethrow_exception(own);
  const std::string what = text.substr(1);
  const std::string rank = fmt::format("rank {}", *failed);
  const std::string reason =
      mentions(what, rank) ? what : fmt::format("{}: {}", rank, what);
  if (text[0] == 'd') throw DataError("", reason);
  TORCH_CHECK(false, reason);
}

AllReduce loop::all_reduce_over_ranks(LearnerParts& l) {
  return {
      [&l](const torch::Tensor& tensor) {
        l.ranks.communicator->all_reduce(tensor);
      },
      l.ranks.communicator->rank(),
      l.ranks.communicator->world_size(),
      l.data.device};
}

// Combines the loss and every metric over all data, of which each rank has seen
// a part.
void loop::all_reduce_metrics(
    LearnerParts& l,
    std::vector<Metric>& metrics,
    const torch::Tensor& sums) {
  const AllReduce all_reduce = all_reduce_over_ranks(l);
  all_reduce(sums);
  for (Metric& metric : metrics) metric.sync(all_reduce);
}

// Running statistics differ between ranks during training. This has no effect,
// because a forward pass in training does not read them. Rank 0's statistics
// are kept.
void loop::broadcast_buffers(LearnerParts& l) {
  Tensors buffers;
  for (const ModelTensor& b : l.model.buffers()) {
    buffers.push_back(b.tensor.detach());
  }
  l.ranks.communicator->broadcast(buffers);
}

void loop::begin_window(LearnerParts& l) {
  l.step.window.begin(
      l.state.accumulation,
      l.data.loader(Split::train).options().batch_size,
      l.ranks.communicator ? l.ranks.communicator->world_size() : 1);
}

void loop::count_samples_of_ranks(LearnerParts& l) {
  if (!l.ranks.communicator || l.ranks.shard_data) return;
  const int64_t samples = l.state.batch_data.size();
  const torch::Tensor all =
      values_of_ranks(*l.ranks.communicator, static_cast<double>(samples));
  l.step.samples_of_ranks = {samples, all.sum().item<int64_t>()};
}

ShardedSampler::RealSamples loop::samples_of_batch(LearnerParts& l) {
  const int64_t samples = l.state.batch_data.size();
  if (!l.ranks.communicator) return {samples, samples};
  if (!l.ranks.shard_data) return l.step.samples_of_ranks;
  return static_cast<const ShardedSampler&>(*training_loader(l).sampler())
      .real_samples(l.state.batch);
}

// Losses that are weighted by samples need no communication.
StepWindow::Counts loop::counts_of_ranks(LearnerParts& l) {
  const Loss& loss = l.state.batch_loss ? l.state.batch_loss : l.options.loss;
  if (!l.ranks.communicator) return {l.step.loss_count, l.step.loss_count};
  const auto samples = samples_of_batch(l);
  if (l.step.part_loss || loss.counts_samples()) {
    return {
        static_cast<double>(samples.of_rank),
        static_cast<double>(samples.of_all)};
  }
  const auto counted = torch::scalar_tensor(l.step.loss_count, torch::kDouble);
  l.ranks.communicator->all_reduce(counted);
  return {l.step.loss_count, counted.item<double>()};
}

}  // namespace tern
