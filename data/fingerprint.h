#pragma once

#include <string>

#include "tern/data/dataset.h"

namespace tern {

/// Returns 16 hexadecimal digits that identify a dataset: a hash of its number
/// of samples and, if the samples are files, of the names and sizes of up to 64
/// evenly spaced files; otherwise of the content of up to 8 evenly spaced
/// samples. For a stream, only the number of samples counts. Of a file's path,
/// only the file name and the name of the folder that directly contains it
/// count, so a dataset may be moved.
std::string fingerprint(const Dataset& dataset);

}  // namespace tern
