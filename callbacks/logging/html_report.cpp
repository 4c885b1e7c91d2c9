#include "tern/callbacks/logging/html_report.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "tern/callbacks/option_text.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/learner.h"
#include "tern/learner/report/report_page.h"

namespace tern {

namespace {

// Space may become available on a full disk during training; a wrong folder
// stays wrong.
bool is_full(const IoError& error) {
  return error.error() == ENOSPC || error.error() == EDQUOT ||
         error.error() == EFBIG;
}

}  // namespace

HtmlReport::HtmlReport(Options options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      !options_.file.empty(),
      "[HtmlReport] the file name is empty; give the report a name.");
}

void HtmlReport::write_or_warn(Learner& learn, bool is_running, bool is_first) {
  const std::filesystem::path file = learn.options().path / options_.file;
  try {
    if (file.has_parent_path()) make_folders(file.parent_path());
    report_page(learn, options_.report, is_running).save(file);
  } catch (const IoError& error) {
    if (is_first && !is_full(error)) throw;
    // The error that ended the fit is more important; it may be this very
    // error.
    if (learn.state().failed || std::exchange(has_warned_, true)) return;
    learn.options().sink->warning(fmt::format(
        "HtmlReport: {}. Training continues; the report is not updated.",
        error.what()));
  }
}

void HtmlReport::on_train_begin(Learner& learn) {
  write_or_warn(learn, /*is_running=*/true, /*is_first=*/true);
}

void HtmlReport::on_epoch_end(Learner& learn) {
  write_or_warn(learn, /*is_running=*/true);
}

void HtmlReport::on_train_end(Learner& learn) {
  write_or_warn(learn, /*is_running=*/false);
}

OptionValues HtmlReport::option_values() const {
  return {{"file", option_text(options_.file)}};
}

}  // namespace tern
