#include "tern/callbacks/limit_batches.h"

#include <algorithm>

#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/dry_run.h"
#include "tern/learner/loop.h"
#include "tern/learner/report/memory_meter.h"

namespace tern {

namespace {

// The first samples of each epoch, or in every epoch the first samples of the
// first epoch.
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
  std::shared_ptr<const Sampler> for_batches_of(
      int64_t samples) const override {
    auto all = all_->for_batches_of(samples);
    if (!all) return nullptr;
    return std::make_shared<FirstSamples>(
        std::move(all),
        size_,
        always_the_same_);
  }

 private:
  std::shared_ptr<const Sampler> all_;
  int64_t size_;
  bool always_the_same_;
};

}  // namespace

namespace {

// The number of batches of a running epoch cannot change.
void check_between_epochs(const Learner& learn, const char* call) {
  TERN_CHECK_VALUE(
      parts_of(learn).position.place != Place::in_epoch,
      "[Learner::{}] LimitBatches and OverfitBatches change the loaders, but "
      "an epoch is running; {} it in on_epoch_begin or on_epoch_end.",
      call,
      call);
}

}  // namespace

LimitBatches::LimitBatches(Options options)
    : LimitBatches(options, /*overfits=*/false) {
  check_at_least("LimitBatches", "train", options.train, 0);
  check_at_least("LimitBatches", "valid", options.valid, 0);
}

void LimitBatches::on_add(Learner& learn) {
  check_only_one(learn.find<LimitBatches>(), *this, "both change the loaders");
  check_between_epochs(learn, "add");
}

void LimitBatches::on_remove(Learner& learn) {
  check_between_epochs(learn, "remove");
}

void LimitBatches::on_train_begin(Learner& learn) {
  DataBunch& data = learn.data();
  train_ = data.train;
  valid_ = data.valid;
  // The limit counts global batches, over all ranks.
  const auto first = [&](const DataLoader& all,
                         int64_t batches,
                         DataLoaderOptions options) {
    options.sampler = std::make_shared<FirstSamples>(
        all.sampler(),
        batches * all.options().batch_size * loop::data_shards(parts_of(learn)),
        /*always_the_same=*/overfits_);
    return std::make_shared<DataLoader>(all.dataset_ptr(), options);
  };
  if (overfits_) {
    TORCH_CHECK_VALUE(
        !train_->dataset().can_end_early(),
        "[OverfitBatches] the training data is a stream that cannot restart; "
        "expected data that can be read again in every epoch. Copy a few of "
        "its samples to a TensorDataset.");
    DataLoaderOptions options = train_->options();
    options.drop_last = false;
    data.train = first(*train_, options_.train, options);
    options.training = false;
    if (valid_) data.valid = first(*train_, options_.train, options);
    return;
  }
  if (options_.train > 0) {
    data.train = first(*train_, options_.train, train_->options());
  }
  if (valid_ && options_.valid > 0) {
    data.valid = first(*valid_, options_.valid, valid_->options());
  }
}

void LimitBatches::on_train_end(Learner& learn) {
  if (!train_) return;
  learn.data().train = std::move(train_);
  learn.data().valid = std::move(valid_);
}

OverfitBatches::OverfitBatches(int64_t batches)
    : LimitBatches({.train = batches}, /*overfits=*/true) {
  check_at_least("OverfitBatches", "batches", batches, 1);
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
  return {{"done", torch::tensor(done_, torch::kLong)}};
}

void StopAfterNBatches::load_state_dict(const StateDict& state) {
  done_ = saved_value("StopAfterNBatches", state, "done").item<int64_t>();
}

void fit_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra) {
  extra.insert(extra.begin(), std::make_shared<DryRun>());
  extra.emplace_back(std::make_shared<StopAfterNBatches>(batches));
  // `batches` epochs are enough, since each has at least one batch, even with
  // LimitBatches.
  learn.fit(/*epochs=*/batches, lr, std::move(extra));
}

void check_not_stopped(Learner& learn) {
  TORCH_CHECK(
      learn.state().result != FitResult::interrupted,
      "[Learner] a stop was requested, so nothing was measured; set "
      "state().result = FitResult::completed to train again.");
}

int64_t peak_bytes_of_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra) {
  const MemoryMeter memory(learn.data().device);
  const int64_t at_first = memory.live_bytes();
  fit_batches(learn, batches, lr, std::move(extra));
  check_not_stopped(learn);
  return memory.peak_bytes() - at_first;
}

void dry_run(Learner& learn, int64_t batches) {
  check_at_least("dry_run", "batches", batches, 1);
  check_not_fitting(learn, "dry_run");
  const auto limit = std::make_shared<LimitBatches>(
      LimitBatches::Options{.train = batches, .valid = batches});
  undo(learn, [&] {
    learn.fit(1, {}, {std::make_shared<DryRun>(), limit});
    const bool is_stopped = learn.state().result == FitResult::interrupted;
    if (is_stopped || !learn.data().valid) return;
    limit->on_train_begin(learn);
    const auto end = c10::make_scope_exit([&] { limit->on_train_end(learn); });
    learn.validate();
  });
}

OptionValues LimitBatches::option_values() const {
  return {
      {"train", option_text(options_.train)},
      {"valid", option_text(options_.valid)}};
}

OptionValues StopAfterNBatches::option_values() const {
  return {{"batches", option_text(batches_)}};
}

}  // namespace tern
