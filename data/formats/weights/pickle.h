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

/// The values of a Python pickle, parsed but never executed: a call to a global
/// is a value like any other. Values refer to each other by number, so a value
/// may occur in several places, or even in itself; limit the depth when you
/// follow these references.
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
    dict,        // also an OrderedDict
    global,      // a name that is not called
    call,        // to a global, with arguments
    persistent,  // a storage written by `torch.save`
  };

  struct Value {
    Kind kind = Kind::none;
    int64_t integer = 0;  // also for boolean
    double real = 0;
    /// string, bytes, big_integer: a view of the parsed bytes. global: a view
    /// of its name, "torch.FloatStorage", which the Pickle stores.
    std::string_view text = {};
    /// tuple, list: elements. dict: key, value, key, value. call: the global
    /// and the tuple of arguments. persistent: the id.
    std::vector<Id> items = {};
  };

  const Value& operator[](Id id) const { return values_[id]; }
  const Value& root() const { return values_[root_]; }
  Id root_id() const { return root_; }
  const std::vector<Value>& values() const { return values_; }

  /// Number of input bytes of the pickle, including its STOP.
  size_t size() const { return size_; }

  /// Returns the value of a dict for a string key; null if there is none or if
  /// `dict` is not a dict.
  const Value* find(const Value& dict, std::string_view key) const;

 private:
  friend class PickleParser;

  std::vector<Value> values_;
  std::set<std::string> names_;  // of globals
  Id root_ = 0;
  size_t size_ = 0;
};

/// Parses a pickle of protocol 2 to 5 at the start of `bytes`, which must
/// outlive the result; ignores everything after its STOP. Supports the
/// operations that `torch.save` uses for containers, tensors, numbers and
/// strings.
///
/// \param is_allowed  Returns true if the pickle may mention a name such as
///                    "torch.FloatStorage". Null: only
///                    "collections.OrderedDict" is allowed. A call to it
///                    becomes a dict.
/// \param path        For error messages.
/// \throws DataError if it is damaged or truncated, mentions a name that is not
///         allowed, contains an operation that weight files do not use, nests
///         deeper than 64, or has more than a million values.
///
/// Source: CPython's Lib/pickletools.py.
Pickle parse_pickle(
    std::span<const uint8_t> bytes,
    const std::function<bool(std::string_view name)>& is_allowed,
    const std::string& path);

}  // namespace tern
