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
#include "tern/vision/interpret/image_grid.h"
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
      "image, columns >= 0 and a tile of at least 16 pixels.",
      options.count,
      options.columns,
      options.tile);
}

void save_grid(
    const std::filesystem::path& file,
    const std::vector<Picture>& pictures,
    ImageGridOptions grid,
    const ShowOptions& options) {
  grid.columns = options.columns;
  grid.tile = options.tile;
  save_image(file, image_grid(pictures, grid));
}

/// Returns [C, C] kDouble: rows are actual classes, columns predicted classes.
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
  const auto samples = confusion.compute().item<double>();
  TERN_CHECK_VALUE(
      counts.defined(),
      "[segmentation_report] the {} loader has no batch; expected at least "
      "one sample.",
      to_string(split));
  TORCH_CHECK_VALUE(
      !std::isnan(samples),
      "[segmentation_report] an output is NaN, which predicts no class; "
      "expected numbers. Find the batch that caused it with TerminateOnNaN.");
  return counts;
}

/// Images without captions.
std::vector<Picture> pictures_of(const torch::Tensor& images) {
  std::vector<Picture> pictures;
  for (const torch::Tensor& image : images.unbind()) {
    pictures.push_back({image, {}});
  }
  return pictures;
}

/// Draws each image next to the image with its mask.
void save_masks(
    const std::filesystem::path& file,
    const VisibleBatch& batch,
    const std::vector<std::string>& names,
    const ShowOptions& options) {
  const int64_t count = batch.images.size(0);
  // Without class names, shows all classes that fit into a byte.
  const int64_t classes = names.empty() ? 256 : std::ssize(names);
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < count; ++i) {
    append(
        pictures,
        mask_pictures(batch.images[i], batch.targets[i], {}, classes));
  }
  ShowOptions layout = options;
  const int64_t pairs_in_row =
      options.columns > 0 ? options.columns
                          : std::max(1L, std::lround(std::sqrt(count / 2)));
  layout.columns = 2 * pairs_in_row;
  save_grid(
      file,
      pictures,
      {.legend = mask_legend({batch.targets}, names, classes)},
      layout);
}

/// Draws each image next to its actual and its predicted mask.
void save_mask_results(
    const std::filesystem::path& file,
    const torch::Tensor& images,
    const torch::Tensor& targets,
    const torch::Tensor& preds,
    int64_t classes,
    const std::vector<std::string>& names,
    const ShowOptions& options) {
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < images.size(0); ++i) {
    append(pictures, mask_pictures(images[i], targets[i], preds[i], classes));
  }
  ShowOptions layout = options;
  layout.columns = 3;
  save_grid(
      file,
      pictures,
      {.legend = mask_legend({targets, preds}, names, classes)},
      layout);
}

/// Returns the target, if there is one, followed by the prediction in the color
/// for correct or wrong.
std::vector<CaptionLine> result_caption(
    TargetKind kind,
    const torch::Tensor& targets,
    const torch::Tensor& preds,
    int64_t sample,
    const std::vector<std::string>& names) {
  const std::string prediction = target_text(kind, preds[sample], names);
  if (!targets.defined()) return {{prediction}};
  const std::string target = target_text(kind, targets[sample], names);
  return {{target}, {prediction, prediction_color(kind, prediction == target)}};
}

/// Adds the target of a sample to its image: boxes, points or a caption.
/// \param targets  All targets of a batch.
void add_target(
    Picture& picture,
    TargetKind kind,
    const Tensors& targets,
    int64_t sample,
    const std::vector<std::string>& names) {
  if (kind == TargetKind::boxes) {
    picture.boxes =
        box_marks(targets[0][sample], targets[1][sample], {}, names);
  } else if (kind == TargetKind::points) {
    picture.points = point_marks(targets[0][sample], targets[1][sample]);
  } else {
    picture.caption = {{target_text(kind, targets[0][sample], names)}};
  }
}

/// Draws each image with its actual boxes or points next to the image with the
/// predicted ones.
void save_marked_results(
    const std::filesystem::path& file,
    const torch::Tensor& images,
    const Predictions& predictions,
    const DataBunch& data,
    const ShowOptions& options) {
  const OutputInfo& output = predictions.info[0];
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < images.size(0); ++i) {
    if (!predictions.all_targets.empty()) {
      Picture target{images[i], {{"target"}}};
      add_target(target, output.kind, predictions.all_targets, i, data.classes);
      pictures.push_back(std::move(target));
    }
    const Prediction found = decode(predictions, i);
    Picture prediction{images[i], {{"prediction"}}};
    if (found.boxes.defined()) {
      prediction.boxes = box_marks(
          found.boxes,
          torch::tensor(found.indices, torch::kLong),
          torch::tensor(found.scores, torch::kDouble),
          output.names);
    } else if (found.points.defined()) {
      prediction.points = point_marks(found.points, {});
    }
    pictures.push_back(std::move(prediction));
  }
  ImageGridOptions grid;
  if (output.kind == TargetKind::points) {
    grid.legend = point_legend(output.names);
  }
  ShowOptions layout = options;
  const int64_t pairs_in_row =
      options.columns > 0
          ? options.columns
          : std::max(1L, std::lround(std::sqrt(images.size(0) / 2)));
  layout.columns =
      predictions.all_targets.empty() ? options.columns : 2 * pairs_in_row;
  save_grid(file, pictures, grid, layout);
}

