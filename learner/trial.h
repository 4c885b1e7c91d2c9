#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// Passed to a fit as an extra callback, makes the fit a trial whose effects
/// will be undone: it does not validate, and callbacks that only observe
/// receive no events. Private to Tern.
class Trial final : public Callback {};

}  // namespace tern
