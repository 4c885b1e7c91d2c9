#pragma once

/// Every metric that comes with Tern.

#include "tern/learner/metrics/accuracy.h"
#include "tern/learner/metrics/f_beta.h"
#include "tern/learner/metrics/regression.h"
