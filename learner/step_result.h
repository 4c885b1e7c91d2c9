#pragma once

namespace tern {

/// Outcome of an optimizer step. unknown: the optimizer decides on the device
/// whether a gradient overflowed, and the host has not read the result.
enum class StepResult { stepped, skipped, unknown };

}  // namespace tern
