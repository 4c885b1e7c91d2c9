#include "tern/learner/checkpoint/rank_states.h"

#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/sha256.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/checkpoint/training_state.h"
#include "tern/learner/loop.h"
#include "tern/learner/tensor_hash.h"

namespace tern {

namespace {

// Prefixes of entries that rank 0 does not have or has with different values,
// and of entries that only rank 0 has.
constexpr const char* kHas = "has";
constexpr const char* kLacks = "lacks";

bool differs_between_ranks(std::string_view key) {
  return key.starts_with("callbacks/") || key.starts_with("random/");
}

std::string folder_of(int64_t rank, const char* kind) {
  return fmt::format("ranks/{}/{}", rank, kind);
}

// Returns the state of this rank, which may share memory with the Learner.
StateDict own_state(Learner& learner) {
  StateDict state;
  for (const StatePart& part : state_parts(learner)) {
    if (!differs_between_ranks(part.name + "/")) continue;
    for (const auto& entry : part.capture()) {
      state.insert(part.name + "/" + entry.key(), entry.value().detach());
    }
  }
  return state;
}

StateDict state_in(const Checkpoint& checkpoint) {
  StateDict state;
  for (const auto& entry : checkpoint.training) {
    if (differs_between_ranks(entry.key())) {
      state.insert(entry.key(), entry.value());
    }
  }
  return state;
}

// Hashes a large tensor, such as an average of all weights, on its device with
// tensor_hash, which may miss swapped elements. Small tensors may be counts, so
// all their bits are hashed in order.
std::string hash_of(const torch::Tensor& tensor) {
  constexpr size_t kLarge = 1 << 20;
  const bool is_large = tensor.nbytes() >= kLarge;
  const torch::Tensor bytes =
      (is_large ? tensor_hash(tensor) : tensor).cpu().contiguous();
  return sha256(
      {static_cast<const uint8_t*>(bytes.const_data_ptr()), bytes.nbytes()});
}

// Returns one line; two lines are equal if and only if name, dtype, shape and
// values are equal.
std::string description(const std::string& name, const torch::Tensor& tensor) {
  return fmt::format(
      "{} {} {} {}",
      hash_of(tensor),
      c10::toString(tensor.scalar_type()),
      fmt::join(tensor.sizes(), ","),
      name);
}

// Returns the differences between this rank and rank 0, whose descriptions are
// passed.
StateDict differences(const StateDict& own, const std::string& descriptions) {
  std::set<std::string, std::less<>> of_rank_0;
  std::set<std::string, std::less<>> only_rank_0;
  for (std::string_view rest = descriptions; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    of_rank_0.emplace(line);
    // The name follows the third space.
    std::string_view name = line;
    for (int i = 0; i < 3; ++i) name.remove_prefix(name.find(' ') + 1);
    only_rank_0.emplace(name);
    rest.remove_prefix(line.size() + 1);
  }
  StateDict result;
  for (const auto& entry : own) {
    only_rank_0.erase(entry.key());
    if (of_rank_0.contains(description(entry.key(), entry.value()))) continue;
    result.insert(fmt::format("{}/{}", kHas, entry.key()), entry.value());
  }
  for (const std::string& name : only_rank_0) {
    result.insert(
        fmt::format("{}/{}", kLacks, name),
        torch::zeros({}, torch::kLong));
  }
  return result;
}

}  // namespace

void gather_rank_states(Learner& learner, Checkpoint& checkpoint) {
  Communicator& ranks = communicator(learner);
  if (ranks.world_size() == 1) return;
  const bool is_main = ranks.is_main_process();
  StateDict own;
  std::string descriptions;
  loop::run_on_all_ranks(parts_of(learner), [&] {
    own = is_main ? state_in(checkpoint) : own_state(learner);
    if (!is_main) return;
    for (const auto& entry : own) {
      descriptions += description(entry.key(), entry.value()) + "\n";
    }
  });
  descriptions = broadcast_text(ranks, std::move(descriptions));
  StateDict different;
  loop::run_on_all_ranks(parts_of(learner), [&] {
    different = differences(own, descriptions);
  });
  for (int64_t rank = 1; rank < ranks.world_size(); ++rank) {
    const StateDict state = broadcast_state(ranks, different, rank);
    if (!is_main) continue;
    put_under(checkpoint.training, fmt::format("ranks/{}", rank), state);
  }
}

std::optional<StateDict> saved_part(
    const Learner& learner,
    const Checkpoint& checkpoint,
    const std::string& part) {
  const StateDict& all = checkpoint.training;
  StateDict saved = entries_under(all, part);
  const bool is_known = !saved.is_empty() || all.contains(kEmpty + part);
  const int64_t rank = communicator(learner).rank();
  const StateDict lacks =
      entries_under(all, folder_of(rank, kLacks) + "/" + part);
  const StateDict has = entries_under(all, folder_of(rank, kHas) + "/" + part);
  for (const auto& entry : lacks) saved.erase(entry.key());
  for (const auto& entry : has) {
    if (saved.contains(entry.key())) {
      saved[entry.key()] = entry.value();
    } else {
      saved.insert(entry.key(), entry.value());
    }
  }
  if (!is_known && has.is_empty()) return std::nullopt;
  return saved;
}

}  // namespace tern
