#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>

/// Throws a c10::ValueError unless `condition` holds, with a sentence of
/// `fmt::format`: what was given, what was expected, what to do. Its arguments
/// are evaluated only then.
#define TERN_CHECK_VALUE(condition, ...) \
  TORCH_CHECK_VALUE(condition, fmt::format(__VA_ARGS__))
