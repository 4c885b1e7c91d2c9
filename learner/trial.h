#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// Given to a fit as an extra callback, makes it a trial, whose effects will be
/// undone: there is no validation, and callbacks that only observe get no
/// events. Private to Tern.
class Trial final : public Callback {};

}  // namespace tern
