#pragma once

#include "tern/learner/report/report.h"

namespace tern {

/// Returns the page of `make_report`. Also used by HtmlReport, which writes its
/// page in on_train_end, when the Learner still counts as fitting but runs no
/// more steps.
///
/// \param is_running  true: the overview shows the epoch of the running fit.
///                    false: it shows the result of the last fit.
HtmlPage
report_page(Learner& learner, const ReportOptions& options, bool is_running);

}  // namespace tern
