#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "tern/data/stream_dataset.h"

namespace tern::testing_support {

/// A stream of `length` samples that cannot restart. It repeats the samples of
/// a dataset in order.
class OnePassStream final : public StreamDataset {
 public:
  OnePassStream(std::shared_ptr<Dataset> dataset, int64_t length)
      : dataset_(std::move(dataset)),
        length_(length),
        next_(std::make_shared<Next>(0)) {}

  bool can_restart() const override { return false; }

  std::unique_ptr<Pass> pass(const BatchContext&) const override {
    return std::make_unique<Rest>(dataset_, length_, next_);
  }

 private:
  using Next = std::atomic<int64_t>;

  class Rest final : public Pass {
   public:
    Rest(
        std::shared_ptr<Dataset> dataset,
        int64_t length,
        std::shared_ptr<Next> next)
        : dataset_(std::move(dataset)),
          length_(length),
          next_(std::move(next)) {}

    std::optional<Batch> next() override {
      const int64_t index = (*next_)++;
      if (index >= length_) return std::nullopt;
      return dataset_->get_batch({index % dataset_->size()}, {});
    }

   private:
    std::shared_ptr<Dataset> dataset_;
    int64_t length_;
    std::shared_ptr<Next> next_;
  };

  std::shared_ptr<Dataset> dataset_;
  int64_t length_;
  std::shared_ptr<Next> next_;
};

}  // namespace tern::testing_support
