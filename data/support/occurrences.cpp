#include "tern/data/support/occurrences.h"

#include <algorithm>
#include <unordered_map>

namespace tern {

std::vector<int64_t> occurrences_in(c10::ArrayRef<int64_t> indices) {
  const auto is_not_above = [](int64_t a, int64_t b) { return a >= b; };
  const auto falls =
      std::adjacent_find(indices.begin(), indices.end(), is_not_above);
  if (falls == indices.end()) return {};  // strictly ascending: no repeats
  const auto [least, most] =
      std::minmax_element(indices.begin(), indices.end());
  std::vector<int64_t> before;
  before.reserve(indices.size());
  // A dataset may have too many samples for an array of counts.
  const auto range = static_cast<uint64_t>(*most - *least);
  if (range / 4 <= indices.size()) {
    std::vector<int64_t> times(range + 1);
    for (const int64_t index : indices) {
      before.push_back(times[index - *least]++);
    }
  } else {
    std::unordered_map<int64_t, int64_t> times;
    for (const int64_t index : indices) before.push_back(times[index]++);
  }
  const bool has_repeated =
      std::ranges::any_of(before, [](int64_t n) { return n > 0; });
  return has_repeated ? before : std::vector<int64_t>();
}

}  // namespace tern
