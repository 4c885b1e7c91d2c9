#include "tern/data/formats/archives/tar_shard.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::tar_shard_test {
namespace {

using Samples = std::vector<std::vector<std::string>>;

Samples samples_of(const std::vector<std::string>& names) {
  std::vector<TarMember> members;
  for (const std::string& name : names) members.push_back({name, 0, 0});
  Samples samples;
  for (const auto& sample : tar_samples(members, "a.tar")) {
    samples.emplace_back();
    for (const TarMember& m : sample) samples.back().push_back(m.name);
  }
  return samples;
}

TEST(TarSamples, SplitsANameAtTheFirstDotOfItsBaseName) {
  EXPECT_EQ(sample_key("cat/0012.seg.png"), "cat/0012");
  EXPECT_EQ(sample_field("cat/0012.seg.png"), "seg.png");
  EXPECT_EQ(sample_key("v1.2/0012.jpg"), "v1.2/0012");
  EXPECT_EQ(sample_field("v1.2/0012.jpg"), "jpg");
  for (const char* none : {"README", "a/.hidden.jpg", "x.", "v1.2/name"}) {
    EXPECT_EQ(sample_field(none), "") << none;
  }
}

TEST(TarSamples, GroupsFilesByKey) {
  const Samples samples = samples_of(
      {"README", "1.jpg", "1.cls", "._1.jpg", "2.cls", "2.JPG", "a/2.cls"});
  EXPECT_EQ(
      samples,
      (Samples{{"1.jpg", "1.cls"}, {"2.cls", "2.JPG"}, {"a/2.cls"}}));
  EXPECT_TRUE(is_same_field("JPG", "jpg"));
  EXPECT_FALSE(is_same_field("jpg", "jpeg"));
}

TEST(TarSamples, RejectsSplitAndRepeatedSamples) {
  expect_error<DataError>(
      [] {
        samples_of({"1.jpg", "2.jpg", "1.cls"});
      },
      {"a.tar", "sample '1' are not adjacent", "1.cls", "--sort=name"});
  expect_error<DataError>(
      [] {
        samples_of({"1.jpg", "1.cls", "1.JPG"});
      },
      {"'1.JPG' twice"});
}

}  // namespace
}  // namespace tern::tar_shard_test
