#include "tern/data/formats/sha256.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"

namespace tern::sha256_test {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

struct Case {
  std::string text, digest;
};

// FIPS 180-4 examples, and the empty message of NIST's CAVP.
TEST(Sha256, MatchesTheTestVectorsOfNist) {
  const std::vector<Case> cases = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc",
       "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
       "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(sha256(bytes_of(c.text)), c.digest) << c.text.size() << " bytes";
  }
}

TEST(Sha256, IsTheSameForAnySplitOfTheBytes) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t length = 0; length < text.size(); ++length) {
    const auto bytes = bytes_of(text).first(length);
    const std::string whole = sha256(bytes);
    for (const size_t piece : {1, 13, 63, 64, 65, 128}) {
      Sha256 hash;
      for (size_t i = 0; i < length; i += piece) {
        hash.update(bytes.subspan(i, std::min(piece, length - i)));
      }
      ASSERT_EQ(hash.hex_digest(), whole) << length << " by " << piece;
    }
  }
}

TEST(Sha256, CanContinueAfterADigest) {
  Sha256 hash;
  hash.update(bytes_of("a"));
  EXPECT_NE(hash.hex_digest(), sha256(bytes_of("abc")));
  hash.update(bytes_of("bc"));
  EXPECT_EQ(hash.hex_digest(), sha256(bytes_of("abc")));
}

TEST(Sha256, ReadsAFileInPieces) {
  const TempFolder temp;
  const std::string text(700'001, 'x');
  write_file(temp / "x", text);
  EXPECT_EQ(sha256_file(temp / "x"), sha256(bytes_of(text)));
}

TEST(Sha256, RejectsPathsThatAreNotFiles) {
  const TempFolder temp;
  expect_error<IoError>([&] { sha256_file(temp / "none"); }, {"No such file"});
  expect_error<DataError>([&] { sha256_file(temp.path()); }, {"is a folder"});
  expect_error<DataError>([&] { sha256_file("/dev/zero"); }, {"a device"});
}

Sha256Sums parse(const std::string& text) {
  return parse_sha256sums(
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()},
      "SHA256SUMS");
}

const std::string kSum(64, 'a');

TEST(Sha256Sums, ReadsItsOwnListsAndThoseOfSha256sum) {
  const Sha256Sums sums = {{"b.tar", kSum}, {"a b.tar", std::string(64, '0')}};
  EXPECT_EQ(parse(to_text(sums)), sums);
  EXPECT_EQ(parse(kSum + " *binary.tar").at("binary.tar"), kSum);
  EXPECT_TRUE(parse("").empty());
}

TEST(Sha256Sums, ReadsPathsWithEscapesWherePathsAreAllowed) {
  const Sha256Sums sums = {{"a/b\\c\nd.png", kSum}, {"e.png", kSum}};
  const std::string text = to_text(sums);
  EXPECT_EQ(text, "\\" + kSum + "  a/b\\\\c\\nd.png\n" + kSum + "  e.png\n");
  const auto parse_paths = [](const std::string& list) {
    return parse_sha256sums(
        {reinterpret_cast<const uint8_t*>(list.data()), list.size()},
        "LIST",
        SumNames::paths);
  };
  EXPECT_EQ(parse_paths(text), sums);
  expect_error<DataError>([&] { parse(text); }, {"line 1 "});
  expect_error<DataError>(
      [&] { parse_paths(text.substr(0, text.size() - 1)); },
      {"line 2 "});
}

TEST(Sha256Sums, NamesAnInvalidLine) {
  const std::string good = kSum + "  a.tar\n";
  for (const std::string& bad :
       {std::string("x"),
        kSum,
        kSum + "  ",
        std::string(64, 'A') + "  b.tar",
        kSum + "  ../b.tar",
        kSum + "  c/b.tar",
        kSum + "\tb.tar",
        kSum + "  a.tar",
        std::string()}) {
    expect_error<DataError>(
        [&] { parse(good + bad + "\n" + good); },
        {"SHA256SUMS: line 2 "});
  }
}

}  // namespace
}  // namespace tern::sha256_test
