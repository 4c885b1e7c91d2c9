#include "tern/data/k_folds.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>
#include <fmt/ranges.h>

#include "tern/data/sampler.h"
#include "tern/data/stream_dataset.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// An epoch number that training never uses, so that the folds and the order
// within a class are independent of the order of the training samples, even
// with the same seed.
constexpr int64_t kFoldEpoch = -2;

void check_folds(const char* where, int64_t samples, int64_t folds) {
  TERN_CHECK_VALUE(
      folds >= 2 && folds <= samples,
      "[{}] got {} folds of {} samples; expected at least 2 folds, and a "
      "validation sample for each.",
      where,
      folds,
      samples);
}

// \param fold_of  For each sample, the fold in which it is a validation sample.
std::vector<SplitIndices> splits_of(
    const std::vector<int64_t>& fold_of,
    int64_t folds) {
  std::vector<SplitIndices> splits(folds);
  for (int64_t i = 0; i < std::ssize(fold_of); ++i) {
    for (int64_t fold = 0; fold < folds; ++fold) {
      auto& split = splits[fold];
      (fold == fold_of[i] ? split.valid : split.train).push_back(i);
    }
  }
  return splits;
}

// Finds the datasets that hold samples themselves.
void find_sources(const Dataset& data, std::vector<const Dataset*>& sources) {
  if (const auto* part = dynamic_cast<const Subset*>(&data)) {
    find_sources(part->source(), sources);
  } else if (const auto* all = dynamic_cast<const Concat*>(&data)) {
    for (const auto& source : all->sources()) find_sources(*source, sources);
  } else {
    sources.push_back(&data);
  }
}

std::vector<const Dataset*> sources_of(const DataLoader& loader) {
  std::vector<const Dataset*> sources;
  find_sources(loader.dataset(), sources);
  for (const Dataset* source : sources) {
    TORCH_CHECK_VALUE(
        !dynamic_cast<const StreamEpochs*>(source),
        "[k_folds] the samples come from a stream, which cannot be divided by "
        "index; expected datasets with random access. Divide the shards or "
        "files of the stream instead.");
  }
  return sources;
}

std::set<std::string> types_of(const std::vector<const Dataset*>& sources) {
  std::set<std::string> names;
  for (const Dataset* source : sources) {
    names.insert(c10::demangle(typeid(*source).name()));
  }
  return names;
}

// Every fold trains and validates on samples of all sources, so the sources
// must be compatible.
void check_can_be_mixed(const std::vector<const Dataset*>& sources) {
  for (const Dataset* source : sources) {
    for (const Dataset* other : sources) {
      if (typeid(*source) != typeid(*other)) continue;
      const std::string why = source->why_no_folds(*other);
      TERN_CHECK_VALUE(why.empty(), "[k_folds] {}.", why);
    }
  }
}

void check_loader(const DataLoader& loader, Split split) {
  TERN_CHECK_VALUE(
      !loader.options().sampler,
      "[k_folds] the {} loader has a sampler, whose indices refer to its own "
      "samples; expected none, since each fold has different samples. Omit "
      "sampler, balance_classes and shuffle_buffer, and give each fold its own "
      "sampler; k_folds of a DataBlock balances each fold.",
      to_string(split));
}

// Describes the first sample of a dataset, such as "[28, 28, 3] Byte, [] Long".
// A dataset may leave samples out, so the first one need not be at index 0.
std::string shapes_in(const Dataset& data) {
  for (int64_t index = 0; index < data.size(); ++index) {
    const Batch batch = data.get_batch({index}, {});
    if (batch.size() == 0) continue;
    Tensors tensors;
    for (const Tensors* of : {&batch.inputs, &batch.targets}) {
      for (const torch::Tensor& tensor : *of) tensors.push_back(tensor[0]);
    }
    return shapes_of(tensors);
  }
  return "";
}

// Checks that samples of both datasets can be in one batch.
void check_shapes(const Dataset& train, const Dataset& valid) {
  const std::string own = shapes_in(train), other = shapes_in(valid);
  TERN_CHECK_VALUE(
      own == other || own.empty() || other.empty(),
      "[k_folds] the first training sample is {} and the first validation "
      "sample {}; expected equal shapes, since a batch has samples of both. "
      "Create one dataset of all samples and divide it with k_fold; for boxes "
      "in images use k_folds of a DataBlock.",
      own,
      other);
}

// Returns the samples of both loaders.
std::shared_ptr<const Dataset> all_samples(const DataBunch& data) {
  const DataLoader& train = data.loader(Split::train);
  check_loader(train, Split::train);
  std::vector<const Dataset*> sources = sources_of(train);
  if (!data.valid) {
    check_can_be_mixed(sources);
    return train.dataset_ptr();
  }
  check_loader(*data.valid, Split::valid);
  const std::vector<const Dataset*> of_valid = sources_of(*data.valid);
  const auto train_types = types_of(sources), valid_types = types_of(of_valid);
  TERN_CHECK_VALUE(
      train_types == valid_types,
      "[k_folds] the training samples come from {} and the validation samples "
      "from {}, which may transform them differently; expected the same class "
      "for both, which distinguishes the two by BatchContext::training. Divide "
      "one dataset with k_fold and DataBunch::create.",
      fmt::join(train_types, ", "),
      fmt::join(valid_types, ", "));
  sources.insert(sources.end(), of_valid.begin(), of_valid.end());
  check_can_be_mixed(sources);
  check_shapes(train.dataset(), data.valid->dataset());
  return std::make_shared<Concat>(std::vector<std::shared_ptr<const Dataset>>{
      train.dataset_ptr(),
      data.valid->dataset_ptr()});
}

