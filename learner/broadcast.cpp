#include "tern/learner/broadcast.h"

#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace tern {

namespace {

// One line per tensor: type, number of dimensions, shape and name.
std::string contents_of(const StateDict& state) {
  std::string text;
  for (const auto& entry : state) {
    text += fmt::format(
        "{} {} {} {}\n",
        static_cast<int>(entry.value().scalar_type()),
        entry.value().dim(),
        fmt::join(entry.value().sizes(), " "),
        entry.key());
  }
  return text;
}

// Uninitialized tensors with the described names, dtypes and shapes.
StateDict empty_state(const std::string& contents) {
  StateDict state;
  std::istringstream lines(contents);
  int type = 0;
  for (size_t dim = 0; lines >> type >> dim;) {
    std::vector<int64_t> shape(dim);
    for (int64_t& size : shape) lines >> size;
    std::string name;
    std::getline(lines >> std::ws, name);
    state.insert(
        name,
        torch::empty(shape, static_cast<torch::ScalarType>(type)));
  }
  return state;
}

}  // namespace

std::string
broadcast_text(Communicator& ranks, std::string text, int64_t root) {
  if (ranks.world_size() == 1) return text;
  const auto size =
      torch::scalar_tensor(static_cast<int64_t>(text.size()), torch::kLong);
  ranks.broadcast({size}, root);
  text.resize(static_cast<size_t>(size.item<int64_t>()));
  if (text.empty()) return text;
  const auto bytes = torch::from_blob(
      text.data(),
      {static_cast<int64_t>(text.size())},
      torch::kByte);
  ranks.broadcast({bytes}, root);
  return text;
}

StateDict
broadcast_state(Communicator& ranks, const StateDict& mine, int64_t root) {
  const bool is_root = ranks.rank() == root;
  const std::string contents =
      broadcast_text(ranks, is_root ? contents_of(mine) : "", root);
  StateDict state;
  if (is_root) {
    for (const auto& entry : mine) {
      state.insert(entry.key(), entry.value().detach().cpu().contiguous());
    }
  } else {
    state = empty_state(contents);
  }
  // As bytes, because Gloo does not support all dtypes.
  Tensors bytes;
  for (const auto& entry : state) {
    const auto size = static_cast<int64_t>(entry.value().nbytes());
    if (size == 0) continue;
    void* const data = entry.value().mutable_data_ptr();
    bytes.push_back(torch::from_blob(data, {size}, torch::kByte));
  }
  if (!bytes.empty()) ranks.broadcast(bytes, root);
  return state;
}

}  // namespace tern
