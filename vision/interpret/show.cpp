#include "tern/vision/interpret/show.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tern/learner/lambda_callback.h"
#include "tern/learner/metrics/confusion_metric.h"
#include "tern/vision/interpret/drawing.h"
#include "tern/vision/interpret/picture_grid.h"
#include "tern/vision/interpret/visible_batch.h"

namespace tern {

namespace {

void check(const ShowOptions& options) {
  TORCH_CHECK_VALUE(
      options.count > 0 && options.columns >= 0 && options.tile >= 16,
      fmt::format(
          "[show] count is {}, columns {} and tile {}; expected at least one "
          "picture, no negative number of columns and 16 pixels.",
          options.count,
          options.columns,
          options.tile));
}

void save_grid(
    const std::filesystem::path& file,
    const std::vector<Picture>& pictures,
    std::string title,
    const ShowOptions& options) {
  save_image(
      file,
      picture_grid(
          pictures,
          {.title = std::move(title),
           .columns = options.columns,
           .tile = options.tile}));
}

/// [C, C] kDouble: rows are true classes, columns predicted.
torch::Tensor count_pixels(Learner& learn, Split split) {
  torch::Tensor counts;
  ConfusionMetric confusion("segmentation_report", [&](const torch::Tensor& m) {
    counts = m.cpu();
    return m.sum();
  });
  const auto count = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [&](Learner& l) {
        confusion.update(l.state().outputs, l.state().batch_data.targets);
      }});
  learn.add(count);
  try {
    learn.validate(split);
  } catch (...) {
    learn.remove(*count);
    throw;
  }
  learn.remove(*count);
  confusion.compute();
  return counts;
}

double ratio(double over, double under) {
  return under > 0 ? over / under : std::numeric_limits<double>::quiet_NaN();
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
  TORCH_CHECK_VALUE(
      batch,
      fmt::format(
          "[show_batch] the {} loader has no batch; expected one.",
          to_string(split)));
  const VisibleBatch visible =
      visible_batch(data, std::move(*batch), loader.options().training);
  const int64_t count = std::min(options.count, visible.images.size(0));
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < count; ++i) {
    pictures.push_back({visible.images[i], {}});
    if (!visible.targets.defined()) continue;
    const TargetKind kind = target_kind(visible.targets, data.classes);
    if (kind == TargetKind::mask) {
      pictures.back().image = with_mask(visible.images[i], visible.targets[i]);
    } else {
      pictures.back().caption.push_back(
          {target_text(kind, visible.targets[i], data.classes)});
    }
  }
  save_grid(file, pictures, "", options);
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
  TORCH_CHECK_VALUE(
      count > 0,
      fmt::format(
          "[show_results] the {} data have no sample; expected one.",
          to_string(split)));
  std::vector<int64_t> indices(static_cast<size_t>(count));
  // Spread over the whole set, which is often sorted by class.
  for (int64_t i = 0; i < count; ++i) {
    indices[static_cast<size_t>(i)] = i * all.dataset().size() / count;
  }
  DataLoaderOptions loading = all.options();
  loading.workers = 0;
  const DataLoader some(
      std::make_shared<Subset>(all.dataset_ptr(), std::move(indices)),
      loading);
  const Predictions answers = learn.get_preds(some);
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  const VisibleBatch visible = visible_batch(
      data,
      some.dataset().get_batch(places, {}),
      /*augments=*/false);
  const bool has_targets = answers.targets.defined();
  const TargetKind kind = has_targets
                              ? target_kind(answers.targets, data.classes)
                          : data.classes.empty() ? TargetKind::number
                                                 : TargetKind::category;
  const torch::Tensor preds = decoded(kind, answers.preds);
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < count; ++i) {
    if (kind == TargetKind::mask) {
      const torch::Tensor right =
          (preds[i] == answers.targets[i]).to(torch::kFloat).mean();
      pictures.push_back(
          {with_mask(visible.images[i], answers.targets[i]), {{"target"}}});
      pictures.push_back(
          {with_mask(visible.images[i], preds[i]),
           {{fmt::format(
               "prediction, {:.0f} % right",
               100 * right.item<double>())}}});
      continue;
    }
    const std::string answer = target_text(kind, preds[i], data.classes);
    Picture picture{visible.images[i], {}};
    Rgb color = kTextColor;
    if (has_targets) {
      const std::string target =
          target_text(kind, answers.targets[i], data.classes);
      picture.caption.push_back({target});
      if (kind != TargetKind::number) {
        color = answer == target ? kRightColor : kWrongColor;
      }
    }
    picture.caption.push_back({answer, color});
    pictures.push_back(std::move(picture));
  }
  ShowOptions layout = options;
  if (kind == TargetKind::mask && layout.columns == 0) {
    layout.columns = count > 3 ? 4 : 2;
  }
  save_grid(
      file,
      pictures,
      !has_targets || kind == TargetKind::mask ? "" : "target / prediction",
      layout);
}

