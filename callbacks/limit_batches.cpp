#include "tern/callbacks/limit_batches.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/loop.h"
#include "tern/learner/report/memory_meter.h"

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
  return batches * loader.options().batch_size *
         learn.communicator().world_size();
}

}  // namespace

void SwapLoaders::on_add(Learner& learn) {
  check_only_one(learn.find<SwapLoaders>(), *this, "both change the loaders");
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
  check_at_least("LimitBatches", "train", options.train, 0);
  check_at_least("LimitBatches", "valid", options.valid, 0);
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
  check_at_least("OverfitBatches", "batches", batches, 1);
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
  check_at_least("StopAfterNBatches", "batches", batches, 1);
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

void fit_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra) {
  const int64_t per_epoch =
      std::max<int64_t>(1, loop::training_loader(learn.parts()).size());
  extra.insert(extra.begin(), std::make_shared<Trial>());
  extra.emplace_back(std::make_shared<StopAfterNBatches>(batches));
  learn.fit((batches + per_epoch - 1) / per_epoch, lr, std::move(extra));
}

int64_t peak_bytes_of_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra) {
  const MemoryMeter memory(learn.data().device);
  const int64_t at_first = memory.live_bytes();
  fit_batches(learn, batches, lr, std::move(extra));
  return memory.peak_bytes() - at_first;
}

Learner& Learner::dry_run(int64_t batches) {
  check_at_least("Learner::dry_run", "batches", batches, 1);
  check_not_fitting(*this, "Learner::dry_run");
  const auto limit = std::make_shared<LimitBatches>(
      LimitBatches::Options{.train = batches, .valid = batches});
  undo(*this, [&] {
    fit(1, {}, {std::make_shared<Trial>(), limit});
    if (!parts_->data.valid) return;
    limit->on_train_begin(*this);
    const std::shared_ptr<void> at_end(nullptr, [&](void*) {
      limit->on_train_end(*this);
    });
    validate();
  });
  return *this;
}

}  // namespace tern
