#include "tern/vision/interpret/show.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "tern/data/sampler.h"
#include "tern/kernels/check.h"
#include "tern/learner/loop.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/vision/interpret/drawing.h"
#include "tern/vision/interpret/picture_grid.h"
#include "tern/vision/interpret/visible_batch.h"

namespace tern {

namespace {

void append(std::vector<Picture>& pictures, std::vector<Picture> more) {
  std::ranges::move(more, std::back_inserter(pictures));
}

void check(const ShowOptions& options) {
  TERN_CHECK_VALUE(
      options.count > 0 && options.columns >= 0 && options.tile >= 16,
      "[show] count is {}, columns {} and tile {}; expected at least one "
      "picture, no negative number of columns and 16 pixels.",
      options.count,
      options.columns,
      options.tile);
}

void save_grid(
    const std::filesystem::path& file,
    const std::vector<Picture>& pictures,
    PictureGridOptions grid,
    const ShowOptions& options) {
  grid.columns = options.columns;
  grid.tile = options.tile;
  save_image(file, picture_grid(pictures, grid));
}

/// [C, C] kDouble: rows are true classes, columns predicted.
torch::Tensor count_pixels(Learner& learn, Split split) {
  torch::Tensor counts;
  Metric confusion = std::make_shared<ConfusionMetric>(
      "segmentation_report",
      [&](const torch::Tensor& matrix) {
        counts = matrix.cpu();
        return matrix.sum();
      });
  LearnerParts& l = parts_of(learn);
  confusion.set_ignore_index(l.options.loss.ignore_index());
  loop::evaluate(l, l.data.loader(split), /*with_loss=*/false, [&] {
    Tensors scores = l.state.outputs;
    if (scores.at(0).dim() > 1 && scores[0].size(1) == 1) {
      const auto info = output_info(l.data, l.options.loss);
      scores[0] = activate(scores, info)[0] - info[0].threshold;
    }
    confusion.update(scores, l.state.batch_data.targets);
  });
  confusion.compute();
  TERN_CHECK_VALUE(
      counts.defined(),
      "[segmentation_report] the {} loader has no batch; expected at least "
      "one sample.",
      to_string(split));
  return counts;
}

}  // namespace

void show_batch(
    const DataBunch& data,
    const std::filesystem::path& file,
    Split split,
    const ShowOptions& options) {
  check(options);
  const DataLoader& loader = data.loader(split);
  auto batches = loader.epoch(0);
  std::optional<Batch> batch = batches.next();
  TERN_CHECK_VALUE(
      batch,
      "[show_batch] the {} loader has no batch; expected one.",
      to_string(split));
  const VisibleBatch visible =
      visible_batch(data, std::move(*batch), loader.options().training);
  const int64_t count = std::min(options.count, visible.images.size(0));
  const TargetKind kind = visible.targets.defined()
                              ? target_kind(data, visible.targets)
                              : TargetKind::number;
  std::vector<Picture> pictures;
  if (kind == TargetKind::mask) {
    const torch::Tensor masks = visible.targets.narrow(0, 0, count);
    // Without names, as many as bytes tell apart.
    const int64_t classes =
        data.classes.empty() ? 256 : std::ssize(data.classes);
    for (int64_t i = 0; i < count; ++i) {
      append(pictures, mask_pictures(visible.images[i], masks[i], {}, classes));
    }
    ShowOptions layout = options;
    layout.columns =
        2 * (options.columns > 0
                 ? options.columns
                 : std::max(1L, std::lround(std::sqrt(count / 2))));
    save_grid(
        file,
        pictures,
        {.legend = mask_legend({masks}, data.classes, classes)},
        layout);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    pictures.push_back({visible.images[i], {}});
    if (visible.targets.defined()) {
      pictures.back().caption.push_back(
          {target_text(kind, visible.targets[i], data.classes)});
    }
  }
  save_grid(file, pictures, {}, options);
}

void show_results(
    Learner& learn,
    const std::filesystem::path& file,
    Split split,
    const ShowOptions& options) {
  check(options);
  const DataBunch& data = learn.data();
  const DataLoader all = data.loader(split).in_order();
  const int64_t count = std::min(options.count, all.dataset().size());
  TERN_CHECK_VALUE(
      count > 0,
      "[show_results] the {} data have no sample; expected one.",
      to_string(split));
  std::vector<int64_t> indices;
  // Spread over the whole set, which is often sorted by class.
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back(i * all.dataset().size() / count);
  }
  DataLoaderOptions loading = all.options();
  loading.workers = 0;
  const DataLoader some(
      std::make_shared<Subset>(all.dataset_ptr(), std::move(indices)),
      loading);
  const Predictions answers = learn.get_preds(some);
  const auto places = SequentialSampler(count).indices(0, 0);
  Batch batch = some.dataset().get_batch(places, {});
  const VisibleBatch visible =
      visible_batch(data, std::move(batch), /*augments=*/false);
  const bool has_targets = answers.targets.defined();
  const OutputInfo& output = answers.info[0];
  const TargetKind kind =
      has_targets ? target_kind(data, answers.targets) : output.kind;
  const torch::Tensor preds = decoded(kind, answers.preds, output.threshold);
  std::vector<Picture> pictures;
  if (kind == TargetKind::mask) {
    ShowOptions layout = options;
    layout.columns = 3;
    const int64_t classes = std::max<int64_t>(answers.preds.size(1), 2);
    const torch::Tensor targets = without_class(
        {answers.targets},
        learn.options().loss.ignore_index())[0];
    for (int64_t i = 0; i < count; ++i) {
      append(
          pictures,
          mask_pictures(visible.images[i], targets[i], preds[i], classes));
    }
    save_grid(
        file,
        pictures,
        {.legend = mask_legend({targets, preds}, data.classes, classes)},
        layout);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const std::string answer = target_text(kind, preds[i], data.classes);
    Picture picture{visible.images[i], {}};
    Rgb color = kTextColor;
    if (has_targets) {
      const std::string target =
          target_text(kind, answers.targets[i], data.classes);
      picture.caption.push_back({target});
      color = answer_color(kind, answer == target);
    }
    picture.caption.push_back({answer, color});
    pictures.push_back(std::move(picture));
  }
  save_grid(
      file,
      pictures,
      {.title = has_targets ? "target / prediction" : ""},
      options);
}

