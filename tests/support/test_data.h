#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tern/data/download/untar_data.h"

/// Defines `folder` as the folder of the real data, from TERN_DATA. If it is
/// not set, the test is skipped; under CI it fails, unless TERN_DATA_OPTIONAL
/// states that the data is not available there.
#define TERN_REQUIRE_DATA(folder)                                         \
  if (std::getenv("TERN_DATA") == nullptr) {                              \
    if (std::getenv("CI") && !std::getenv("TERN_DATA_OPTIONAL")) {        \
      FAIL() << "TERN_DATA is not set, and under CI no test is skipped; " \
                "set it to the folder with the real data, or "            \
                "TERN_DATA_OPTIONAL=1 where there is none";               \
    }                                                                     \
    GTEST_SKIP() << "TERN_DATA is not set, so there is no real data";     \
  }                                                                       \
  const std::filesystem::path folder(std::getenv("TERN_DATA"))

namespace tern {

/// The folder with the content of an archive of the real data. It is extracted
/// once for all tests of a build; do not write to it.
inline std::filesystem::path unpacked(const std::filesystem::path& archive) {
  const std::string name = archive.stem().string();
  const std::string url = "https://none/" + archive.filename().string();
  const DatasetFile file{.url = url, .sha256 = {}};
  return untar_data(
      {name, {&file, 1}},
      {.data = archive.parent_path(), .allow_download = false});
}

}  // namespace tern
