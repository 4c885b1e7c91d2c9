#include "tern/vision/class_list.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {

std::vector<std::string> read_class_list(const std::filesystem::path& file) {
  constexpr int64_t kMaxBytes = 64 << 20;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return {};
  const std::vector<uint8_t> bytes = read_file(file, kMaxBytes);
  std::vector<std::string> classes;
  std::set<std::string> seen;
  for (auto begin = bytes.begin(); begin != bytes.end();) {
    const auto end = std::find(begin, bytes.end(), '\n');
    classes.emplace_back(begin, end);
    begin = end == bytes.end() ? end : end + 1;
    if (classes.back().empty() || !seen.insert(classes.back()).second) {
      throw DataError(
          file.string(),
          fmt::format(
              "line {} is empty or the name of a class that came before; "
              "expected one name a line. Remove the line, or write the shards "
              "again",
              classes.size()));
    }
  }
  return classes;
}

}  // namespace tern
