#pragma once

#include "tern/learner/export/export_model.h"
#include "tern/learner/export/model_card.h"

namespace tern {

class Learner;

/// Returns the model card that `learn.export_model` would write now. Private to
/// Tern.
ModelCard card_of(Learner& learn, const ExportOptions& options);

}  // namespace tern