SegmentationReport segmentation_report(Learner& learn, Split split) {
  const torch::Tensor counts = count_pixels(learn, split);
  const torch::Tensor hits = counts.diagonal(), actual = counts.sum(1);
  // NaN where a class has no pixels.
  const torch::Tensor accuracies = hits / actual;
  const torch::Tensor both = actual + counts.sum(0);
  torch::Tensor dices = 2 * hits / both, ious = hits / (both - hits);
  const int64_t ignored = learn.options().loss.ignore_index();
  if (ignored >= 0 && ignored < counts.size(0)) {
    dices[ignored] = ious[ignored] = std::nan("");
  }
  const auto& names = learn.data().classes;
  SegmentationReport report;
  for (int64_t i = 0; i < counts.size(0); ++i) {
    report.classes.push_back(
        {i < std::ssize(names) ? names[i] : std::to_string(i),
         static_cast<int64_t>(actual[i].item<double>()),
         accuracies[i].item<double>(),
         dices[i].item<double>(),
         ious[i].item<double>()});
  }
  report.accuracy = (hits.sum() / counts.sum()).item<double>();
  report.mean_accuracy = accuracies.nanmean().item<double>();
  report.mean_dice = dices.nanmean().item<double>();
  report.mean_iou = ious.nanmean().item<double>();
  return report;
}

std::string SegmentationReport::to_string() const {
  size_t width = 12;
  for (const Row& row : classes) width = std::max(width, row.name.size());
  // 0 / 0 has the sign of the processor: "-nan".
  const auto share = [](double value) { return std::abs(value); };
  std::string text = fmt::format(
      "{:<{}} {:>10} {:>9} {:>7} {:>7}\n",
      "class",
      width,
      "pixels",
      "accuracy",
      "dice",
      "iou");
  int64_t pixels = 0;
  for (const Row& row : classes) {
    pixels += row.pixels;
    text += fmt::format(
        "{:<{}} {:>10} {:>9.4f} {:>7.4f} {:>7.4f}\n",
        row.name,
        width,
        row.pixels,
        share(row.accuracy),
        share(row.dice),
        share(row.iou));
  }
  return text + fmt::format(
                    "{:<{}} {:>10} {:>9.4f} {:>7.4f} {:>7.4f}\n"
                    "{:<{}} {:>10} {:>9.4f}\n",
                    "mean",
                    width,
                    "",
                    mean_accuracy,
                    mean_dice,
                    mean_iou,
                    "all pixels",
                    width,
                    pixels,
                    accuracy);
}

}  // namespace tern
