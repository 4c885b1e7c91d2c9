#pragma once

// Includes GradScaler, for programs with a custom training loop.
#include "tern/learner/amp/grad_scaler.h"  // IWYU pragma: export
