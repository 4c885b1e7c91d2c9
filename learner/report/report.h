#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tern/learner/report/html_page.h"

namespace tern {

class Learner;

/// Adds a section to a report.
///
///   [=](HtmlPage& page) {
///     page.heading("Confusion matrix");
///     page.matrix(classes, classes, counts);
///   }
using ReportSection = std::function<void(HtmlPage&)>;

/// Options of `Learner::report`.
struct ReportOptions {
  std::string title = "Training report";
  /// Sections of the program, after the results.
  std::vector<ReportSection> sections = {};
  /// The table of layers, which takes a forward pass over one batch; left out
  /// while a fit runs.
  bool layers = true;
  /// Set by HtmlReport in on_train_end: the fit makes no more steps.
  bool fit_has_ended = false;
};

/// Returns a page about a Learner's training so far: results, curves, skipped
/// steps, configuration, training loop, layers, environment.
HtmlPage make_report(Learner& learner, const ReportOptions& options = {});

}  // namespace tern
