#pragma once

#include <cstdint>
#include <vector>

#include <c10/util/ArrayRef.h>

namespace tern {

/// Returns for each index how often it has come before; empty if none comes
/// twice.
std::vector<int64_t> occurrences_in(c10::ArrayRef<int64_t> indices);

}  // namespace tern
