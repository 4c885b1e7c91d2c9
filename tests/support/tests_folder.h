#pragma once

#include <filesystem>
#include <string>

namespace tern {

extern const char* const kTestsFolder;  // defined in a file that CMake writes

/// The path of tests/`name`, such as "vision/golden".
inline std::filesystem::path in_tests_folder(const std::string& name) {
  return std::filesystem::path(kTestsFolder) / name;
}

}  // namespace tern
