#include "tern/callbacks/limit_batches.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/only_one.h"
#include "tern/callbacks/saved_value.h"
#include "tern/learner/communicator.h"
#include "tern/learner/learner.h"

namespace tern {

namespace {

// The first samples of each epoch, or of the first epoch every time.
class FirstSamples final : public Sampler {
 public:
  FirstSamples(
      std::shared_ptr<const Sampler> all,
      int64_t size,
      bool always_the_same)
      : all_(std::move(all)),
        size_(std::min(size, all_->size())),
        always_the_same_(always_the_same) {}
  int64_t size() const override { return size_; }
  std::vector<int64_t> indices(uint64_t seed, int64_t epoch) const override {
    std::vector<int64_t> indices =
        all_->indices(seed, always_the_same_ ? 0 : epoch);
    indices.resize(size_);
    return indices;
  }

 private:
  std::shared_ptr<const Sampler> all_;
  int64_t size_;
  bool always_the_same_;
};

std::shared_ptr<DataLoader> first_samples(
    const DataLoader& loader,
    int64_t samples,
    DataLoaderOptions options,
    bool always_the_same) {
  options.sampler = std::make_shared<FirstSamples>(
      loader.sampler(),
      samples,
      always_the_same);
  return std::make_shared<DataLoader>(loader.dataset_ptr(), options);
}

// Samples in so many batches of all ranks together.
int64_t
samples_in(const Learner& learn, const DataLoader& loader, int64_t batches) {
  const auto& communicator = learn.communicator();
  return batches * loader.options().batch_size *
         (communicator ? communicator->world_size() : 1);
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
  return first_samples(
      loader,
      batches * loader.options().batch_size,
      loader.options(),
      /*always_the_same=*/false);
}

void SwapLoaders::on_add(Learner& learn) {
  check_only_one<SwapLoaders>(learn, *this, "both change the loaders");
}

void SwapLoaders::on_train_begin(Learner& learn) {
  DataBunch& data = learn.data();
  train_ = data.train;
  valid_ = data.valid;
  has_swapped_ = true;
  swap(learn);
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

void LimitBatches::swap(Learner& learn) const {
  const auto limit = [&](std::shared_ptr<DataLoader>& loader, int64_t batches) {
    if (!loader || batches == 0) return;
    loader = first_samples(
        *loader,
        samples_in(learn, *loader, batches),
        loader->options(),
        /*always_the_same=*/false);
  };
  limit(learn.data().train, options_.train);
  limit(learn.data().valid, options_.valid);
}

OverfitBatches::OverfitBatches(int64_t batches) : batches_(batches) {
  check_batches("OverfitBatches", batches, 1);
}

void OverfitBatches::swap(Learner& learn) const {
  DataBunch& data = learn.data();
  const DataLoader all = *data.train;
  DataLoaderOptions options = all.options();
  options.drop_last = false;
  const int64_t samples = samples_in(learn, all, batches_);
  data.train = first_samples(all, samples, options, /*always_the_same=*/true);
  if (!data.valid) return;
  options.training = false;
  data.valid = first_samples(all, samples, options, /*always_the_same=*/true);
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
