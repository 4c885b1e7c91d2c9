// Training on tar shards: several processes, a resume in mid-epoch, and a shard
// that is truncated.
#include "tern/data/shards/tar_shards.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tern/callbacks/distributed.h"
#include "tern/data/formats/archives/tar_write.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/sampler.h"
#include "tern/tests/support/exact_resume.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/npy_bytes.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::tar_shards_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
namespace fs = std::filesystem;

const DistributedOptions kQuick = {
    .group = {.timeout = std::chrono::seconds(30)}};

// Writes five shards with 100 points in total, above or below a line.
void write_points(const fs::path& folder) {
  int point = 0;
  for (int shard = 0; shard < 5; ++shard) {
    TarWriter tar(folder / fmt::format("p-{}.tar", shard));
    for (int i = 0; i < 10 + 5 * shard; ++i, ++point) {
      const float angle = 2.4f * static_cast<float>(point);
      const float at[] = {std::cos(angle), std::sin(angle)};
      const auto npy = npy_bytes(
          "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
          std::string(reinterpret_cast<const char*>(at), sizeof at));
      const std::string key = fmt::format("{:03}", point);
      tar.add(key + ".npy", npy);
      tar.add(key + ".cls", at[0] + at[1] > 0 ? "1" : "0");
    }
    tar.finish();
  }
}

DataBunch points_in(const fs::path& folder) {
  const auto points = TarDataset::from({(folder / "p-{0..4}.tar").string()});
  DataBunch data;
  data.train = std::make_shared<DataLoader>(
      points,
      DataLoaderOptions{
          .batch_size = 8,
          .training = true,
          .sampler = std::make_shared<BufferedSampler>(
              points->shards()->shard_sizes(),
              /*buffer=*/12),
          .workers = 1});
  data.device = torch::kCPU;
  return data;
}

TEST(TarShards, ResumeBitIdenticallyInMidEpochOnAllRanks) {
  const TempFolder folder;
  write_points(folder.path());
  const auto make = [&] {
    auto learn = std::make_unique<Learner>(
        points_in(folder.path()),
        point_net(),
        quiet());
    learn->to_distributed(kQuick);
    return learn;
  };
  expect_exact_resume_on_ranks(folder, make);
}

TEST(TarShards, ReportAShardTruncatedOnOneRankOnAllRanks) {
  const TempFolder folder;
  for (const char* rank : {"0", "1"}) {
    make_folders(folder / rank);
    write_points(folder / rank);
  }
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const fs::path mine = folder / std::to_string(environment.rank);
    Learner learn(points_in(mine), point_net(), quiet());
    learn.to_distributed(kQuick);
    learn.add<LambdaCallback>({.on_epoch_begin = [&](Learner&) {
      // The shard is already open.
      if (environment.rank == 1) fs::resize_file(mine / "p-4.tar", 0);
    }});
    if (environment.rank == 1) {
      expect_error<DataError>(
          [&] { learn.fit(1, 1e-2); },
          {"p-4.tar", "was changed or replaced"});
    } else {
      expect_error<DistributedError>(
          [&] { learn.fit(1, 1e-2); },
          {"rank 1 ended with", "p-4.tar"});
    }
  });
}

}  // namespace
}  // namespace tern::tar_shards_test
