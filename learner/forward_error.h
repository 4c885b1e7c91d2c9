#pragma once

#include <string>

#include "tern/learner/model.h"

namespace tern {

/// Describes where a model's forward pass failed and what would help: the
/// module, by its name in the state dict, its input and the shape of its
/// weight.
///
/// LibTorch has no hooks on C++ modules, so the pass is repeated with a hook on
/// its operations; buffers and random numbers are restored afterwards. If the
/// pass does not fail again for the same reason, only the inputs are described.
///
/// \param reason  LibTorch's message, without a period.
std::string explain_forward_error(
    ModelImpl& model,
    const Tensors& inputs,
    const std::string& reason);

/// True while this thread repeats a forward pass for `explain_forward_error`.
/// Other ranks do not repeat it, so collectives must throw.
bool is_forward_repeated();

}  // namespace tern
