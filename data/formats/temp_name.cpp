#include "tern/data/formats/temp_name.h"

#include "tern/data/formats/random_id.h"

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
  return fs::absolute(target).parent_path() /
         (temp_prefix(target) + random_id());
}

}  // namespace tern
