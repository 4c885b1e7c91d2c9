#pragma once

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

/// Defines `folder` as the folder of the real data, named by TERN_DATA. Where
/// that is unset the test is skipped, and under CI it fails.
#define TERN_REQUIRE_DATA(folder)                                     \
  if (std::getenv("TERN_DATA") == nullptr) {                          \
    if (std::getenv("CI") != nullptr) {                               \
      FAIL() << "TERN_DATA is not set, and under CI no test is left " \
                "out; set it to the folder with the real data";       \
    }                                                                 \
    GTEST_SKIP() << "TERN_DATA is not set, so there is no real data"; \
  }                                                                   \
  const std::filesystem::path folder(std::getenv("TERN_DATA"))
