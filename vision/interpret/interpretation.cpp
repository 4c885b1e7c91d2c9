#include "tern/vision/interpret/interpretation.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tern/kernels/check.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/matrix_picture.h"
#include "tern/vision/interpret/visible_batch.h"

namespace tern {

namespace {

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

/// Returns the probability of the actual class, or an empty string if there is
/// none.
std::string probability_text(
    TargetKind kind,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  if (kind != TargetKind::category || pred.dim() != 1) return "";
  const auto actual = target.item<int64_t>();
  if (actual < 0 || actual >= pred.size(0)) return "";
  return fmt::format(", p {:.2f}", pred[actual].item<double>());
}

/// A single channel is the probability of class 1, so there are two classes.
int64_t class_count(const torch::Tensor& preds) {
  return preds.dim() > 1 && preds.size(1) > 1 ? preds.size(1) : 2;
}

constexpr size_t kPairs = 10;

void add_confusions(
    HtmlPage& page,
    const ClassificationInterpretation& interp) {
  const torch::Tensor& counts = interp.confusion_matrix();
  const auto names = class_names(interp.classes(), counts.size(0));
  page.heading("Confusion matrix");
  page.paragraph("Rows are the actual classes, columns the predicted ones.");
  page.matrix(names, names, rows_of(counts));

  auto pairs = interp.most_confused();
  pairs.resize(std::min(pairs.size(), kPairs));
  if (pairs.empty()) return;
  std::vector<std::vector<std::string>> rows;
  rows.reserve(pairs.size());
  for (const Confusion& pair : pairs) {
    rows.push_back({pair.actual, pair.predicted, std::to_string(pair.count)});
  }
  page.subheading("Most confused");
  page.table({"actual", "predicted", "samples"}, rows);
}

}  // namespace

Interpretation::Interpretation(Learner& learn, Split split)
    : data_(learn.data()) {
  refuse_boxes_and_points(data_, "Interpretation::from");
  const DataLoader loader = data_.loader(split).in_order();
  dataset_ = loader.dataset_ptr();
  predictions_ = learn.get_preds(loader, /*with_losses=*/true);
  ignore_index_ = learn.options().loss.ignore_index();
  TERN_CHECK_VALUE(
      predictions_.preds.defined(),
      "[Interpretation::from] the {} data has no sample; expected at least "
      "one.",
      to_string(split));
}

TargetKind Interpretation::kind() const {
  return target_kind(data_, targets());
}

torch::Tensor Interpretation::known_targets() const {
  return without_class({targets()}, ignore_index_)[0];
}

std::vector<int64_t> Interpretation::top_rows(int64_t k, bool largest) const {
  TERN_CHECK_VALUE(
      k >= 0,
      "[Interpretation::top_losses] k is {}; expected 0 for all, or a "
      "number of samples.",
      k);
  const int64_t count = k == 0 ? size() : std::min(k, size());
  const torch::Tensor order =
      torch::argsort(losses(), /*stable=*/true, 0, largest);
  const auto* first = order.const_data_ptr<int64_t>();
  return {first, first + count};
}

std::vector<TopLoss> Interpretation::top_losses(int64_t k, bool largest) const {
  std::vector<TopLoss> top;
  for (const int64_t row : top_rows(k, largest)) {
    top.push_back({indices().at(row), losses()[row].item<double>()});
  }
  return top;
}

void Interpretation::plot_top_losses(
    const std::filesystem::path& file,
    int64_t k,
    bool largest) const {
  save_image(file, draw_top_losses(k, largest));
}

torch::Tensor Interpretation::draw_top_losses(int64_t k, bool largest) const {
  const TargetKind kind = this->kind();
  const torch::Tensor all_targets =
      kind == TargetKind::mask ? known_targets() : targets();
  std::vector<Picture> pictures;
  Tensors masks;
  for (const int64_t row : top_rows(k, largest)) {
    const int64_t index = indices().at(row);
    const auto loss = losses()[row].item<double>();
    Batch batch = dataset_->get_batch({index}, {});
    const torch::Tensor image =
        visible_batch(data_, std::move(batch), /*augments=*/false).images[0];
    const torch::Tensor target = all_targets[row];
    const torch::Tensor pred = preds()[row];
    const torch::Tensor prediction =
        decoded(kind, pred.unsqueeze(0), output().threshold)[0];
    const CaptionLine name = {file_name(dataset_->describe(index))};
    if (kind == TargetKind::mask) {
      auto pictures_of_mask =
          mask_pictures(image, target, prediction, class_count(preds()));
      pictures_of_mask.front().caption = {name};
      pictures_of_mask.back().caption.push_back(
          {fmt::format("loss {:.3f}", loss)});
      std::ranges::move(pictures_of_mask, std::back_inserter(pictures));
      masks.insert(masks.end(), {target, prediction});
      continue;
    }
    const std::string actual_text = target_text(kind, target, classes());
    const std::string prediction_text =
        target_text(kind, prediction, classes());
    const std::string loss_text = fmt::format(
        "loss {:.2f}{}",
        loss,
        probability_text(kind, pred, target));
    pictures.push_back(
        {image,
         {{actual_text},
          {prediction_text,
           prediction_color(kind, prediction_text == actual_text)},
          {loss_text},
          name}});
  }
  if (kind == TargetKind::mask) {
    return image_grid(
        pictures,
        {.columns = 3,
         .legend = mask_legend(masks, classes(), class_count(preds()))});
  }
  return image_grid(
      pictures,
      {.title = fmt::format(
           "target / prediction / loss{} / file",
           kind == TargetKind::category ? ", probability of the target" : "")});
}

ClassificationInterpretation::ClassificationInterpretation(
    Learner& learn,
    Split split)
    : Interpretation(learn, split), matrix_(count()) {}

ConfusionMatrix ClassificationInterpretation::count() const {
  const TargetKind kind = this->kind();
  TORCH_CHECK_VALUE(
      kind == TargetKind::category || kind == TargetKind::mask,
      "[ClassificationInterpretation::from] the targets are not class indices; "
      "expected one class per sample or pixel. Use Interpretation.");
  TORCH_CHECK_VALUE(
      !preds().isnan().any().item<bool>(),
      "[ClassificationInterpretation::from] an output is NaN, which predicts "
      "no class; expected numbers. Find the batch that caused it with "
      "TerminateOnNaN.");
  const torch::Tensor predicted =
      decoded(kind, preds(), output().threshold).reshape({-1});
  const torch::Tensor actual = known_targets().to(torch::kLong).reshape({-1});
  TERN_CHECK_VALUE(
      predicted.numel() == actual.numel(),
      "[ClassificationInterpretation::from] got {} predictions for {} targets; "
      "expected one per target.",
      predicted.numel(),
      actual.numel());
  // Excludes targets that are not a class of the model, such as void pixels.
  const int64_t count = class_count(preds());
  const torch::Tensor is_class = (actual >= 0).logical_and(actual < count);
  std::vector<std::string> names = classes();
  names.resize(std::min<size_t>(names.size(), count));
  return {
      predicted.masked_select(is_class),
      actual.masked_select(is_class),
      {.classes = std::move(names),
       .ignore_index = ignore_index(),
       .num_classes = count}};
}

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
