#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// Values of a Python pickle, taken apart and never run: a call of a global is
/// a value like any other. Values refer to each other by number, so a value may
/// be in several places, or even in itself; follow them with a bound.
class Pickle {
 public:
  using Id = uint32_t;

  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    big_integer,  // of more than 64 bits
    real,
    string,
    bytes,
    tuple,
    list,
    dict,        // an OrderedDict too
    global,      // a name that was not called
    call,        // of a global with arguments
    persistent,  // what `torch.save` puts for a storage
  };

  struct Value {
    Kind kind = Kind::none;
    int64_t integer = 0;  // of a boolean too
    double real = 0;
    /// Of string, bytes, big_integer: a view of the bytes parsed. Of global: a
    /// view of its name, "torch.FloatStorage", which the Pickle holds.
    std::string_view text = {};
    /// tuple, list: elements. dict: key, value, key, value. call: the global
    /// and the tuple of arguments. persistent: the id.
    std::vector<Id> items = {};
  };

  const Value& operator[](Id id) const { return values_[id]; }
  const Value& root() const { return values_[root_]; }
  Id root_id() const { return root_; }
  const std::vector<Value>& values() const { return values_; }

  /// How many bytes of the input the pickle took, up to and with its STOP.
  size_t size() const { return size_; }

  /// The value of a dict by a key that is a string; null if there is none, or
  /// if `dict` is none.
  const Value* find(const Value& dict, std::string_view key) const;

 private:
  friend class PickleParser;

  std::vector<Value> values_;
  std::set<std::string> names_;  // of globals
  Id root_ = 0;
  size_t size_ = 0;
};

/// Parses a pickle of protocol 2 to 5 at the start of `bytes`, which must
/// outlive it; what follows its STOP is left alone. Knows the operations that
/// `torch.save` uses for containers, tensors, numbers and strings.
///
/// \param is_allowed  Whether the pickle may mention a name such as
///     "torch.FloatStorage". Null: none but "collections.OrderedDict", a call
///     of which becomes a dict.
/// \param path  For error messages.
/// \throws DataError if it is damaged or cut off, mentions another name, holds
///         an operation of no use for weights, nests deeper than 64, or has
///         more than a million values.
///
/// Source: CPython's Lib/pickletools.py.
Pickle parse_pickle(
    std::span<const uint8_t> bytes,
    const std::function<bool(std::string_view name)>& is_allowed,
    const std::string& path);

}  // namespace tern
