#pragma once

#include <string>

#include "tern/data/dataset.h"

namespace tern {

/// Returns 16 hexadecimal digits that identify a dataset: a hash of its size
/// and of the names and sizes of up to 64 evenly spaced files, or of up to 8
/// samples if they are not files. Only the size counts for a stream.
/// Independent of the path above the folder of the files, so that a dataset may
/// be moved.
std::string fingerprint(const Dataset& dataset);

}  // namespace tern
