#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// Turns a fit to which it is passed as an extra callback into a dry run, whose
/// effects will be undone: the fit does not validate, and callbacks that only
/// observe receive no events. Private to Tern.
class DryRun final : public Callback {};

}  // namespace tern
