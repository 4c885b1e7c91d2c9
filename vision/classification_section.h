#pragma once

#include <cstdint>

#include "tern/learner/report/report.h"
#include "tern/vision/interpretation.h"

namespace tern {

/// What a report on a classifier of images shows beside its curves: the
/// confusion matrix, the classes that are taken for each other, and the images
/// with the largest losses.
///
///   const auto interp = ClassificationInterpretation::from(learn);
///   learn.report("run.html", {.sections = {classification_section(interp)}});
///
/// \param top_losses  How many images.
ReportSection classification_section(
    const ClassificationInterpretation& interp,
    int64_t top_losses = 9);

}  // namespace tern
