#pragma once

#include <exception>
#include <string>

namespace tern {

/// What to show a person of an error: its sentence, without the backtrace that
/// LibTorch's errors carry.
std::string message_of(const std::exception& error);

}  // namespace tern
