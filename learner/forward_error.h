#pragma once

#include <string>

#include "tern/learner/model.h"

namespace tern {

/// Says where a model's forward pass failed and what would help: the module, by
/// its name in the state dict, what it was given and its weight's shape.
///
/// LibTorch has no hooks on the modules of C++, so the pass is repeated with a
/// hook on its operations; buffers and random numbers are put back after. Of a
/// pass that does not fail a second time with the same reason, the inputs alone
/// are named.
///
/// \param reason  What LibTorch says, without a full stop.
std::string explain_forward_error(
    ModelImpl& model,
    const Tensors& inputs,
    const std::string& reason);

/// Whether this thread repeats a forward pass for that. Other ranks do not, so
/// collectives throw.
bool is_forward_repeated();

}  // namespace tern