// Returns [N] kLong; -1 for a bad image that the dataset left out.
torch::Tensor read_classes(
    const std::shared_ptr<const Dataset>& samples,
    DataLoaderOptions loading) {
  loading.shuffle = loading.drop_last = loading.training = false;
  torch::Tensor classes = torch::full({samples->size()}, -1, torch::kLong);
  DataLoader loader(samples, std::move(loading));
  for (const Batch& batch : loader) {
    const torch::Tensor targets =
        batch.targets.empty() ? torch::Tensor() : batch.targets[0];
    const bool are_classes =
        targets.defined() && targets.dim() == 1 &&
        c10::isIntegralType(targets.scalar_type(), /*includeBool=*/true);
    TERN_CHECK_VALUE(
        are_classes,
        "[k_folds] stratified folds need one class for each sample; the "
        "targets are {}. Leave stratified off.",
        batch.targets.empty() ? "missing" : shapes_of({targets}));
    const auto rows = torch::tensor(batch.indices, torch::kLong);
    classes.index_copy_(0, rows, targets.cpu().to(torch::kLong));
  }
  return classes;
}

}  // namespace

void warn_of_rare_classes(
    const torch::Tensor& classes,
    int64_t folds,
    const std::vector<std::string>& names,
    const Sink& sink) {
  std::map<int64_t, int64_t> counts;
  const auto of = classes.accessor<int64_t, 1>();
  for (int64_t i = 0; i < of.size(0); ++i) ++counts[of[i]];
  std::vector<std::string> rare;
  for (const auto& [number, count] : counts) {
    if (number < 0 || count >= folds) continue;
    rare.push_back(
        number < std::ssize(names) ? names[number] : std::to_string(number));
  }
  if (rare.empty()) return;
  constexpr size_t kNamed = 10;
  const bool is_cut = rare.size() > kNamed;
  rare.resize(std::min(rare.size(), kNamed));
  sink.or_terminal()->warning(fmt::format(
      "k_folds: some classes have fewer samples than the {} folds, so some "
      "folds have no validation sample of them: {}{}.",
      folds,
      fmt::join(rare, ", "),
      is_cut ? ", ..." : ""));
}

std::vector<SplitIndices>
k_fold(int64_t samples, int64_t folds, uint64_t seed) {
  check_folds("k_fold", samples, folds);
  const auto order = RandomSampler(samples).indices(seed, kFoldEpoch);
  std::vector<int64_t> fold_of(samples);
  for (int64_t i = 0; i < samples; ++i) fold_of[order[i]] = i % folds;
  return splits_of(fold_of, folds);
}

std::vector<SplitIndices>
stratified_k_fold(const torch::Tensor& classes, int64_t folds, uint64_t seed) {
  TERN_CHECK_VALUE(
      classes.defined() && classes.dim() == 1 &&
          c10::isIntegralType(classes.scalar_type(), /*includeBool=*/true),
      "[stratified_k_fold] classes are {}; expected one whole number for each "
      "sample, [N].",
      shapes_of({classes}));
  const torch::Tensor numbers =
      classes.to(torch::kCPU, torch::kLong).contiguous();
  const int64_t samples = numbers.size(0);
  check_folds("stratified_k_fold", samples, folds);
  const int64_t* const of = numbers.const_data_ptr<int64_t>();
  std::map<int64_t, std::vector<int64_t>> members;
  for (const int64_t i : RandomSampler(samples).indices(seed, kFoldEpoch)) {
    members[of[i]].push_back(i);
  }
  const bool has_enough = std::ranges::any_of(members, [&](const auto& entry) {
    return std::ssize(entry.second) >= folds;
  });
  TERN_CHECK_VALUE(
      has_enough,
      "[stratified_k_fold] each of the {} classes has fewer samples than the "
      "{} folds; expected at least one class with a sample per fold. Use fewer "
      "folds, or k_fold.",
      members.size(),
      folds);
  // Distributes the samples of each class, starting at the fold where the
  // previous class ended.
  std::vector<int64_t> fold_of(samples);
  int64_t next = 0;
  for (const auto& [number, indices] : members) {
    for (const int64_t i : indices) fold_of[i] = next++ % folds;
  }
  return splits_of(fold_of, folds);
}

std::vector<DataBunch>
k_folds(const DataBunch& data, int64_t folds, const KFoldOptions& options) {
  const std::shared_ptr<const Dataset> samples = all_samples(data);
  check_folds("k_folds", samples->size(), folds);
  DataLoaderOptions training = data.train->options();
  DataLoaderOptions validation = data.valid ? data.valid->options() : training;
  validation.shuffle = validation.drop_last = validation.training = false;
  std::vector<SplitIndices> splits;
  if (options.stratified) {
    const torch::Tensor classes = read_classes(samples, validation);
    splits = stratified_k_fold(classes, folds, options.seed);
    warn_of_rare_classes(classes, folds, data.classes, options.sink);
  } else {
    splits = k_fold(samples->size(), folds, options.seed);
  }
  std::vector<DataBunch> bunches;
  for (SplitIndices& split : splits) {
    DataBunch fold = data;
    DataLoaderOptions loading = training;
    // As in ImageDataBunch, an incomplete batch is kept if it is the only one.
    loading.drop_last =
        training.drop_last && std::ssize(split.train) >= training.batch_size;
    fold.train = std::make_shared<DataLoader>(
        std::make_shared<Subset>(samples, std::move(split.train)),
        loading);
    fold.valid = std::make_shared<DataLoader>(
        std::make_shared<Subset>(samples, std::move(split.valid)),
        validation);
    bunches.push_back(std::move(fold));
  }
  return bunches;
}

}  // namespace tern