/// Returns a loader of `options.count` samples at even intervals, because
/// datasets are often sorted by class.
DataLoader spread_samples(
    const DataLoader& loader,
    Split split,
    const ShowOptions& options) {
  const DataLoader all = loader.in_order();
  const int64_t size = all.dataset().size();
  const int64_t count = std::min(options.count, size);
  TERN_CHECK_VALUE(
      count > 0,
      "[show_results] the {} data has no sample; expected at least one.",
      to_string(split));
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  DataLoaderOptions loading = all.options();
  loading.workers = 0;
  return DataLoader(
      std::make_shared<Subset>(all.dataset_ptr(), std::move(indices)),
      loading);
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
  // Skips batches in which all samples were left out.
  while (batch && !batch->left_out.empty() && batch->size() == 0) {
    batch = batches.next();
  }
  TERN_CHECK_VALUE(
      batch,
      "[show_batch] the {} loader has no batch; expected at least one.",
      to_string(split));
  VisibleBatch visible =
      visible_batch(data, std::move(*batch), loader.options().training);
  const int64_t count = std::min(options.count, visible.images.size(0));
  visible.images = visible.images.narrow(0, 0, count);
  if (!visible.targets.defined()) {
    save_grid(file, pictures_of(visible.images), {}, options);
    return;
  }
  const TargetKind kind = target_kind(data, visible.targets);
  visible.targets = visible.targets.narrow(0, 0, count);
  if (kind == TargetKind::mask) {
    save_masks(file, visible, data.classes, options);
    return;
  }
  std::vector<Picture> pictures = pictures_of(visible.images);
  ImageGridOptions grid;
  for (int64_t i = 0; i < count; ++i) {
    add_target(pictures[i], kind, visible.all_targets, i, data.classes);
  }
  if (kind == TargetKind::points) {
    grid.legend = point_legend(data.outputs[0].names);
  }
  save_grid(file, pictures, grid, options);
}

void show_results(
    Learner& learn,
    const std::filesystem::path& file,
    Split split,
    const ShowOptions& options) {
  check(options);
  const DataBunch& data = learn.data();
  const DataLoader some = spread_samples(data.loader(split), split, options);
  const Predictions predictions = learn.get_preds(some);
  const std::vector<int64_t>& shown = predictions.indices;
  TERN_CHECK_VALUE(
      !shown.empty(),
      "[show_results] the {} data has no readable sample; expected at least "
      "one.",
      to_string(split));
  const torch::Tensor images = visible_batch(
                                   data,
                                   some.dataset().get_batch(shown, {}),
                                   /*augments=*/false)
                                   .images;
  const int64_t count = std::ssize(shown);
  TERN_CHECK_VALUE(
      images.size(0) == count,
      "[show_results] {} of {} images could not be read a second time; "
      "expected to read all of them again. Check the disk.",
      count - images.size(0),
      count);
  const OutputInfo& output = predictions.info[0];
  const TargetKind kind = predictions.targets.defined()
                              ? target_kind(data, predictions.targets)
                              : output.kind;
  if (kind == TargetKind::boxes || kind == TargetKind::points) {
    save_marked_results(file, images, predictions, data, options);
    return;
  }
  const torch::Tensor preds =
      decoded(kind, predictions.preds, output.threshold);
  if (kind == TargetKind::mask) {
    const int64_t ignored = learn.options().loss.ignore_index();
    const torch::Tensor targets =
        without_class({predictions.targets}, ignored)[0];
    const int64_t classes = std::max<int64_t>(predictions.preds.size(1), 2);
    save_mask_results(
        file,
        images,
        targets,
        preds,
        classes,
        data.classes,
        options);
    return;
  }
  std::vector<Picture> pictures = pictures_of(images);
  for (int64_t i = 0; i < count; ++i) {
    pictures[i].caption =
        result_caption(kind, predictions.targets, preds, i, data.classes);
  }
  const bool has_targets = predictions.targets.defined();
  save_grid(
      file,
      pictures,
      {.title = has_targets ? "target / prediction" : ""},
      options);
}

SegmentationReport segmentation_report(Learner& learn, Split split) {
  refuse_boxes_and_points(learn.data(), "segmentation_report");
  const torch::Tensor counts = count_pixels(learn, split);
  const torch::Tensor hits = counts.diagonal(), actual = counts.sum(1);
  // NaN for classes without pixels.
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
  // The sign of 0 / 0 depends on the processor; abs avoids "-nan".
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
