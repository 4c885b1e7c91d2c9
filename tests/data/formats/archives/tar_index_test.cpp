#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/archives/tar_read.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/gzip_bytes.h"
#include "tern/tests/support/tar_bytes.h"

namespace tern::tar_index_test {
namespace {

using Bytes = std::vector<uint8_t>;

std::vector<TarMember> index_of(const Bytes& bytes) {
  return read_tar_index(ByteFile(bytes, "a.tar"));
}

std::string content(const Bytes& bytes, const TarMember& member) {
  const Bytes found = ByteFile(bytes, "a.tar").read(member.offset, member.size);
  return {found.begin(), found.end()};
}

Bytes small_tar() {
  return TarBytes()
      .add("cat/", "", '5')
      .add("cat/1.jpg", std::string(5000, 'j'))
      .add("cat/1.cls", "3")
      .add("empty.txt", "")
      .finish()
      .bytes;
}

TEST(TarIndex, LocatesEachFile) {
  const Bytes bytes = small_tar();
  const auto members = index_of(bytes);
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].name, "cat/1.jpg");
  EXPECT_EQ(content(bytes, members[0]), std::string(5000, 'j'));
  EXPECT_EQ(members[1].name, "cat/1.cls");
  EXPECT_EQ(content(bytes, members[1]), "3");
  EXPECT_EQ(members[2].name, "empty.txt");
  EXPECT_EQ(members[2].size, 0u);
}

TEST(TarIndex, ReadsLongNamesOfBothKinds) {
  const std::string name = std::string(150, 'n') + "/1.jpg";
  const std::string record = " path=" + name + "\n";
  const std::string pax = std::to_string(record.size() + 3) + record;
  for (const Bytes& bytes :
       {TarBytes().add("x", pax, 'x').add("1.jpg", "pax").finish().bytes,
        TarBytes()
            .add("././@LongLink", name + '\0', 'L')
            .add("1.jpg", "gnu")
            .finish()
            .bytes}) {
    const auto members = index_of(bytes);
    ASSERT_EQ(members.size(), 1u);
    EXPECT_EQ(members[0].name, name);
    EXPECT_EQ(content(bytes, members[0]).size(), 3u);
  }
}

TEST(TarIndex, RejectsASizeThatReachesIntoTheNextFile) {
  for (const char* key :
       {"SCHILY.realsize", "GNU.sparse.size", "GNU.sparse.realsize"}) {
    const Bytes bytes = TarBytes()
                            .add_pax({{key, "2000"}})
                            .add("1.cls", "7")
                            .add("2.txt", std::string(5000, 's'))
                            .finish()
                            .bytes;
    expect_error<DataError>(
        [&] { index_of(bytes); },
        {"a.tar: ", "'1.cls'", "its size differs"});
  }
}

TEST(TarIndex, RejectsEveryTruncation) {
  const Bytes whole = small_tar();
  // A single empty block is a sufficient end marker.
  for (size_t size = 0; size + 512 < whole.size(); size += 256) {
    const Bytes cut(whole.begin(), whole.begin() + size);
    EXPECT_THROW(index_of(cut), DataError) << size << " bytes";
  }
}

TEST(TarIndex, NamesTheLastCompleteFileOfATruncatedArchive) {
  const Bytes whole = small_tar();
  const auto at = static_cast<std::ptrdiff_t>(index_of(whole)[1].offset);
  const Bytes cut(whole.begin(), whole.begin() + at);
  expect_error<DataError>(
      [&] { index_of(cut); },
      {"a.tar: is truncated inside its entry 'cat/1.cls'",
       "the last complete file is 'cat/1.jpg'"});
}

TEST(TarIndex, RejectsEntriesThatShardsMustNotContain) {
  struct Case {
    const char* name;
    char type;
    const char* words;
  };
  for (const Case& bad : std::vector<Case>{
           {"../x", '0', "leads out of the folder"},
           {"/etc/x", '0', "absolute path"},
           {"x", '2', "symbolic link"},
           {"x", '1', "hard link"},
           {"x", '3', "device"},
           {"x", '6', "device, a pipe"}}) {
    const Bytes bytes =
        TarBytes().add(bad.name, "", bad.type, "y").finish().bytes;
    expect_error<DataError>([&] { index_of(bytes); }, {"a.tar", bad.words});
  }
}

TEST(TarIndex, RejectsCompressedAndConcatenatedArchives) {
  expect_error<DataError>(
      [] { index_of(gzip_bytes(small_tar())); },
      {"compressed with gzip", "Unpack it"});
  Bytes joined = small_tar();
  const Bytes second = small_tar();
  joined.insert(joined.end(), second.begin(), second.end());
  expect_error<DataError>(
      [&] { index_of(joined); },
      {"has data after the end-of-archive marker"});
}

TEST(TarIndex, RejectsMoreEntriesThanAllowed) {
  const Bytes bytes = small_tar();
  expect_error<DataError>(
      [&] { read_tar_index(ByteFile(bytes, "a.tar"), /*max_members=*/3); },
      {"more than the 3 entries"});
}

// Sizes in base 256 can be as large as 2^95.
TEST(TarIndex, RejectsASizeBeyondTheFile) {
  for (const int first : {0x80, 0xff}) {
    for (const int byte : {0x00, 0x01, 0x7f, 0xff}) {
      char header[512] = {};
      std::snprintf(header, 100, "1.jpg");
      std::memset(header + 124, byte, 12);
      header[124] = static_cast<char>(first);
      header[156] = '0';
      std::memcpy(header + 257, "ustar\00000", 8);
      const Bytes bytes =
          TarBytes().add_raw(header, std::string(512, 'x')).finish().bytes;
      if (first == 0x80 && byte == 0x00) continue;  // an empty file, then junk
      EXPECT_THROW(index_of(bytes), DataError) << first << " " << byte;
    }
  }
}

TEST(TarIndex, ReturnsOnlyMembersInsideTheFileForAnyHeader) {
  const Bytes whole =
      TarBytes().add("1.jpg", "content").add("1.cls", "7").finish().bytes;
  for (size_t at = 0; at < 512; ++at) {
    for (const int value : {0x00, 0x39, 0xff}) {
      Bytes changed = whole;
      changed[at] = static_cast<uint8_t>(value);
      char header[512];
      std::copy_n(changed.begin(), 512, header);
      const Bytes fixed = TarBytes().add_raw(header, "").bytes;
      std::copy(fixed.begin(), fixed.end(), changed.begin());
      try {
        for (const TarMember& member : index_of(changed)) {
          EXPECT_LE(member.offset + member.size, changed.size()) << at;
        }
      } catch (const DataError&) {
      }
    }
  }
}

}  // namespace
}  // namespace tern::tar_index_test