void show_masks(
    Learner& learn,
    const std::filesystem::path& file,
    const ShowMasksOptions& options) {
  constexpr int64_t kSpace = 6, kLegendLine = 26, kSwatch = 16;
  constexpr int64_t kSmallest = 240;  // height below which images are enlarged
  const Dataset& dataset = learn.data().loader(options.split).dataset();
  std::vector<int64_t> indices(static_cast<size_t>(
      std::clamp<int64_t>(options.count, 0, dataset.size())));
  std::iota(indices.begin(), indices.end(), 0);
  const Batch batch = dataset.get_batch(indices, {});
  TORCH_CHECK_VALUE(
      !indices.empty() && batch.inputs.size() == 1 &&
          batch.targets.size() == 1 && batch.targets[0].dim() == 3 &&
          batch.inputs[0].scalar_type() == torch::kByte &&
          batch.inputs[0].size(3) == 3,
      fmt::format(
          "[show_masks] count is {}, and the {} data have {} samples; expected "
          "at least one colour image with a mask.",
          options.count,
          to_string(options.split),
          dataset.size()));
  const torch::Tensor& images = batch.inputs[0];
  Tensors predicted;
  int64_t classes = 0;
  for (const torch::Tensor& image : images.unbind()) {
    const torch::Tensor scores = learn.predict(image).probabilities;
    classes = scores.size(0);
    predicted.push_back(scores.argmax(0));
  }
  std::vector<std::string> names = learn.data().classes;
  names.resize(std::min(names.size(), static_cast<size_t>(classes)));

  const int64_t times = std::max<int64_t>(1, kSmallest / images.size(1));
  const int64_t height = times * images.size(1), width = times * images.size(2);
  const int64_t page_width = 3 * width + 2 * kSpace;
  int64_t name_width = 3 * kSwatch;
  for (const std::string& name : names) {
    name_width = std::max(name_width, Page::text_width(name) + 3 * kSwatch);
  }
  const int64_t columns = std::max<int64_t>(1, page_width / name_width);
  const auto count = static_cast<int64_t>(names.size());
  const int64_t legend = images.size(0) * (height + kSpace);
  Page page(legend + (count + columns - 1) / columns * kLegendLine, page_width);
  for (int64_t i = 0; i < images.size(0); ++i) {
    const auto draw = [&](int64_t column, const torch::Tensor& image) {
      page.image(
          image,
          column * (width + kSpace),
          i * (height + kSpace),
          width,
          height);
    };
    draw(0, images[i]);
    draw(1, with_mask(images[i], batch.targets[0][i], classes));
    draw(2, with_mask(images[i], predicted[static_cast<size_t>(i)], classes));
  }
  const torch::Tensor colours = mask_colours(classes);
  for (int64_t i = 0; i < count; ++i) {
    const auto* colour = colours.const_data_ptr<uint8_t>() + 3 * i;
    const int64_t x = i % columns * name_width;
    const int64_t y = legend + i / columns * kLegendLine;
    page.box(x, y, kSwatch, kSwatch, {colour[0], colour[1], colour[2]});
    page.text(names[static_cast<size_t>(i)], x + kSwatch + 6, y + kSwatch - 3);
  }
  save_image(file, page.pixels());
}

SegmentationReport segmentation_report(Learner& learn, Split split) {
  const torch::Tensor counts = count_pixels(learn, split);
  const torch::Tensor actual = counts.sum(1), found = counts.sum(0);
  const auto& names = learn.data().classes;
  SegmentationReport report;
  double hits = 0, present = 0, seen = 0;
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const auto at = [i](const torch::Tensor& t) { return t[i].item<double>(); };
    const double hit = at(counts.diagonal());
    SegmentationReport::Row row{
        i < static_cast<int64_t>(names.size()) ? names[i] : std::to_string(i),
        static_cast<int64_t>(at(actual)),
        ratio(hit, at(actual)),
        ratio(2 * hit, at(actual) + at(found))};
    hits += hit;
    if (!std::isnan(row.accuracy)) {
      report.mean_accuracy += row.accuracy;
      ++present;
    }
    if (!std::isnan(row.dice)) {
      report.mean_dice += row.dice;
      ++seen;
    }
    report.classes.push_back(std::move(row));
  }
  report.accuracy = ratio(hits, counts.sum().item<double>());
  report.mean_accuracy = ratio(report.mean_accuracy, present);
  report.mean_dice = ratio(report.mean_dice, seen);
  return report;
}

std::string SegmentationReport::to_string() const {
  std::string text = fmt::format(
      "{:<12} {:>10} {:>9} {:>7}\n",
      "class",
      "pixels",
      "accuracy",
      "dice");
  int64_t pixels = 0;
  for (const Row& row : classes) {
    pixels += row.pixels;
    text += fmt::format(
        "{:<12} {:>10} {:>9.4f} {:>7.4f}\n",
        row.name,
        row.pixels,
        row.accuracy,
        row.dice);
  }
  return text + fmt::format(
                    "{:<12} {:>10} {:>9.4f} {:>7.4f}\n{:<12} {:>10} {:>9.4f}\n",
                    "mean",
                    "",
                    mean_accuracy,
                    mean_dice,
                    "all pixels",
                    pixels,
                    accuracy);
}

}  // namespace tern
