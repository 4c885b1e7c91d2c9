#include "tern/data/cache_folder.h"

#include <cstdlib>
#include <string>

#include "tern/data/formats/error.h"

namespace tern {

std::filesystem::path cache_folder(const std::filesystem::path& given) {
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value != nullptr ? value : "");
  };
  if (!given.empty()) return given;
  if (const auto path = environment("TERN_CACHE"); !path.empty()) return path;
  if (const auto path = environment("XDG_CACHE_HOME"); !path.empty()) {
    return path / "tern/data";
  }
  if (const auto path = environment("HOME"); !path.empty()) {
    return path / ".cache/tern/data";
  }
  throw DataError(
      "",
      "[cache_folder] there is no folder to keep data in, since neither "
      "TERN_CACHE nor HOME is set; set TERN_CACHE to one.");
}

}  // namespace tern
