#pragma once

#include "tern/data/formats/archives/tar_read.h"
#include "tern/data/support/sink.h"

namespace tern {

/// Returns a function that shows the progress of a download or extraction in
/// megabytes, updated a few times per second. The time estimate counts only
/// bytes received after the function's first call, so that bytes from an
/// earlier, interrupted download do not distort it.
/// \param task  The unit, such as "MB downloaded". Must outlive the result.
ByteProgress show_bytes(const Sink& sink, const char* task);

}  // namespace tern
