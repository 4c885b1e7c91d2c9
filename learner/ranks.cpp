#include "tern/learner/ranks.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/data/sharded_sampler.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

std::shared_ptr<DataLoader>
make_shard(const DataLoader& loader, const Ranks& ranks, bool equal_batches) {
  DataLoaderOptions options = loader.options();
  options.sampler = std::make_shared<ShardedSampler>(
      loader.sampler(),
      ShardOptions{
          .rank = ranks.rank(),
          .world_size = ranks.world_size(),
          .batch_size = options.batch_size,
          .drop_last = options.drop_last,
          .equal_batches = equal_batches});
  return std::make_shared<DataLoader>(loader.dataset_ptr(), options);
}

}  // namespace

bool Learner::is_main_process() const {
  return !ranks_ || ranks_->rank() == 0;
}

void Learner::set_ranks(std::shared_ptr<Ranks> ranks) {
  TORCH_CHECK_VALUE(
      ranks && !ranks_ && !is_fitting_,
      "[Learner::set_ranks] the ranks are null, known already or come while "
      "fit runs; give them once, before the first fit.");
  data_.train = make_shard(
      data_.loader(Split::train),
      *ranks,
      /*equal_batches=*/true);
  ranks_ = std::move(ranks);
}

const DataLoader& Learner::shard_of(const DataLoader& loader) {
  auto& shard = shards_[loader.sampler().get()];
  const bool is_same =
      shard && shard->dataset_ptr() == loader.dataset_ptr() &&
      shard->options().batch_size == loader.options().batch_size;
  if (!is_same) {
    TORCH_CHECK_VALUE(
        loader.sampler()->size() >= ranks_->world_size(),
        fmt::format(
            "[Learner::validate] {} samples for {} processes; expected one "
            "for each at least.",
            loader.sampler()->size(),
            ranks_->world_size()));
    shard = make_shard(loader, *ranks_, /*equal_batches=*/false);
  }
  return *shard;
}

// Batches of a pass that every rank has; one of them may have one more.
int64_t Learner::batches_of_all_ranks(const DataLoader& loader) const {
  return loader.sampler()->size() /
         (loader.options().batch_size * ranks_->world_size());
}

// A pass that one rank was asked to leave ends on all after the same batch.
void Learner::share_wish_to_stop() {
  const auto wishes = torch::tensor({stop_wanted() ? 1 : 0}, torch::kInt);
  ranks_->all_reduce(wishes);
  if (wishes.const_data_ptr<int>()[0] > 0) agree_to_stop();
}

// The loss and every metric over all data, of which each rank has seen a part.
void Learner::add_up_over_ranks(const torch::Tensor& sums) {
  const AddUp add_up = [this](const torch::Tensor& tensor) {
    ranks_->all_reduce(tensor);
  };
  add_up(sums);
  for (Metric& metric : options_.metrics) metric.join_ranks(add_up);
}

}  // namespace tern
