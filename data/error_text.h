#pragma once

#include <exception>
#include <string>

#include "tern/data/batch.h"

namespace tern {

/// What to show a person of an error: its sentence, without the backtrace that
/// LibTorch's errors carry.
std::string message_of(const std::exception& error);

/// The first line of it, to stand within another sentence.
std::string reason_of(const std::exception& error);

/// "[4, 2] Float, [4] Long, undefined".
std::string shapes_of(const Tensors& tensors);

}  // namespace tern
