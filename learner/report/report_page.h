#pragma once

#include "tern/learner/report/report.h"

namespace tern {

/// What `make_report` returns, for HtmlReport, which also writes its page in
/// on_train_end: the Learner is still fitting then, but makes no more steps.
///
/// \param is_running  Whether the overview shows the epoch of a running fit, or
///                    the result of the last one.
HtmlPage
report_page(Learner& learner, const ReportOptions& options, bool is_running);

}  // namespace tern
