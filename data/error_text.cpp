#include "tern/data/error_text.h"

#include <c10/util/Exception.h>

namespace tern {

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error ? torch_error->what_without_backtrace() : error.what();
}

}  // namespace tern
