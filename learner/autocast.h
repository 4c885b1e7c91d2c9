#pragma once

// AutocastGuard, at the address that programs with a loop of their own include.
#include "tern/learner/amp/autocast.h"  // IWYU pragma: export
