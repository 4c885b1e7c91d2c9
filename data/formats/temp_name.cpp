#include "tern/data/formats/temp_name.h"

#include <cstdio>
#include <random>

namespace tern {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxStem = 200;  // a name has at most 255 bytes

}  // namespace

std::string temp_prefix(const fs::path& target) {
  std::string prefix = ".";  // `+=`, for GCC 12 warns of `"." + string`
  prefix += target.filename().string().substr(0, kMaxStem) + ".tmp-";
  return prefix;
}

fs::path temp_name_beside(const fs::path& target) {
  std::random_device random;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return fs::absolute(target).parent_path() / (temp_prefix(target) + text);
}

}  // namespace tern
