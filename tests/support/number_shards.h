#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tern/data/formats/archives/tar_write.h"

namespace tern {

/// Writes shards s-0.tar, s-1.tar, ... of consecutively numbered samples:
/// 0007.cls contains 7, 0007.txt "seven is 7".
/// \param sizes  Samples per shard. \return the shards' paths.
inline std::vector<std::string> write_number_shards(
    const std::filesystem::path& folder,
    const std::vector<int>& sizes) {
  std::vector<std::string> paths;
  int number = 0;
  for (size_t shard = 0; shard < sizes.size(); ++shard) {
    paths.push_back((folder / fmt::format("s-{}.tar", shard)).string());
    TarWriter tar(paths.back());
    for (int i = 0; i < sizes[shard]; ++i, ++number) {
      tar.add(fmt::format("{:04}.cls", number), fmt::format("{}\n", number));
      tar.add(fmt::format("{:04}.txt", number), fmt::format("is {}", number));
    }
    tar.finish();
  }
  return paths;
}

}  // namespace tern
