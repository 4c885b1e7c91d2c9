#pragma once

#include <exception>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "tern/data/formats/error.h"

namespace tern {

/// Returns an error's message without the backtrace of LibTorch's errors and
/// without its tables of an operator's backends.
std::string message_of(const std::exception& error);

/// Returns the first line of the message without its period, to quote in
/// another message.
std::string reason_of(const std::exception& error);

/// Returns shapes and dtypes, such as "[4, 2] Float, [4] Long, undefined".
std::string shapes_of(at::TensorList tensors);

/// Throws a DataError about a file or sample; the reason is formatted with fmt.
template <class... Args>
[[noreturn]] void throw_data_error(
    std::string path,
    fmt::format_string<Args...> reason,
    Args&&... args) {
  throw DataError(
      std::move(path),
      fmt::format(reason, std::forward<Args>(args)...));
}

}  // namespace tern
