#pragma once

#include "tern/learner/report/report.h"

namespace tern {

/// The page of `make_report`, also for HtmlReport, which writes it in
/// on_train_end, while the Learner still counts as fitting.
///
/// \param is_running  true: the overview shows the epoch of the running fit.
///                    false: it shows the result of the last fit.
HtmlPage
report_page(Learner& learner, const ReportOptions& options, bool is_running);

}  // namespace tern
