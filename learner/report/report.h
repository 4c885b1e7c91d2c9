#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tern/learner/report/html_page.h"

namespace tern {

class Learner;

/// Adds a part to a report: a heading, and what belongs below it.
///
///   [=](HtmlPage& page) {
///     page.heading("Confusion matrix");
///     page.matrix(classes, classes, counts);
///   }
using ReportSection = std::function<void(HtmlPage&)>;

/// Options of `Learner::report`.
struct ReportOptions {
  std::string title = "Training report";
  /// Come after the results: what a domain adds, as pictures of top losses.
  std::vector<ReportSection> sections = {};
  /// The table of layers takes a forward pass over one batch; it is left out
  /// while a fit runs.
  bool layers = true;
  /// The fit whose on_train_end this is will make no step more.
  bool fit_has_ended = false;
};

/// What a Learner has done so far as one page: results, curves, skipped steps,
/// configuration, the training loop, layers, environment.
HtmlPage make_report(Learner& learner, const ReportOptions& options = {});

}  // namespace tern
