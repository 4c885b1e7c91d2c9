#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// As an extra callback of a fit, makes the fit a dry run, whose effects will
/// be undone: the fit does not validate, and callbacks that only observe
/// receive no events. Private to Tern.
class Trial final : public Callback {};

}  // namespace tern
