#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "tern/data/batch.h"

namespace tern {

/// The iterator of `for (const Batch& batch : loader)`: the batches of one
/// pass. An input iterator: copies share the pass, and a batch is valid until
/// the next one is asked for. The pass ends with its last copy, also in the
/// middle.
template <class Pass>
class BatchIterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  explicit BatchIterator(Pass pass)
      : pass_(std::make_shared<Pass>(std::move(pass))), batch_(pass_->next()) {}

  const Batch& operator*() const { return *batch_; }
  BatchIterator& operator++() {
    batch_ = pass_->next();
    return *this;
  }
  void operator++(int) { ++*this; }

  friend bool operator==(const BatchIterator& it, std::default_sentinel_t) {
    return !it.batch_;
  }

 private:
  std::shared_ptr<Pass> pass_;
  std::optional<Batch> batch_;
};

}  // namespace tern
