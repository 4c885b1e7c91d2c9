#pragma once

namespace tern {

/// Outcome of an optimizer step. unknown: the optimizer decides on the device
/// whether a gradient overflowed, and the flag has not been read.
enum class StepResult { stepped, skipped, unknown };

}  // namespace tern
