#pragma once

#include <string>

#include "tern/data/dataset.h"

namespace tern {

/// Returns 16 hexadecimal digits that identify a dataset: a hash of the names
/// and sizes of up to 64 evenly spaced files, or of up to 8 samples if they are
/// not files, or of a stream's epoch length. Independent of the parent folder,
/// so that a dataset may move.
std::string fingerprint(const Dataset& dataset);

}  // namespace tern
