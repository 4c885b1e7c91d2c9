#include "tern/data/formats/weights/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

constexpr size_t kMaxValues = 1'000'000;
// A list that is used several times counts each time.
constexpr size_t kMaxItems = 10'000'000;
constexpr size_t kMaxMarks = 64;
constexpr size_t kMaxName = 200;

constexpr std::string_view kOrderedDict = "collections.OrderedDict";

}  // namespace

const Pickle::Value* Pickle::find(const Value& dict, std::string_view key)
    const {
  if (dict.kind != Kind::dict) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& name = values_[dict.items[i]];
    if (name.kind == Kind::string && name.text == key) {
      return &values_[dict.items[i + 1]];
    }
  }
  return nullptr;
}

// The virtual machine of pickle, with a stack and a memo.
class PickleParser {
 public:
  PickleParser(
      std::span<const uint8_t> bytes,
      const std::function<bool(std::string_view)>& is_allowed,
      const std::string& path)
      : bytes_(bytes), is_allowed_(is_allowed), path_(path) {}

  Pickle parse() {
    const auto head = take(2);
    if (head[0] != 0x80 || head[1] < 2 || head[1] > 5) {
      fail("expected a pickle of protocol 2 to 5");
    }
    while (true) {
      const uint8_t op = take(1)[0];
      if (op == '.') break;
      run(op);
    }
    pickle_.root_ = pop();
    pickle_.size_ = at_;
    return std::move(pickle_);
  }

 private:
  using Id = Pickle::Id;
  using Kind = Pickle::Kind;
  using Value = Pickle::Value;

  [[noreturn]] void fail(const std::string& reason) const {
    throw DataError(
        path_,
        "has a damaged pickle at byte " + std::to_string(at_) + ": " + reason +
            ".");
  }

  // ---- Input ----

  std::span<const uint8_t> take(uint64_t size) {
    if (size > bytes_.size() - at_) {
      at_ = bytes_.size();
      fail("it is truncated");
    }
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }
  uint64_t take_number(size_t size) {
    const auto bytes = take(size);
    uint64_t number = 0;
    for (size_t i = size; i-- > 0;) number = number << 8 | bytes[i];
    return number;
  }
  std::string_view take_text(uint64_t size) { return as_text(take(size)); }
  std::string_view take_line() {
    const size_t end = as_text(bytes_).find('\n', at_);
    // Fails if there is no line break.
    const size_t size = std::min(end, bytes_.size()) - at_;
    return take_text(size + 1).substr(0, size);
  }

  // ---- Stack and memo ----

  void push(Id id) { stack_.push_back(id); }
  void push(Value value) {
    if (pickle_.values_.size() == kMaxValues) {
      fail("it has more than a million values");
    }
    count_items(value.items.size());
    pickle_.values_.push_back(std::move(value));
    push(static_cast<Id>(pickle_.values_.size() - 1));
  }
  void push_text(Kind kind, std::string_view text) {
    if (kind == Kind::string && !is_utf8(text)) {
      fail("a string is not UTF-8");
    }
    push({.kind = kind, .text = text});
  }
  void push_integer(int64_t integer) {
    push({.kind = Kind::integer, .integer = integer});
  }
  // Little-endian two's complement of any size.
  void push_long(uint64_t size) {
    if (size > 8) return push_text(Kind::big_integer, take_text(size));
    const auto unused = static_cast<int>(64 - 8 * size);
    const uint64_t number = take_number(size);
    push_integer(
        size == 0 ? 0 : static_cast<int64_t>(number << unused) >> unused);
  }

