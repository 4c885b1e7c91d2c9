#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/learner/report/html_page.h"

namespace tern {

class Learner;

/// Adds a section to a report.
///
///   ReportSection section = [=](HtmlPage& page) {
///     page.heading("Confusion matrix");
///     page.matrix(classes, classes, counts);
///   };
using ReportSection = std::function<void(HtmlPage&)>;

/// Options of `make_report`.
struct ReportOptions {
  std::string title = "Training report";
  /// Sections of the program, after the results.
  std::vector<ReportSection> sections = {};
};

/// A page about a Learner's training so far: results, curves, skipped steps,
/// configuration, training loop, layers, environment. The table of layers takes
/// a forward pass over one batch and is left out while a fit runs.
///
///   make_report(learn).save("run.html");
HtmlPage make_report(Learner& learner, const ReportOptions& options = {});

/// Prints each event of the training loop with the callbacks that act there, in
/// the order in which they run.
void show_training_loop(const Learner& learner);

}  // namespace tern
