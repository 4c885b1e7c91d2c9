#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/learner/report/html_page.h"

namespace tern {

class Learner;

/// A function that adds a section to a report.
///
///   ReportSection section = [=](HtmlPage& page) {
///     page.heading("Confusion matrix");
///     page.matrix(classes, classes, counts);
///   };
using ReportSection = std::function<void(HtmlPage&)>;

/// Options of `make_report`.
struct ReportOptions {
  std::string title = "Training report";
  /// Custom sections, placed after the results.
  std::vector<ReportSection> sections = {};
};

/// Returns a page about a Learner's training so far: results, curves, skipped
/// steps, configuration, training loop, layers and environment. The table of
/// layers needs a forward pass over one batch and is left out during a fit.
///
///   make_report(learn).save("run.html");
HtmlPage make_report(Learner& learner, const ReportOptions& options = {});

/// Prints each event of the training loop with the callbacks that act at it, in
/// the order in which they run.
void show_training_loop(const Learner& learner);

}  // namespace tern
