#include "tern/learner/distributed/optimizer_shard.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/learner/amp/master_weights.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/optim/fused_optimizer.h"

namespace tern {

namespace {

// Moves a master weight out of a block shared with others, so that the block's
// memory can be freed.
void move_out_of_block(torch::Tensor master) {
  if (master.storage().nbytes() == master.nbytes()) return;
  master.set_data(master.clone());
}

}  // namespace

OptimizerShard::OptimizerShard(std::shared_ptr<ProcessGroup> group)
    : group_(std::move(group)) {
  TORCH_CHECK_VALUE(
      group_,
      "[OptimizerShard] the process group is null; expected a connected "
      "ProcessGroup.");
}

std::vector<int64_t> OptimizerShard::owners(
    const std::vector<int64_t>& sizes,
    int64_t world_size) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) {
    return sizes[i];
  });
  std::vector<int64_t> loads(world_size, 0), result(sizes.size());
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(loads);
    result[i] = least - loads.begin();
    *least += sizes[i];
  }
  return result;
}

void OptimizerShard::divide(
    torch::optim::Optimizer& optimizer,
    const std::shared_ptr<MasterWeights>& masters) {
  auto* const fused = dynamic_cast<optim::FusedOptimizer*>(&optimizer);
  TORCH_CHECK_NOT_IMPLEMENTED(
      fused,
      "[OptimizerShard] this optimizer cannot be divided among ranks; expected "
      "one of tern::optim.");
  std::unordered_map<c10::TensorImpl*, torch::Tensor> weights;
  if (masters) {
    for (size_t i = 0; i < masters->masters().size(); ++i) {
      weights[masters->masters()[i].unsafeGetTensorImpl()] =
          masters->weights()[i];
    }
  }
  const Tensors params = optim::parameters_of(optimizer);
  std::vector<int64_t> sizes;
  for (const torch::Tensor& param : params) sizes.push_back(param.numel());

  const int64_t ranks = group_->world_size();
  const std::vector<int64_t> owner = owners(sizes, ranks);
  std::vector<Tensors> sent(ranks);  // after each step, by owning rank
  masters_.assign(ranks, {});
  optim::FusedOptimizer::Shard mine;
  for (size_t i = 0; i < params.size(); ++i) {
    c10::TensorImpl* const impl = params[i].unsafeGetTensorImpl();
    if (owner[i] == group_->rank()) mine.params.insert(impl);
    const auto weight = weights.find(impl);
    if (weight == weights.end()) {
      sent[owner[i]].push_back(params[i].detach());
      continue;
    }
    sent[owner[i]].push_back(weight->second.detach());
    masters_[owner[i]].push_back({params[i], weight->second});
  }
  mine.after_step = [group = group_, sent = std::move(sent)] {
    for (size_t rank = 0; rank < sent.size(); ++rank) {
      if (!sent[rank].empty()) {
        group->broadcast(sent[rank], static_cast<int64_t>(rank));
      }
    }
  };
  fused->set_shard(std::move(mine));
  for (const Master& m : masters_[group_->rank()]) move_out_of_block(m.master);
  release_masters();
}

StateDict OptimizerShard::gather_state(const StateDict& mine) {
  StateDict all;
  for (int64_t rank = 0; rank < group_->world_size(); ++rank) {
    for (const auto& entry : broadcast_state(*group_, mine, rank)) {
      // Learning rates and similar values are the same on all ranks.
      const bool is_new = group_->rank() == 0 && !all.contains(entry.key());
      if (is_new) all.insert(entry.key(), entry.value());
    }
  }
  return group_->rank() == 0 ? all : mine;
}

void OptimizerShard::gather_masters() {
  for (int64_t rank = 0; rank < group_->world_size(); ++rank) {
    Tensors tensors;
    for (auto& [master, weight] : masters_[rank]) {
      if (rank != group_->rank()) {
        master.set_data(torch::empty_like(weight, torch::kFloat).detach());
      }
      tensors.push_back(master);
    }
    if (!tensors.empty()) group_->broadcast(tensors, rank);
  }
  has_released_masters_ = false;
}

void OptimizerShard::release_masters() {
  has_released_masters_ = false;
  for (int64_t rank = 0; rank < group_->world_size(); ++rank) {
    for (auto& [master, weight] : masters_[rank]) {
      // Set even if this rank keeps all master weights: either every rank
      // gathers, or none.
      has_released_masters_ = true;
      if (rank == group_->rank()) continue;
      master.set_data(torch::empty({0}, master.options()));
    }
  }
}

void OptimizerShard::restore_masters() {
  for (int64_t rank = 0; rank < group_->world_size(); ++rank) {
    if (rank == group_->rank()) continue;
    for (auto& [master, weight] : masters_[rank]) {
      master.set_data(weight.detach().to(torch::kFloat));
    }
  }
  has_released_masters_ = false;
}

}  // namespace tern
