#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// Given to a fit as an extra callback, makes it a trial: its effects will be
/// undone, there is no validation, and callbacks that watch hear nothing of it.
/// Private to learner/ and callbacks/.
class Trial final : public Callback {};

}  // namespace tern
