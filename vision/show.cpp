#include "tern/vision/show.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tern/vision/picture_grid.h"
#include "tern/vision/save_image.h"
#include "tern/vision/target_text.h"
#include "tern/vision/visible_batch.h"

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

}  // namespace tern
