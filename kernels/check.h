#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>

/// Throws a c10::ValueError unless `condition` is true. The message is
/// formatted with fmt and says what was given, what was expected and what to
/// do. Its arguments are evaluated only on failure.
#define TERN_CHECK_VALUE(condition, ...) \
  TORCH_CHECK_VALUE(condition, fmt::format(__VA_ARGS__))
