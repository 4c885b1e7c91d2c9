#include "tern/data/formats/error.h"

#include <system_error>

namespace tern {

IoError::IoError(const std::string& path, const std::string& action, int error)
    : DataError(
          path,
          "cannot " + action + ": " + std::generic_category().message(error) +
              " (errno " + std::to_string(error) + ")"),
      error_(error) {}

}  // namespace tern
