#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/data/support/sink.h"

namespace tern {

/// Positions of training and of validation samples, in order.
struct SplitIndices {
  std::vector<int64_t> train, valid;
};

/// Divides samples into folds at random: each sample is a validation sample in
/// one of them and a training sample in the others. scikit-learn's KFold with
/// shuffle.
///
///   for (const SplitIndices& fold : k_fold(images->size(), 5)) {
///     auto data = DataBunch::create(
///         std::make_shared<Subset>(augmented_images, fold.train),
///         std::make_shared<Subset>(images, fold.valid));
///   }
///
/// \param folds  2 to `samples`.
/// \throws c10::ValueError for another number of folds.
std::vector<SplitIndices>
k_fold(int64_t samples, int64_t folds, uint64_t seed = 42);

/// The same with about the same share of each class in every fold: the numbers
/// of its validation samples, and the sizes of the folds, differ by at most 1.
/// scikit-learn's StratifiedKFold with shuffle.
///
/// \param classes  [N] of an integer type.
/// \throws c10::ValueError for other classes or another number of folds, or if
///         every class has fewer samples than there are folds.
std::vector<SplitIndices> stratified_k_fold(
    const torch::Tensor& classes,
    int64_t folds,
    uint64_t seed = 42);

struct KFoldOptions {
  /// Gives every fold about the same share of each class, as
  /// `stratified_k_fold`. Targets are then read: images of a DataBunch are
  /// decoded once, those of a DataBlock are not.
  bool stratified = false;
  /// The same seed, the same folds.
  uint64_t seed = 42;
  /// Receives a warning of classes with fewer samples than there are folds;
  /// empty: `terminal()`.
  Sink sink = {};
};

/// For `stratified_k_fold`: warns of classes with fewer samples than there are
/// folds, by their names.
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
/// All but the samples is that of `data`: test loader, classes, device, batch
/// transforms, batch sizes. A dataset sees by `BatchContext::training` whether
/// it may augment: an ImageDataset gives training samples with the training
/// transforms and validation samples with those of validation, from whichever
/// of the two loaders of `data` they come. Two datasets that transform samples
/// each in a way of its own cannot be mixed (`Dataset::why_no_folds`): use
/// `k_fold`. The folds' datasets
/// are Subsets; call `presize` before, and for ImageDatasets see `k_folds` of a
/// DataBlock.
///
/// \param folds  2 to the number of samples.
/// \throws c10::ValueError for another number of folds, a stream, a loader with
///         a sampler, whose indices are those of its own samples, datasets of
///         different classes or shapes, and with `stratified` if targets[0] is
///         not one class per sample.
std::vector<DataBunch>
k_folds(const DataBunch& data, int64_t folds, const KFoldOptions& options = {});

}  // namespace tern
