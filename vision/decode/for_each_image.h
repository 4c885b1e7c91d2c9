#pragma once

#include <cstdint>
#include <functional>

#include "tern/data/sink.h"

namespace tern {

/// Calls `action(index)` for 0..count-1 on all cores, or on `workers` threads,
/// and reports progress to `sink`, which may be null. Rethrows the first
/// exception once all threads have stopped.
/// \param task  Its name in the progress line.
void for_each_image(
    int64_t count,
    const std::function<void(int64_t index)>& action,
    const char* task,
    const Sink& sink = nullptr,
    int64_t workers = -1);

}  // namespace tern
