#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "tern/data/random.h"

namespace tern {

/// Mixes what comes in order: holds up to `capacity` items and gives one of
/// them at random, whose place the next one takes. As WebDataset's `shuffle`.
template <class Item>
class ShuffleBuffer {
 public:
  /// \param capacity  At least 1, which leaves the order as it is.
  ShuffleBuffer(size_t capacity, SampleRng rng)
      : capacity_(capacity), rng_(rng) {}

  /// \param pull  Gives the next item in order, nothing at the end; may be
  ///              called again then.
  /// \return Nothing once all have been given.
  template <class Pull>
  std::optional<Item> next(const Pull& pull) {
    while (held_.size() < capacity_) {
      std::optional<Item> item = pull();
      if (!item) break;
      held_.push_back(std::move(*item));
    }
    if (held_.empty()) return std::nullopt;
    std::swap(held_[rng_.below(held_.size())], held_.back());
    std::optional<Item> given = std::move(held_.back());
    held_.pop_back();
    return given;
  }

 private:
  size_t capacity_;
  SampleRng rng_;
  std::vector<Item> held_;
};

}  // namespace tern
