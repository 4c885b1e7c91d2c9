#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_set>

#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"
#include "tern/data/formats/weights/pth.h"

namespace tern {

namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;
using Value = Pickle::Value;

// Deeper than any checkpoint.
constexpr int kMaxDepth = 16;

// Position of a value in the saved object: under a key, or at a number, which
// is an integer key or an index in a list. The outermost value has no position.
struct Place {
  const Place* outer;
  std::string_view key;
  std::optional<int64_t> number = {};
};

// Returns "nets/0", or "/" for the outermost value.
std::string key_of(const Place* place) {
  std::string key;
  for (; place != nullptr; place = place->outer) {
    if (!key.empty()) key.insert(0, 1, '/');
    key.insert(
        0,
        place->number ? std::to_string(*place->number)
                      : std::string(place->key));
  }
  return key.empty() ? "/" : key;
}

// Computes key_of(place) == key without copying names, since a file may use a
// name of several megabytes in a million places.
bool is_called(const Place* place, std::string_view key) {
  const auto drop = [&](std::string_view tail) {
    if (!key.ends_with(tail)) return false;
    key.remove_suffix(tail.size());
    return true;
  };
  if (place == nullptr) return key == "/";
  for (; place != nullptr; place = place->outer) {
    if (!(place->number ? drop(std::to_string(*place->number))
                        : drop(place->key)) ||
        (place->outer != nullptr && !drop("/"))) {
      return false;
    }
  }
  return key.empty();
}

// A dictionary of tensors in the saved object.
struct Found {
  const Place* place;
  const Value* dict;
  size_t tensors;
  bool is_whole;  // contains only tensors
};

// Returns "'model' (10 tensors), 'ema' (10 tensors)".
std::string list_of(const std::vector<Found>& found) {
  std::string list;
  for (size_t i = 0; i < found.size() && i < 10; ++i) {
    list += (i == 0 ? "" : ", ") + printable(key_of(found[i].place)) + " (" +
            std::to_string(found[i].tensors) + " tensors)";
  }
  return list + (found.size() > 10 ? ", ..." : "");
}

// Finds dictionaries of tensors at any depth, including in lists and tuples,
// except the state of optimizers.
class DictFinder {
 public:
  DictFinder(
      const Pickle& pickle,
      const std::function<bool(const Value&)>& is_tensor,
      const std::string& path)
      : pickle_(pickle), is_tensor_(is_tensor), path_(path) {
    visit(pickle.root_id(), nullptr, 0);
  }

  std::vector<Found> found;

 private:
  void visit(Id id, const Place* place, int depth) {
    const Value& value = pickle_[id];
    const bool is_dict = value.kind == Kind::dict;
    const bool is_list = value.kind == Kind::list || value.kind == Kind::tuple;
    if ((!is_dict && !is_list) || is_optimizer(value)) return;
    if (!seen_.insert(id).second) return;
    if (depth > kMaxDepth) {
      throw DataError(
          path_,
          "nests dictionaries and lists more than " +
              std::to_string(kMaxDepth) + " deep; expected a file written by " +
              "torch.save.");
    }
    if (is_list) {
      for (size_t i = 0; i < value.items.size(); ++i) {
        const auto number = static_cast<int64_t>(i);
        enter(value.items[i], {place, {}, number}, depth);
      }
      return;
    }
    size_t tensors = 0;
    for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
      const Value& key = pickle_[value.items[i]];
      const Id item = value.items[i + 1];
      if (key.kind == Kind::string) {
        tensors += is_tensor_(pickle_[item]);
        enter(item, {place, key.text}, depth);
      } else if (key.kind == Kind::integer) {
        enter(item, {place, {}, key.integer}, depth);
      } else {
        enter(item, {place, "?"}, depth);
      }
    }
    const bool is_whole = 2 * tensors == value.items.size();
    if (tensors > 0) found.push_back({place, &value, tensors, is_whole});
  }

  void enter(Id id, const Place& place, int depth) {
    if (pickle_[id].items.empty()) return;
    places_.push_back(place);
    visit(id, &places_.back(), depth + 1);
  }

  // The result of PyTorch's Optimizer.state_dict(), or fastai's.
  bool is_optimizer(const Value& value) const {
    return pickle_.find(value, "state") != nullptr &&
           (pickle_.find(value, "param_groups") != nullptr ||
            pickle_.find(value, "hypers") != nullptr);
  }

  const Pickle& pickle_;
  const std::function<bool(const Value&)>& is_tensor_;
  const std::string& path_;
  std::unordered_set<Id> seen_;
  std::deque<Place> places_;  // a deque keeps addresses valid
};

}  // namespace

const Pickle::Value& choose_state_dict(
    const Pickle& pickle,
    const std::string& key,
    const std::function<bool(const Value&)>& is_tensor,
    const std::string& path) {
  const DictFinder finder(pickle, is_tensor, path);
  const std::vector<Found>& found = finder.found;
  if (found.empty()) {
    throw DataError(
        path,
        "contains no dictionary of tensors; expected a file written by "
        "torch.save(model.state_dict(), path).");
  }
  // A checkpoint may have a few tensors beside its only state dict.
  const auto stands_out = [&](const Found& one) {
    return std::ranges::all_of(found, [&](const Found& other) {
      return other.dict == one.dict ||
             (one.is_whole && !other.is_whole && other.tensors < one.tensors);
    });
  };
  std::vector<Found> chosen;
  for (const Found& one : found) {
    if (key.empty() ? stands_out(one) : is_called(one.place, key)) {
      chosen.push_back(one);
    }
  }
  if (chosen.size() == 1) return *chosen[0].dict;
  std::string reason = "contains several dictionaries of tensors: ";
  if (!chosen.empty()) {
    reason = "contains several dictionaries of tensors with that name: ";
  } else if (!key.empty()) {
    reason = "contains no dictionary of tensors " + printable(key) +
             "; expected one of ";
  }
  throw DataError(
      path,
      reason + list_of(chosen.empty() ? found : chosen) +
          (key.empty() ? ". Select one with LoadWeightsOptions::key." : "."));
}

}  // namespace tern
