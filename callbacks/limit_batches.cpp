#include "tern/callbacks/limit_batches.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/only_one.h"
#include "tern/callbacks/saved_value.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

class FirstSamples final : public Sampler {
 public:
  FirstSamples(std::shared_ptr<const Sampler> all, int64_t size)
      : all_(std::move(all)), size_(std::min(size, all_->size())) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override {
    std::vector<int64_t> indices = all_->indices(seed, epoch);
    indices.resize(size_);
    return indices;
  }

 private:
  std::shared_ptr<const Sampler> all_;
  int64_t size_;
};

std::shared_ptr<const Sampler> sampler_of(const DataLoader& loader) {
  if (loader.options().sampler) return loader.options().sampler;
  const int64_t size = loader.dataset().size();
  if (loader.options().shuffle) return std::make_shared<RandomSampler>(size);
  return std::make_shared<SequentialSampler>(size);
}

void check_batches(const char* where, int64_t batches, int64_t least) {
  TORCH_CHECK_VALUE(
      batches >= least,
      fmt::format(
          "[{}] {} batches were asked for; expected {} or more.",
          where,
          batches,
          least));
}

}  // namespace

std::shared_ptr<DataLoader> first_batches(
    const DataLoader& loader,
    int64_t batches) {
  check_batches("first_batches", batches, 1);
  DataLoaderOptions options = loader.options();
  options.sampler = std::make_shared<FirstSamples>(
      sampler_of(loader),
      batches * options.batch_size);
  return std::make_shared<DataLoader>(loader.dataset_ptr(), options);
}

void SwapLoaders::on_add(const Learner& learn) {
  check_only_one<SwapLoaders>(learn, *this, "both change the loaders");
}

void SwapLoaders::on_train_begin(Learner& learn) {
  DataBunch& data = learn.data();
  train_ = data.train;
  valid_ = data.valid;
  has_swapped_ = true;
  swap(data);
}

void SwapLoaders::on_train_end(Learner& learn) {
  if (!has_swapped_) return;
  learn.data().train = std::move(train_);
  learn.data().valid = std::move(valid_);
  has_swapped_ = false;
}

LimitBatches::LimitBatches(Options options) : options_(options) {
  check_batches("LimitBatches", std::min(options.train, options.valid), 0);
}

void LimitBatches::swap(DataBunch& data) const {
  if (options_.train) data.train = first_batches(*data.train, options_.train);
  if (options_.valid && data.valid) {
    data.valid = first_batches(*data.valid, options_.valid);
  }
}

OverfitBatches::OverfitBatches(int64_t batches) : batches_(batches) {
  check_batches("OverfitBatches", batches, 1);
}

void OverfitBatches::swap(DataBunch& data) const {
  DataLoaderOptions options = data.train->options();
  std::vector<int64_t> samples =
      sampler_of(*data.train)->indices(options.seed, /*epoch=*/0);
  const auto size = static_cast<int64_t>(samples.size());
  samples.resize(std::min(size, batches_ * options.batch_size));
  const auto few =
      std::make_shared<Subset>(data.train->dataset_ptr(), std::move(samples));
  options.sampler = nullptr;
  options.shuffle = options.drop_last = false;
  data.train = std::make_shared<DataLoader>(few, options);
  if (!data.valid) return;
  options.training = false;
  data.valid = std::make_shared<DataLoader>(few, options);
}

StopAfterNBatches::StopAfterNBatches(int64_t batches) : batches_(batches) {
  check_batches("StopAfterNBatches", batches, 1);
}

void StopAfterNBatches::on_batch_begin(Learner& learn) {
  TrainState& state = learn.state();
  if (state.training && done_ + 1 >= batches_) state.stop_training = true;
}

void StopAfterNBatches::on_batch_end(Learner& learn) {
  if (learn.state().training) ++done_;
}

StateDict StopAfterNBatches::state_dict() const {
  StateDict state;
  state.insert("done", torch::tensor(done_));
  return state;
}

void StopAfterNBatches::load_state_dict(const StateDict& state) {
  done_ = saved_value("StopAfterNBatches", state, "done").item<int64_t>();
}

}  // namespace tern
