#pragma once

// Includes AutocastGuard, for programs with a custom training loop.
#include "tern/learner/amp/autocast.h"  // IWYU pragma: export
