#include "tern/data/formats/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "tern/data/formats/error.h"
#include "tern/data/formats/load_bytes.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/utf8.h"

namespace tern {

using namespace pickle_op;  // NOLINT: there are fifty

namespace {

constexpr size_t kMaxValues = 1'000'000;
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

// The machine that a pickle is a program for, with a stack and a memo.
class PickleParser {
 public:
  PickleParser(
      std::span<const uint8_t> bytes,
      std::span<const std::string_view> allowed,
      const std::string& path)
      : bytes_(bytes), allowed_(allowed), path_(path) {}

  Pickle parse() {
    const auto head = take(2);
    if (head[0] != kProto || head[1] < 2 || head[1] > 5) {
      fail("expected a pickle of protocol 2 to 5");
    }
    while (true) {
      const uint8_t op = take(1)[0];
      if (op == kStop) break;
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
        "holds a damaged pickle at byte " + std::to_string(at_) + ": " +
            reason);
  }

  // ---- Input ----

  std::span<const uint8_t> take(uint64_t size) {
    if (size > bytes_.size() - at_) {
      at_ = bytes_.size();
      fail("it is cut off");
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
  std::string_view take_text(uint64_t size) {
    const auto bytes = take(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::string_view take_line() {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), '\n');
    if (end == rest.end()) take(rest.size() + 1);  // fails
    const auto size = static_cast<uint64_t>(end - rest.begin());
    return take_text(size + 1).substr(0, size);
  }

  // ---- Stack and memo ----

  void push(Id id) { stack_.push_back(id); }
  void push(Value value) {
    if (pickle_.values_.size() == kMaxValues) {
      fail("it has more than a million values");
    }
    pickle_.values_.push_back(std::move(value));
    push(static_cast<Id>(pickle_.values_.size() - 1));
  }
  void push_text(Kind kind, std::string_view text) {
    if (kind == Kind::string && !is_utf8(text)) {
      fail("a string that is not UTF-8");
    }
    push({.kind = kind, .text = text});
  }
  void push_integer(int64_t integer) {
    push({.kind = Kind::integer, .integer = integer});
  }
  // Little-endian two's complement of any size.
  void push_long(std::string_view text) {
    if (text.size() > 8) {
      push_text(Kind::big_integer, text);
      return;
    }
    uint64_t number = 0;
    for (size_t i = text.size(); i-- > 0;) {
      number = number << 8 | static_cast<uint8_t>(text[i]);
    }
    const auto unused = static_cast<int>(64 - 8 * text.size());
    push_integer(
        text.empty() ? 0 : static_cast<int64_t>(number << unused) >> unused);
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
  // What was pushed since the last mark.
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) fail("it has no mark");
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
    top();  // something is there
    if (memo_.size() == kMaxValues) fail("its memo is too large");
    memo_[index] = stack_.back();
  }
  void get(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("it reads an empty place of its memo");
    push(found->second);
  }

  // ---- Containers and names ----

  // Adds to the container on top of the stack.
  void extend(Kind kind, const std::vector<Id>& items) {
    Value& container = top();
    if (container.kind != kind || (kind == Kind::dict && items.size() % 2)) {
      fail("it adds to what is no such container");
    }
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  void push_global(std::string_view module, std::string_view name) {
    if (module.size() > kMaxName || name.size() > kMaxName) {
      fail("a name of more than 200 bytes");
    }
    const std::string full = std::string(module) + "." + std::string(name);
    const auto found = std::find(allowed_.begin(), allowed_.end(), full);
    if (found == allowed_.end()) {
      throw DataError(
          path_,
          "mentions " + printable(full) +
              ", which no tensor, container, number or string needs, and is "
              "refused: code of a file is never run. If you trust the file, "
              "load it in Python and save its state_dict alone");
    }
    push({.kind = Kind::global, .text = *found});
  }
  void push_stack_global() {
    const auto names = pop_many(2);
    const Value& module = pickle_.values_[names[0]];
    const Value& name = pickle_.values_[names[1]];
    if (module.kind != Kind::string || name.kind != Kind::string) {
      fail("a name that is no string");
    }
    push_global(module.text, name.text);
  }

  void push_call() {
    std::vector<Id> items = pop_many(2);
    const Value& function = pickle_.values_[items[0]];
    const Value& arguments = pickle_.values_[items[1]];
    if (function.kind != Kind::global || arguments.kind != Kind::tuple) {
      fail("it calls what is no name");
    }
    if (function.text == kOrderedDict) {
      push_ordered_dict(arguments);
    } else {
      push({.kind = Kind::call, .items = std::move(items)});
    }
  }
  // OrderedDict() or, from Python 2, OrderedDict([[key, value], ...]).
  void push_ordered_dict(const Value& arguments) {
    Value dict{.kind = Kind::dict};
    if (!arguments.items.empty()) {
      const Value& pairs = pickle_.values_[arguments.items[0]];
      if (arguments.items.size() > 1 || pairs.kind != Kind::list) {
        fail("an OrderedDict of something else than a list of pairs");
      }
      for (const Id id : pairs.items) {
        const Value& pair = pickle_.values_[id];
        if ((pair.kind != Kind::list && pair.kind != Kind::tuple) ||
            pair.items.size() != 2) {
          fail("an OrderedDict of something else than a list of pairs");
        }
        dict.items.insert(
            dict.items.end(),
            pair.items.begin(),
            pair.items.end());
      }
    }
    push(std::move(dict));
  }
  // The attributes of an object, such as the `_metadata` of a state dict: not
  // needed.
  void drop_state() {
    pop();
    const Kind kind = top().kind;
    if (kind != Kind::dict && kind != Kind::call) {
      fail("it sets attributes of what has none");
    }
  }

  // ---- Operations ----

  void run(uint8_t op) {
    if (run_scalar(op) || run_text(op) || run_container(op)) return;
    switch (op) {
      case kMark:
        if (marks_.size() == kMaxMarks) fail("it nests deeper than 64");
        marks_.push_back(stack_.size());
        return;
      case kPop:
        pop();
        return;
      case kPopMark:
        pop_to_mark();
        return;
      case kGlobal: {
        const std::string_view module = take_line();
        push_global(module, take_line());
        return;
      }
      case kStackGlobal:
        push_stack_global();
        return;
      case kReduce:
        push_call();
        return;
      case kBuild:
        drop_state();
        return;
      case kBinPersId:
        push({.kind = Kind::persistent, .items = {pop()}});
        return;
      case kBinPut:
        put(take_number(1));
        return;
      case kLongBinPut:
        put(take_number(4));
        return;
      case kMemoize:
        put(memo_.size());
        return;
      case kBinGet:
        get(take_number(1));
        return;
      case kLongBinGet:
        get(take_number(4));
        return;
      case kFrame:
        take_number(8);  // its size, which matters to who reads from a pipe
        return;
      default:
        fail(
            "operation " + std::to_string(op) +
            ", which weights do not need and is refused");
    }
  }

  bool run_scalar(uint8_t op) {
    switch (op) {
      case kNone:
        push(Value{});
        return true;
      case kNewTrue:
      case kNewFalse:
        push({.kind = Kind::boolean, .integer = op == kNewTrue});
        return true;
      case kBinInt:
        push_integer(static_cast<int32_t>(take_number(4)));
        return true;
      case kBinInt1:
        push_integer(static_cast<int64_t>(take_number(1)));
        return true;
      case kBinInt2:
        push_integer(static_cast<int64_t>(take_number(2)));
        return true;
      case kLong1:
        push_long(take_text(take_number(1)));
        return true;
      case kLong4:
        push_long(take_text(take_number(4)));
        return true;
      case kBinFloat: {
        const uint8_t* at = take(8).data();
        const uint64_t bits = uint64_t{load_be32(at)} << 32 | load_be32(at + 4);
        push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
        return true;
      }
      default:
        return false;
    }
  }

  bool run_text(uint8_t op) {
    switch (op) {
      case kBinString:
      case kBinUnicode:
        push_text(Kind::string, take_text(take_number(4)));
        return true;
      case kShortBinString:
      case kShortBinUnicode:
        push_text(Kind::string, take_text(take_number(1)));
        return true;
      case kBinUnicode8:
        push_text(Kind::string, take_text(take_number(8)));
        return true;
      case kBinBytes:
        push_text(Kind::bytes, take_text(take_number(4)));
        return true;
      case kShortBinBytes:
        push_text(Kind::bytes, take_text(take_number(1)));
        return true;
      case kBinBytes8:
        push_text(Kind::bytes, take_text(take_number(8)));
        return true;
      default:
        return false;
    }
  }

  bool run_container(uint8_t op) {
    switch (op) {
      case kEmptyTuple:
        push({.kind = Kind::tuple});
        return true;
      case kTuple:
        push({.kind = Kind::tuple, .items = pop_to_mark()});
        return true;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        push(
            {.kind = Kind::tuple,
             .items = pop_many(static_cast<size_t>(op - kTuple1) + 1)});
        return true;
      case kEmptyList:
        push({.kind = Kind::list});
        return true;
      case kList:
        push({.kind = Kind::list, .items = pop_to_mark()});
        return true;
      case kAppend:
        extend(Kind::list, pop_many(1));
        return true;
      case kAppends:
        extend(Kind::list, pop_to_mark());
        return true;
      case kEmptyDict:
        push({.kind = Kind::dict});
        return true;
      case kDict: {
        const auto items = pop_to_mark();
        push({.kind = Kind::dict});
        extend(Kind::dict, items);
        return true;
      }
      case kSetItem:
        extend(Kind::dict, pop_many(2));
        return true;
      case kSetItems:
        extend(Kind::dict, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  std::span<const uint8_t> bytes_;
  std::span<const std::string_view> allowed_;
  const std::string& path_;
  size_t at_ = 0;
  Pickle pickle_;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Id> memo_;
};

Pickle parse_pickle(
    std::span<const uint8_t> bytes,
    std::span<const std::string_view> allowed,
    const std::string& path) {
  return PickleParser(bytes, allowed, path).parse();
}

}  // namespace tern