  Id pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
      fail("its stack is empty");
    }
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Value& top() {
    const Id id = pop();
    push(id);
    return pickle_.values_[id];
  }
  // Returns the values pushed since the last mark.
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) fail("its stack has no mark");
    const auto begin =
        stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Id> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<Id> pop_many(size_t count) {
    std::vector<Id> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  void put(uint64_t index) {
    top();  // checks that the stack is not empty
    if (memo_.size() == kMaxValues) fail("its memo is too large");
    memo_[index] = stack_.back();
  }
  void get(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("it reads an empty memo entry");
    push(found->second);
  }

  // ---- Containers and names ----

  // Adds to the container on top of the stack.
  void extend(Kind kind, const std::vector<Id>& items) {
    Value& container = top();
    if (container.kind != kind || (kind == Kind::dict && items.size() % 2)) {
      fail("it adds items to a value that is not a matching container");
    }
    container.items.insert(container.items.end(), items.begin(), items.end());
    count_items(items.size());
  }
  void count_items(size_t more) {
    items_ += more;
    if (items_ > kMaxItems) fail("its lists have more than 10 million items");
  }

  void push_global(std::string_view module, std::string_view name) {
    if (module.size() > kMaxName || name.size() > kMaxName) {
      fail("a name has more than 200 bytes");
    }
    const std::string full = std::string(module) + "." + std::string(name);
    if (full != kOrderedDict && !(is_allowed_ && is_allowed_(full))) {
      throw DataError(
          path_,
          "refers to " + printable(full) +
              ", which is not needed for tensors, containers, numbers or "
              "strings, and is rejected: code in a file is never run. If you "
              "trust the file, load it in Python and save only its "
              "state_dict.");
    }
    push({.kind = Kind::global, .text = *pickle_.names_.insert(full).first});
  }
  void push_stack_global() {
    const auto names = pop_many(2);
    const Value& module = pickle_.values_[names[0]];
    const Value& name = pickle_.values_[names[1]];
    if (module.kind != Kind::string || name.kind != Kind::string) {
      fail("a name is not a string");
    }
    push_global(module.text, name.text);
  }

  void push_call() {
    std::vector<Id> items = pop_many(2);
    const Value& function = pickle_.values_[items[0]];
    const Value& arguments = pickle_.values_[items[1]];
    if (function.kind != Kind::global || arguments.kind != Kind::tuple) {
      fail("it calls a value that is not a name");
    }
    if (function.text == kOrderedDict) {
      push_ordered_dict(arguments);
    } else {
      push({.kind = Kind::call, .items = std::move(items)});
    }
  }
  // OrderedDict(), or in files from Python 2 OrderedDict([[key, value], ...]).
  void push_ordered_dict(const Value& arguments) {
    Value dict{.kind = Kind::dict};
    if (!arguments.items.empty()) {
      const Value& pairs = pickle_.values_[arguments.items[0]];
      const auto expect = [&](bool is_so) {
        if (!is_so) fail("an OrderedDict is not built from a list of pairs");
      };
      expect(arguments.items.size() == 1 && pairs.kind == Kind::list);
      for (const Id id : pairs.items) {
        const Value& pair = pickle_.values_[id];
        expect(pair.kind == Kind::list || pair.kind == Kind::tuple);
        expect(pair.items.size() == 2);
        dict.items.push_back(pair.items[0]);
        dict.items.push_back(pair.items[1]);
      }
    }
    push(std::move(dict));
  }
  // Drops the attributes of an object, which are not needed, such as the
  // `_metadata` of a state dict.
  void drop_state() {
    pop();
    const Kind kind = top().kind;
    if (kind != Kind::dict && kind != Kind::call) {
      fail("it sets attributes of a value without attributes");
    }
  }

  // ---- Operations ----

  void run(uint8_t op) {
    switch (op) {
      // Scalars, with their number of bytes.
      case 'N':  // NONE
        return push(Value{});
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        return push({.kind = Kind::boolean, .integer = op == 0x88});
      case 'J':  // BININT
        return push_integer(static_cast<int32_t>(take_number(4)));
      case 'K':  // BININT1
        return push_integer(static_cast<int64_t>(take_number(1)));
      case 'M':  // BININT2
        return push_integer(static_cast<int64_t>(take_number(2)));
      case 0x8a:  // LONG1
        return push_long(take_number(1));
      case 0x8b:  // LONG4
        return push_long(take_number(4));
      case 'G': {  // BINFLOAT
        const uint64_t high = load_be32(take(4).data());
        const uint64_t bits = high << 32 | load_be32(take(4).data());
        return push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
      }

      // Strings and bytes, with the number of bytes of their size field.
      case 'U':   // SHORT_BINSTRING
      case 0x8c:  // SHORT_BINUNICODE
        return push_text(Kind::string, take_text(take_number(1)));
      case 'T':  // BINSTRING
      case 'X':  // BINUNICODE
        return push_text(Kind::string, take_text(take_number(4)));
      case 0x8d:  // BINUNICODE8
        return push_text(Kind::string, take_text(take_number(8)));
      case 'C':  // SHORT_BINBYTES
        return push_text(Kind::bytes, take_text(take_number(1)));
      case 'B':  // BINBYTES
        return push_text(Kind::bytes, take_text(take_number(4)));
      case 0x8e:  // BINBYTES8
        return push_text(Kind::bytes, take_text(take_number(8)));

      // Containers.
      case ')':  // EMPTY_TUPLE
        return push({.kind = Kind::tuple});
      case 't':  // TUPLE
        return push({.kind = Kind::tuple, .items = pop_to_mark()});
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return push({.kind = Kind::tuple, .items = pop_many(op - 0x84)});
      case ']':  // EMPTY_LIST
        return push({.kind = Kind::list});
      case 'l':  // LIST
        return push({.kind = Kind::list, .items = pop_to_mark()});
      case 'a':  // APPEND
        return extend(Kind::list, pop_many(1));
      case 'e':  // APPENDS
        return extend(Kind::list, pop_to_mark());
      case '}':  // EMPTY_DICT
        return push({.kind = Kind::dict});
      case 'd': {  // DICT
        const auto items = pop_to_mark();
        push({.kind = Kind::dict});
        return extend(Kind::dict, items);
      }
      case 's':  // SETITEM
        return extend(Kind::dict, pop_many(2));
      case 'u':  // SETITEMS
        return extend(Kind::dict, pop_to_mark());

      // Names, calls and storages.
      case 'c': {  // GLOBAL
        const std::string_view module = take_line();
        return push_global(module, take_line());
      }
      case 0x93:  // STACK_GLOBAL
        return push_stack_global();
      case 'R':   // REDUCE
      case 0x81:  // NEWOBJ: of a class
        return push_call();
      case 'b':  // BUILD
        return drop_state();
      case 'Q':  // BINPERSID
        return push({.kind = Kind::persistent, .items = {pop()}});

      // Stack and memo.
      case '(':  // MARK
        if (marks_.size() == kMaxMarks) fail("it nests deeper than 64");
        return marks_.push_back(stack_.size());
      case '0':  // POP
        return static_cast<void>(pop());
      case '1':  // POP_MARK
        return static_cast<void>(pop_to_mark());
      case 'q':  // BINPUT
        return put(take_number(1));
      case 'r':  // LONG_BINPUT
        return put(take_number(4));
      case 0x94:  // MEMOIZE
        return put(memo_.size());
      case 'h':  // BINGET
        return get(take_number(1));
      case 'j':  // LONG_BINGET
        return get(take_number(4));
      case 0x95:  // FRAME: a size, used only when reading from a pipe
        return static_cast<void>(take(8));
      default:
        fail(
            "unsupported opcode " + std::to_string(op) +
            ", which weights do not need");
    }
  }

  std::span<const uint8_t> bytes_;
  const std::function<bool(std::string_view)>& is_allowed_;
  const std::string& path_;
  size_t at_ = 0, items_ = 0;
  Pickle pickle_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Id> memo_;
};

Pickle parse_pickle(
    std::span<const uint8_t> bytes,
    const std::function<bool(std::string_view name)>& is_allowed,
    const std::string& path) {
  return PickleParser(bytes, is_allowed, path).parse();
}

}  // namespace tern
