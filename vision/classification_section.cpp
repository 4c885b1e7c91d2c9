#include "tern/vision/classification_section.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tern/vision/save_image.h"
#include "tern/vision/target_text.h"

namespace tern {

namespace {

constexpr size_t kPairs = 10;

void add_confusions(
    HtmlPage& page,
    const ClassificationInterpretation& interp) {
  const torch::Tensor& counts = interp.confusion_matrix();
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;
  for (int64_t i = 0; i < counts.size(0); ++i) {
    names.push_back(class_name(interp.classes(), i));
    const torch::Tensor row = counts[i].to(torch::kDouble).contiguous();
    const auto* first = row.const_data_ptr<double>();
    values.emplace_back(first, first + row.numel());
  }
  page.heading("Confusion matrix");
  page.paragraph("Rows are the actual classes, columns the predicted ones.");
  page.matrix(names, names, values);

  auto pairs = interp.most_confused();
  pairs.resize(std::min(pairs.size(), kPairs));
  if (pairs.empty()) return;
  std::vector<std::vector<std::string>> rows;
  for (const Confusion& pair : pairs) {
    rows.push_back({pair.actual, pair.predicted, std::to_string(pair.count)});
  }
  page.subheading("Most confused");
  page.table({"actual", "predicted", "samples"}, rows);
}

}  // namespace

ReportSection classification_section(
    const ClassificationInterpretation& interp,
    int64_t top_losses) {
  return [interp, top_losses](HtmlPage& page) {
    add_confusions(page, interp);
    page.heading("Largest losses");
    page.pictures({{png_of(interp.draw_top_losses(top_losses)), ""}});
  };
}

}  // namespace tern
