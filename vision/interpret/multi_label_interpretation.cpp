#include "tern/vision/interpret/multi_label_interpretation.h"

#include <fmt/format.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/matrix_picture.h"
#include "tern/vision/interpret/visible_batch.h"

namespace tern {

namespace {

// Returns co-occurrence as a fraction of the samples with the row's label.
torch::Tensor shares(const torch::Tensor& together) {
  return together.to(torch::kDouble) /
         together.diagonal().clamp_min(1).unsqueeze(1);
}

}  // namespace

MultiLabelInterpretation::MultiLabelInterpretation(Learner& learn, Split split)
    : Interpretation(learn, split) {
  TERN_CHECK_VALUE(
      kind() == TargetKind::multi_category &&
          preds().sizes() == targets().sizes(),
      "[MultiLabelInterpretation::from] the outputs are {}, the targets {}, "
      "and the data name {} classes; expected [N, L] with 0 or 1 for each of L "
      "labels. Use ClassificationInterpretation for one class per sample.",
      shapes_of({preds()}),
      shapes_of({targets()}),
      classes().size());
  actual_ = (targets() > 0.5).to(torch::kLong);
  predicted_ = decoded(kind(), preds(), output().threshold).to(torch::kLong);
}

ClassificationReport MultiLabelInterpretation::report() const {
  return classification_report(
      classes(),
      (actual_ * predicted_).sum(0),
      predicted_.sum(0),
      actual_.sum(0));
}

torch::Tensor MultiLabelInterpretation::co_occurrence(
    LabelSource source) const {
  const torch::Tensor& all = labels(source);
  return all.t().matmul(all);
}

void MultiLabelInterpretation::plot_co_occurrence(
    const std::filesystem::path& file,
    LabelSource source) const {
  const torch::Tensor together = co_occurrence(source);
  save_page(
      file,
      draw_matrix(
          together,
          together.diagonal(),
          classes(),
          {.title = source == LabelSource::targets
                        ? "Labels that come together"
                        : "Labels that are predicted together",
           .rows = "of the samples with",
           .columns = "fraction that also has",
           .normalize = true}),
      "MultiLabelInterpretation::plot_co_occurrence");
}

ReportSection classification_section(
    const MultiLabelInterpretation& interp,
    int64_t top_losses) {
  return [interp, top_losses](HtmlPage& page) {
    const ClassificationReport report = interp.report();
    std::vector<ClassificationReport::Row> all = report.classes;
    all.insert(all.end(), {report.micro, report.macro, report.weighted});
    std::vector<std::vector<std::string>> rows;
    rows.reserve(all.size());
    for (const ClassificationReport::Row& row : all) {
      rows.push_back(
          {row.name,
           fmt::format("{:.4f}", row.precision),
           fmt::format("{:.4f}", row.recall),
           fmt::format("{:.4f}", row.f1),
           fmt::format("{}", row.support)});
    }
    page.heading("Labels");
    page.paragraph(fmt::format(
        "A label is predicted above a probability of {:.3g}.",
        interp.output().threshold));
    page.table({"label", "precision", "recall", "f1", "support"}, rows);
    page.heading("Labels that come together");
    page.paragraph(
        "Fraction of the samples with the row's label that also have the "
        "column's: first in the targets, then in the predictions.");
    for (const LabelSource source :
         {LabelSource::targets, LabelSource::preds}) {
      page.matrix(
          interp.classes(),
          interp.classes(),
          rows_of(shares(interp.co_occurrence(source))));
    }
    page.heading("Largest losses");
    page.pictures({{png_of(interp.draw_top_losses(top_losses)), ""}});
  };
}

}  // namespace tern
