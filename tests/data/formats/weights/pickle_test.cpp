#include "tern/data/formats/weights/pickle.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/pickle_bytes.h"

namespace tern::pickle_test {
namespace {

using Kind = Pickle::Kind;

bool is_allowed(std::string_view name) {
  return name == "torch.Size";
}

// A parsed pickle and the bytes it refers to.
struct Parsed {
  explicit Parsed(const std::string& text)
      : bytes(text.begin(), text.end()),
        pickle(parse_pickle(bytes, is_allowed, "a.pth")) {}
  std::vector<uint8_t> bytes;
  Pickle pickle;
  const Pickle::Value& root() const { return pickle.root(); }
};

void refuses(
    const std::string& bytes,
    std::initializer_list<std::string_view> words) {
  expect_error<DataError>([&] { Parsed parsed(bytes); }, words);
}

TEST(Pickle, ReadsScalars) {
  const auto parse = [](const std::string& body) {
    return Parsed("\x80\x02" + body + ".");
  };
  EXPECT_EQ(parse("N").root().kind, Kind::none);
  EXPECT_EQ(parse("\x88").root().integer, 1);
  EXPECT_EQ(parse("\x89").root().kind, Kind::boolean);
  EXPECT_EQ(parse("K\xff").root().integer, 255);
  EXPECT_EQ(parse("M\xff\xff").root().integer, 65535);
  EXPECT_EQ(parse("J\xff\xff\xff\xff").root().integer, -1);
  EXPECT_EQ(parse(std::string("\x8a\0", 2)).root().integer, 0);
  EXPECT_EQ(parse("\x8a\x01\xff").root().integer, -1);
  EXPECT_EQ(parse(std::string("\x8a\x02\xff\0", 4)).root().integer, 255);
  EXPECT_EQ(
      parse("\x8a\x09" + std::string(9, 'x')).root().kind,
      Kind::big_integer);
  EXPECT_EQ(parse(std::string("G\x3f\xf8\0\0\0\0\0\0", 9)).root().real, 1.5);
  EXPECT_EQ(parse("U\x02hi").root().text, "hi");
  EXPECT_EQ(parse("\x8c\x02hi").root().text, "hi");
  EXPECT_EQ(parse("C\x02\xff\xfe").root().kind, Kind::bytes);
}

TEST(Pickle, ReadsNestedContainersAndTheMemo) {
  // {"a": [1, 2], "b": (1,)} with "a" and 1 from the memo.
  const Parsed parsed(PickleBytes()
                          .op('}')
                          .op('(')
                          .string("a")
                          .op(']')
                          .op('(')
                          .op('K')
                          .op(1)
                          .op('q')
                          .op(7)
                          .op('K')
                          .op(2)
                          .op('e')
                          .string("b")
                          .op('h')
                          .op(7)
                          .op(0x85)
                          .op('u')
                          .finish());
  const Pickle& pickle = parsed.pickle;
  const Pickle::Value* list = pickle.find(pickle.root(), "a");
  const Pickle::Value* tuple = pickle.find(pickle.root(), "b");
  ASSERT_TRUE(list != nullptr && tuple != nullptr);
  EXPECT_EQ(list->kind, Kind::list);
  EXPECT_EQ(pickle[list->items.at(1)].integer, 2);
  EXPECT_EQ(tuple->kind, Kind::tuple);
  EXPECT_EQ(tuple->items.at(0), list->items.at(0));
  EXPECT_EQ(pickle.find(pickle.root(), "c"), nullptr);
  EXPECT_EQ(pickle.find(*list, "a"), nullptr);
}

TEST(Pickle, ReadsAnOrderedDictAsADictWithoutItsAttributes) {
  const Parsed parsed(PickleBytes()
                          .global("collections", "OrderedDict")
                          .op(')')
                          .op('R')
                          .string("a")
                          .op('K')
                          .op(1)
                          .op('s')
                          .op('}')
                          .string("_metadata")
                          .op('}')
                          .op('s')
                          .op('b')
                          .finish());
  EXPECT_EQ(parsed.root().kind, Kind::dict);
  EXPECT_EQ(parsed.pickle.find(parsed.root(), "a")->integer, 1);

  // As written by Python 2: OrderedDict([["a", 1]]).
  const Parsed pairs(PickleBytes()
                         .global("collections", "OrderedDict")
                         .op(']')
                         .op(']')
                         .string("a")
                         .op('a')
                         .op('K')
                         .op(1)
                         .op('a')
                         .op('a')
                         .op(0x85)
                         .op('R')
                         .finish());
  EXPECT_EQ(pairs.pickle.find(pairs.root(), "a")->integer, 1);
}

TEST(Pickle, ParsesCallsWithoutExecutingThem) {
  const Parsed parsed(PickleBytes()
                          .global("torch", "Size")
                          .tuple({2, 3})
                          .op(0x85)
                          .op('R')
                          .finish());
  EXPECT_EQ(parsed.root().kind, Kind::call);
  EXPECT_EQ(parsed.pickle[parsed.root().items[0]].text, "torch.Size");
}

TEST(Pickle, StopsAtItsEndAndReportsThePosition) {
  const Parsed parsed(std::string("\x80\x02N.and more"));
  EXPECT_EQ(parsed.pickle.size(), 4u);
}

TEST(Pickle, RejectsEveryNameThatIsNotAllowed) {
  refuses(
      PickleBytes()
          .global("os", "system")
          .string("touch canary")
          .op(0x85)
          .op('R')
          .finish(),
      {"a.pth", "'os.system'", "rejected"});
  refuses(
      "\x80\x04" + PickleBytes()
                       .string("builtins")
                       .string("eval")
                       .op(0x93)
                       .finish()
                       .substr(2),
      {"'builtins.eval'"});
  refuses(PickleBytes().global("a\x1b[2J", "b").finish(), {"'a\\x1b[2J.b'"});
  refuses(
      PickleBytes().global(std::string(300, 'a'), "b").finish(),
      {"200 bytes"});
}

struct Case {
  const char* name;
  std::string bytes;
  const char* word;
};

class PickleFaults : public testing::TestWithParam<Case> {};

TEST_P(PickleFaults, AreRejected) {
  refuses(GetParam().bytes, {"a.pth", "byte", GetParam().word});
}

std::string body(const std::string& text) {
  return "\x80\x02" + text;
}

INSTANTIATE_TEST_SUITE_P(
    All,
    PickleFaults,
    testing::Values(
        Case{"empty", "", "truncated"},
        Case{"text_protocol", "(dp0\n.", "protocol"},
        Case{"protocol_6", "\x80\x06N.", "protocol"},
        Case{"no_stop", body("N"), "truncated"},
        Case{"nothing", body("."), "stack is empty"},
        Case{"string_cut", body("X\xff\xff\xff\xffhi."), "truncated"},
        Case{
            "string_huge",
            body("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
            "truncated"},
        Case{"string_no_utf8", body("U\x01\xff."), "UTF-8"},
        Case{"line_cut", body("ctorch"), "truncated"},
        Case{"no_mark", body("t."), "no mark"},
        Case{"tuple_of_nothing", body("\x85."), "stack is empty"},
        Case{"below_the_mark", body("N(\x85."), "stack is empty"},
        Case{"memo_empty", body("h\x05."), "memo"},
        Case{"put_nothing", body("q\x05."), "stack is empty"},
        Case{"append_to_none", body("NNa."), "container"},
        Case{"append_to_tuple", body(")Na."), "container"},
        Case{"set_in_list", body("]NNs."), "container"},
        Case{"set_odd", body("}(NNNu."), "container"},
        Case{"call_of_none", body("N)R."), "calls"},
        Case{"call_without_tuple", body("ctorch\nSize\nNR."), "calls"},
        Case{"build_on_list", body("]}b."), "attributes"},
        Case{"instance", body("(ios\nsystem\n."), "unsupported opcode 105"},
        Case{"object", body("ctorch\nSize\n)}\x92."), "unsupported opcode 146"},
        Case{"extension", body("\x82\x01."), "unsupported opcode 130"},
        Case{"text_integer", body("I1\n."), "unsupported opcode 73"},
        Case{"persistent_text", body("Pa\n."), "unsupported opcode 80"},
        Case{"stack_global_of_none", body("NN\x93."), "not a string"},
        Case{
            "ordered_dict_of_none",
            body("ccollections\nOrderedDict\nN\x85R."),
            "pairs"},
        Case{"marks", body(std::string(65, '(')), "deeper than 64"},
        Case{"bomb", body(std::string(1'000'001, 'N') + "."), "million"}),
    [](const auto& info) { return info.param.name; });

TEST(Pickle, RejectsEveryTruncation) {
  const std::string whole =
      PickleBytes().op('}').string("key").integer(1).op('s').finish();
  for (size_t size = 0; size < whole.size(); ++size) {
    refuses(whole.substr(0, size), {"truncated"});
  }
}

TEST(Pickle, AcceptsAValueThatContainsItself) {
  // l = []; l.append(l)
  const Parsed parsed(
      PickleBytes().op(']').op('q').op(0).op('h').op(0).op('a').finish());
  EXPECT_EQ(parsed.root().items.at(0), parsed.pickle.root_id());
}

TEST(Pickle, RejectsAFewBytesThatExpandToMany) {
  std::string pairs;
  for (int i = 0; i < 5'000; ++i) pairs += "NN\x86";
  std::string calls;
  for (int i = 0; i < 1'001; ++i) calls += "h\x01h\x02\x85R0";
  refuses(
      "\x80\x02"
      "ccollections\nOrderedDict\nq\x01"
      "]q\x02(" +
          pairs + "e" + calls + "N.",
      {"10 million items"});
}

}  // namespace
}  // namespace tern::pickle_test
