#include "tern/callbacks/schedules/lr_find.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/kernels/check.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/loop.h"
#include "tern/learner/loss_average.h"
#include "tern/learner/plots/plot.h"

namespace tern {

namespace {

// Raises the learning rates batch by batch and records the smoothed losses.
class LrFinder final : public Callback {
 public:
  LrFinder(
      std::vector<double> starts,
      std::vector<double> ends,
      const LrFindOptions& options)
      : starts_(std::move(starts)), ends_(std::move(ends)), options_(options) {}

  void on_batch_begin(Learner& learn) override {
    const double position = static_cast<double>(found.lrs.size()) /
                            static_cast<double>(options_.num_it);
    std::vector<double> rates;
    for (size_t i = 0; i < starts_.size(); ++i) {
      rates.push_back(starts_[i] * std::pow(ends_[i] / starts_[i], position));
    }
    found.lrs.push_back(rates.back());
    loop::set_hyper_parameter(parts_of(learn), HyperParameter::lr, rates);
  }

  void on_batch_end(Learner& learn) override {
    average_.add(mean_over_ranks(
        communicator(learn),
        {learn.state().loss.item<double>(), parts_of(learn).step.loss_count}));
    if (average_.is_empty()) {  // no counted targets so far
      found.lrs.pop_back();
      return;
    }
    const double smooth = average_.value();
    found.losses.push_back(smooth);
    best_ = std::min(best_, smooth);
    if (options_.stop_div && (std::isnan(smooth) || smooth > 4 * best_)) {
      learn.state().stop_training = true;
    }
  }

  // Runs after other callbacks' schedules.
  int order() const override { return callback_order::kScheduler + 1; }

  LrFind found;

 private:
  std::vector<double> starts_, ends_;
  LrFindOptions options_;
  LossAverage average_;
  double best_ = std::numeric_limits<double>::infinity();
};

// Number of diverging losses to omit at the end, which would flatten the rest
// of the plot; fastai's skip_end.
constexpr int64_t kSkipEnd = 5;

// ---- Suggestions as in fastai v2, on trimmed lists ----

// A point in the middle third of the longest falling subsequence of losses.
double valley(const std::vector<double>& lrs, const std::vector<double>& y) {
  std::vector<int64_t> length(y.size(), 1);
  int64_t end = 0;
  for (size_t i = 1; i < y.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (y[i] < y[j] && length[i] < length[j] + 1) length[i] = length[j] + 1;
      if (length[end] < length[i]) end = static_cast<int64_t>(i);
    }
  }
  const int64_t start = end - length[end];
  const double section = static_cast<double>(end - start) / 3;
  const int64_t at =
      start + static_cast<int64_t>(section) + static_cast<int64_t>(section / 2);
  return lrs[std::clamp<int64_t>(at, 0, static_cast<int64_t>(lrs.size()) - 1)];
}

double steep(const std::vector<double>& lrs, const std::vector<double>& y) {
  size_t best = 0;
  double steepest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i + 1 < y.size(); ++i) {
    const double slope =
        (y[i + 1] - y[i]) / (std::log(lrs[i + 1]) - std::log(lrs[i]));
    if (slope < steepest) {
      steepest = slope;
      best = i;
    }
  }
  return lrs[best];
}

double minimum(const std::vector<double>& lrs, const std::vector<double>& y) {
  return lrs[std::min_element(y.begin(), y.end()) - y.begin()] / 10;
}

// Searches backwards from the end, with a window of 15, for equal slopes.
std::optional<double> slide(
    const std::vector<double>& lrs,
    const std::vector<double>& y) {
  constexpr int64_t kWindow = 15;
  constexpr double kThreshold = 0.005;
  const auto n = static_cast<int64_t>(y.size());
  if (n <= kWindow) return std::nullopt;
  std::vector<double> slopes(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t a = std::max<int64_t>(i - 1, 0), b = std::min(i + 1, n - 1);
    slopes[i] = (y[b] - y[a]) / static_cast<double>(b - a);
  }
  int64_t right = n - 1, left = right - kWindow;
  double rate = lrs[left];
  while (left >= 0 && std::abs(slopes[right] - slopes[left]) > kThreshold) {
    rate = lrs[left];
    --right;
    --left;
  }
  return rate;
}

// Drops the first tenth, whose average has not settled, the last losses, which
// diverge, and everything after a loss that is NaN or infinite.
void suggest(LrFind& found, int64_t num_it) {
  const auto total = static_cast<int64_t>(found.losses.size());
  const int64_t begin = std::min(num_it / 10, total);
  const int64_t end = std::max(begin, total - kSkipEnd);
  std::vector<double> lrs, losses;
  for (int64_t i = begin; i < end && std::isfinite(found.losses[i]); ++i) {
    lrs.push_back(found.lrs[i]);
    losses.push_back(found.losses[i]);
  }
  if (losses.size() < 2) return;
  found.valley = valley(lrs, losses);
  found.steep = steep(lrs, losses);
  found.minimum = minimum(lrs, losses);
  found.slide = slide(lrs, losses);
}

}  // namespace

void LrFind::plot(const std::filesystem::path& file) const {
  Plot plot;
  plot.title = "Learning rate finder";
  plot.x_label = "learning rate";
  plot.y_label = "loss";
  plot.log_x = true;
  const int64_t left_out = std::ssize(losses) > kSkipEnd ? kSkipEnd : 0;
  plot.curves.push_back(
      {"smoothed loss",
       {lrs.begin(), lrs.end() - left_out},
       {losses.begin(), losses.end() - left_out}});
  const auto mark = [&](const char* name, const std::optional<double>& lr) {
    const auto at = lr ? std::find(lrs.begin(), lrs.end(), *lr) : lrs.end();
    if (at == lrs.end()) return;
    plot.curves.push_back(
        {fmt::format("{} {:.2g}", name, *lr),
         {*lr},
         {losses[at - lrs.begin()]}});
  };
  mark("valley", valley);
  mark("steep", steep);
  mark("slide", slide);
  save_plot(file, plot);
}

LrFind Learner::lr_find() {
  return lr_find(LrFindOptions{});
}

LrFind Learner::lr_find(const LrFindOptions& options) {
  check_at_least("Learner::lr_find", "num_it", options.num_it, 6);
  check_not_fitting(*this, "Learner::lr_find");
  const auto starts = options.start.resolve(parts_->groups.size(), 1e-7);
  const auto ends = options.end.resolve(parts_->groups.size(), 10);
  for (size_t i = 0; i < starts.size(); ++i) {
    TERN_CHECK_VALUE(
        starts[i] > 0 && starts[i] < ends[i],
        "[Learner::lr_find] start is {} and end is {}; expected 0 < start < "
        "end.",
        starts[i],
        ends[i]);
  }
  const auto finder = std::make_shared<LrFinder>(starts, ends, options);
  undo(*this, [&] {
    fit_batches(*this, options.num_it, starts.back(), {finder});
  });
  suggest(finder->found, options.num_it);
  parts_->record_call(fmt::format(
      "lr_find({:.4g}, {:.4g}, num_it = {})",
      starts.back(),
      ends.back(),
      options.num_it));
  return std::move(finder->found);
}

}  // namespace tern
