#pragma once

#include <string>

#include "tern/data/dataset.h"

namespace tern {

/// 16 hexadecimal digits that tell data sets of equal size apart: a hash of the
/// names and sizes of up to 64 files, evenly spaced, or, where samples are no
/// files, of the bytes of up to 8 samples. The folder that a data set lies in
/// does not count, so that it may move.
std::string fingerprint(const Dataset& dataset);

}  // namespace tern
