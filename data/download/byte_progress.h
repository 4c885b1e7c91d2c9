#pragma once

#include "tern/data/formats/archives/tar_read.h"
#include "tern/data/support/sink.h"

namespace tern {

/// Returns a function that shows how far a download or extraction is as a
/// progress line of megabytes, drawn a few times a second. Counts from its
/// first call on: the bytes that an earlier, interrupted call left do not make
/// the estimate of the time better than it is.
/// \param task  The unit, such as "MB downloaded". Must outlive the result.
ByteProgress show_bytes(const Sink& sink, const char* task);

}  // namespace tern
