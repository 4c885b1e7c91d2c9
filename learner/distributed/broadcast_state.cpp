#include "tern/learner/distributed/broadcast_state.h"

#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace tern {

namespace {

// A line for each tensor: type, dimensions, shape and name.
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

// Tensors as they were described, not filled yet.
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

std::string
broadcast_text(ProcessGroup& group, const std::string& mine, int64_t root) {
  const auto size =
      torch::scalar_tensor(static_cast<int64_t>(mine.size()), torch::kLong);
  group.broadcast({size}, root);
  const auto bytes = torch::zeros({size.item<int64_t>()}, torch::kByte);
  if (group.rank() == root) {
    std::memcpy(bytes.mutable_data_ptr(), mine.data(), mine.size());
  }
  if (bytes.numel() > 0) group.broadcast({bytes}, root);
  return {
      static_cast<const char*>(bytes.const_data_ptr()),
      static_cast<size_t>(bytes.numel())};
}

}  // namespace

StateDict
broadcast_state(ProcessGroup& group, const StateDict& mine, int64_t root) {
  const bool is_root = group.rank() == root;
  const std::string contents =
      broadcast_text(group, is_root ? contents_of(mine) : "", root);
  StateDict state = is_root ? mine : empty_state(contents);
  Tensors tensors;
  for (const auto& entry : state) tensors.push_back(entry.value());
  group.broadcast(tensors, root);
  return state;
}

}  // namespace tern
