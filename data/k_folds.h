#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/data/support/sink.h"

namespace tern {

/// Indices of training and validation samples, in ascending order.
struct SplitIndices {
  std::vector<int64_t> train, valid;
};

/// Splits samples into random folds: each sample is a validation sample in one
/// fold and a training sample in all others. Like scikit-learn's
/// `KFold(shuffle=True)`, but with different random numbers.
///
///   for (const SplitIndices& fold : k_fold(images->size(), 5)) {
///     auto data = DataBunch::create(
///         std::make_shared<Subset>(augmented_images, fold.train),
///         std::make_shared<Subset>(images, fold.valid));
///   }
///
/// \param folds  2 to `samples`.
/// \throws c10::ValueError for any other number of folds.
std::vector<SplitIndices>
k_fold(int64_t samples, int64_t folds, uint64_t seed = 42);

/// Like `k_fold`, with about the same fraction of each class in every fold: the
/// number of validation samples of a class, and the sizes of the folds, differ
/// by at most 1. Like scikit-learn's `StratifiedKFold(shuffle=True)`, but with
/// different random numbers.
///
/// \param classes  [N], of an integer dtype.
/// \throws c10::ValueError if `classes` or `folds` is invalid, or if every
///         class has fewer than `folds` samples.
std::vector<SplitIndices> stratified_k_fold(
    const torch::Tensor& classes,
    int64_t folds,
    uint64_t seed = 42);

struct KFoldOptions {
  /// Gives every fold about the same fraction of each class, like
  /// `stratified_k_fold`. This reads the targets: images of a DataBunch are
  /// decoded once, images of a DataBlock are not.
  bool stratified = false;
  /// The same seed produces the same folds.
  uint64_t seed = 42;
  /// Receives a warning about classes with fewer samples than folds; empty:
  /// `terminal()`.
  Sink sink = {};
};

/// For `stratified_k_fold`: warns about classes with fewer samples than folds,
/// by name.
void warn_of_rare_classes(
    const torch::Tensor& classes,
    int64_t folds,
    const std::vector<std::string>& names,
    const Sink& sink);

/// Returns a DataBunch for each fold of a cross-validation over the training
/// and validation samples of `data`.
///
///   double sum = 0;
///   for (const DataBunch& fold : k_folds(data, 5, {.stratified = true})) {
///     Learner learn(fold, make_model());
///     sum += learn.fit(3).validate()["accuracy"];
///   }
///
/// Everything except the samples is taken from `data`: test loader, classes,
/// device, batch transforms, batch sizes. `BatchContext::training` tells a
/// dataset whether it may augment: an ImageDataset applies the training
/// transforms to training samples and the validation transforms to validation
/// samples, whichever loader of `data` they come from. The training and
/// validation datasets must apply the same transforms (see
/// `Dataset::why_no_folds`). Image transforms are equal only if they are the
/// same objects; functions cannot be compared and therefore count as different.
/// Use `k_fold` for other datasets. Call `presize` on `data` before this
/// function: the folds' datasets are Subsets, which cannot be presized. For
/// ImageDatasets see also `k_folds` of a DataBlock.
///
/// \param folds  2 to the number of samples.
/// \throws c10::ValueError for any other number of folds, a stream, a loader
///         with a sampler (its indices would refer to other samples), or
///         datasets with different classes or shapes; with `stratified`, also
///         if targets[0] is not one class per sample.
std::vector<DataBunch>
k_folds(const DataBunch& data, int64_t folds, const KFoldOptions& options = {});

}  // namespace tern
