#include "tern/learner/communicator.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/data/formats/sha256.h"
#include "tern/data/sharded_sampler.h"
#include "tern/learner/learner.h"
#include "tern/learner/resume.h"

namespace tern {

namespace {

std::shared_ptr<DataLoader> make_shard(
    const DataLoader& loader,
    const Communicator& ranks,
    bool equal_batches) {
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
  return !communicator_ || communicator_->rank() == 0;
}

void Learner::set_communicator(std::shared_ptr<Communicator> communicator) {
  TORCH_CHECK_VALUE(
      communicator && !communicator_ && !is_fitting_,
      "[Learner::set_communicator] the communicator is null, set already or "
      "comes while fit runs; set it once, before the first fit.");
  communicator_ = std::move(communicator);
}

const DataLoader& Learner::training_loader() {
  const DataLoader& whole = data_.loader(Split::train);
  return communicator_ ? shard_of(whole, /*equal_batches=*/true) : whole;
}

int64_t Learner::batches_per_epoch() {
  return training_loader().size();
}

const DataLoader& Learner::shard_of(
    const DataLoader& loader,
    bool equal_batches) {
  auto& shard = shards_[{loader.sampler().get(), equal_batches}];
  const bool is_same =
      shard && shard->dataset_ptr() == loader.dataset_ptr() &&
      shard->options().batch_size == loader.options().batch_size;
  if (!is_same) {
    TORCH_CHECK_VALUE(
        equal_batches ||
            loader.sampler()->size() >= communicator_->world_size(),
        fmt::format(
            "[Learner::validate] {} samples for {} processes; expected one "
            "for each at least.",
            loader.sampler()->size(),
            communicator_->world_size()));
    shard = make_shard(loader, *communicator_, equal_batches);
  }
  return *shard;
}

// ---- What is the same on all ranks ----

// A rank that has found another checkpoint than the others would train, or skip
// fits, alone.
void Learner::check_common_begin() {
  if (!communicator_) return;
  communicator_->check_equal(
      "checkpoint to go on from",
      resume_ ? fmt::format(
                    "step {} of run {}",
                    resume_->checkpoint.step,
                    resume_->checkpoint.run)
              : "none");
  communicator_->check_equal(
      "number of steps so far",
      std::to_string(state_.iteration));
}

// Weights that differ before the first step would be averaged in silence.
void Learner::check_common_start() {
  if (!communicator_) return;
  communicator_->check_equal(
      "place to begin at",
      fmt::format("epoch {}, batch {}", state_.epoch, first_batch_));
  const torch::NoGradGuard no_grad;
  std::string text;
  for (const ModelTensor& p : model_.parameters()) {
    const torch::Tensor hash = at::hash_tensor(p.tensor.detach());
    text += fmt::format("{:x} ", hash.view(torch::kLong).item<int64_t>());
  }
  communicator_->check_equal(
      "hash of the weights",
      sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

// What one rank wants, all do; rates are those of rank 0.
void Learner::agree() {
  if (!communicator_) return;
  TrainState& s = state_;
  auto& groups = optimizer().param_groups();
  const bool is_main = is_main_process();
  std::vector<double> said = {
      s.skip_step ? 1.0 : 0,
      s.skip_zero_grad ? 1.0 : 0,
      s.stop_epoch ? 1.0 : 0,
      s.stop_training ? 1.0 : 0,
      stop_wanted_ ? 1.0 : 0};
  const size_t rates = said.size();
  for (const auto& group : groups) {
    said.push_back(is_main ? group.options().get_lr() : 0);
  }
  const torch::Tensor agreed = torch::tensor(said, torch::kDouble);
  communicator_->all_reduce(agreed);
  const double* const all = agreed.const_data_ptr<double>();
  s.skip_step = all[0] > 0;
  s.skip_zero_grad = all[1] > 0;
  s.stop_epoch = all[2] > 0;
  s.stop_training = all[3] > 0;
  if (all[4] > 0) stop_requested_ = true;
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(all[rates + i]);
  }
}

// A pass that one rank was asked to leave ends on all after the same batch; one
// of them may have one batch more than the others.
void Learner::agree_to_stop_validation(const DataLoader& whole) {
  const int64_t common_batches =
      whole.sampler()->size() /
      (whole.options().batch_size * communicator_->world_size());
  if (state_.batch >= common_batches) return;
  const auto wishes = torch::tensor({stop_wanted_ ? 1 : 0}, torch::kInt);
  communicator_->all_reduce(wishes);
  if (wishes.const_data_ptr<int>()[0] > 0) stop_requested_ = true;
}

// The loss and every metric over all data, of which each rank has seen a part.
void Learner::add_up_over_ranks(const torch::Tensor& sums) {
  const AllReduce all_reduce = [this](const torch::Tensor& tensor) {
    communicator_->all_reduce(tensor);
  };
  all_reduce(sums);
  for (Metric& metric : options_.metrics) metric.sync(all_reduce);
}

double Learner::mean_over_ranks(double value) {
  if (!communicator_) return value;
  const torch::Tensor sum = torch::scalar_tensor(value, torch::kDouble);
  communicator_->all_reduce(sum);
  return sum.item<double>() / static_cast<double>(communicator_->world_size());
}

// Running statistics differ between ranks while they train, which nobody sees:
// a forward pass in training does not read them. Rank 0's are taken.
void Learner::share_buffers() {
  Tensors buffers;
  for (const ModelTensor& b : model_.buffers()) {
    buffers.push_back(b.tensor.detach());
  }
  communicator_->broadcast(buffers);
}

void Learner::begin_window() {
  window_.begin(
      state_.accumulation,
      data_.loader(Split::train).options().batch_size,
      communicator_ ? communicator_->world_size() : 1);
}

StepWindow::Samples Learner::samples_of_batch() {
  if (!communicator_) {
    const int64_t samples = state_.batch_data.size();
    return {samples, samples};
  }
  const auto samples =
      static_cast<const ShardedSampler&>(*training_loader().sampler())
          .real_samples(state_.batch);
  return {samples.of_rank, samples.of_all};
}

}  // namespace tern
