#pragma once

#include <cstdint>
#include <vector>

#include <c10/util/ArrayRef.h>

namespace tern {

/// Returns for each index how often it occurred earlier in the list; empty if
/// no index occurs twice.
std::vector<int64_t> occurrences_in(c10::ArrayRef<int64_t> indices);

}  // namespace tern
