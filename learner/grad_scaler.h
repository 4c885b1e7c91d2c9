#pragma once

// GradScaler, at the address that programs with a loop of their own include.
#include "tern/learner/amp/grad_scaler.h"  // IWYU pragma: export
