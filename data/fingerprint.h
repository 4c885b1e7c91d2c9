#pragma once

#include <string>

#include "tern/data/dataset.h"

namespace tern {

/// Returns 16 hexadecimal digits that identify a dataset: a hash of its size
/// and of the names and sizes of up to 64 evenly spaced files, or of up to 8
/// samples if they are not files. For a stream, only the size counts. The path
/// of the dataset's folder does not affect the result, so a dataset may be
/// moved.
std::string fingerprint(const Dataset& dataset);

}  // namespace tern
