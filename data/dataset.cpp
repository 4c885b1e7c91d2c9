#include "tern/data/dataset.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "tern/data/support/error_text.h"
#include "tern/data/support/occurrences.h"
#include "tern/kernels/check.h"

namespace tern {

torch::Tensor BufferPool::empty(
    c10::IntArrayRef sizes,
    torch::ScalarType dtype) {
  const auto options = torch::TensorOptions().dtype(dtype);
  if (pin_memory_) return torch::empty(sizes, options.pinned_memory(true));
  const auto is_free = [](const torch::Tensor& tensor) {
    return tensor.storage().use_count() == 1;
  };
  // Drops the gradients and the shape that the last user may have set.
  const auto new_tensor = [](const torch::Tensor& memory) {
    return memory.variable_data();
  };
  const std::lock_guard lock(mutex_);
  for (const torch::Tensor& tensor : tensors_) {
    if (is_free(tensor) && tensor.scalar_type() == dtype &&
        tensor.sizes() == sizes) {
      return new_tensor(tensor);
    }
  }
  // Frees unused buffers of other shapes (such as an epoch's incomplete last
  // batch), so that the pool never becomes larger than needed.
  std::erase_if(tensors_, [&](const torch::Tensor& tensor) {
    return is_free(tensor) && tensors_.size() > 64;
  });
  tensors_.push_back(torch::empty(sizes, options));
  return new_tensor(tensors_.back());
}

torch::Tensor BatchContext::empty(
    c10::IntArrayRef sizes,
    torch::ScalarType dtype) const {
  return buffers ? buffers->empty(sizes, dtype) : torch::empty(sizes, dtype);
}

namespace {

// Derives a different seed for each number; 0 gives the seed itself. Also works
// on derived seeds, where a sum or XOR with the number could collide. Uses the
// finalizer of SplitMix64 (Steele et al., "Fast splittable pseudorandom number
// generators", OOPSLA 2014).
uint64_t other_seed(uint64_t seed, int64_t number, uint64_t key) {
  if (number == 0) return seed;
  uint64_t mixed = seed + static_cast<uint64_t>(number) * key;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58'476d'1ce4'e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d0'49bb'1331'11eb;
  return mixed ^ (mixed >> 31);
}

// Returns the overall occurrence of a source sample in a dataset that contains
// it `times` times, for the copy that is preceded by `before` others.
int64_t occurrence_within(int64_t occurrence, int64_t times, int64_t before) {
  return occurrence * times + before;
}

}  // namespace

BatchContext BatchContext::of_row(int64_t row) const {
  constexpr uint64_t kOccurrenceKey = 0x9e37'79b9'7f4a'7c15;
  BatchContext one = *this;
  one.occurrences = {};
  one.seed = other_seed(seed, occurrence(row), kOccurrenceKey);
  return one;
}

BatchContext BatchContext::of_rows(int64_t begin, int64_t count) const {
  BatchContext part = *this;
  if (!occurrences.empty()) part.occurrences = occurrences.slice(begin, count);
  return part;
}

BatchContext BatchContext::for_view(int64_t number) const {
  constexpr uint64_t kViewKey = 0xd1b5'4a32'd192'ed03;
  BatchContext other = *this;
  other.seed = other_seed(seed, number, kViewKey);
  return other;
}

std::string Dataset::describe(int64_t index) const {
  return fmt::format("sample {}", index);
}

Subset::Subset(
    std::shared_ptr<const Dataset> source,
    std::vector<int64_t> indices)
    : source_(std::move(source)), indices_(std::move(indices)) {
  TORCH_CHECK_VALUE(
      source_,
      "[Subset] the source is null; expected a dataset.");
  const int64_t size = source_->size();
  for (const int64_t index : indices_) {
    TORCH_CHECK_INDEX(
        index >= 0 && index < size,
        fmt::format(
            "[Subset] index {} is out of range of the source; expected 0 to "
            "{}.",
            index,
            size - 1));
  }
  before_ = occurrences_in(indices_);
  if (before_.empty()) return;
  std::unordered_map<int64_t, int64_t> times;
  for (const int64_t index : indices_) ++times[index];
  times_.reserve(indices_.size());
  for (const int64_t index : indices_) times_.push_back(times[index]);
}

Batch Subset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  std::vector<int64_t> source_indices;
  source_indices.reserve(indices.size());
  for (const int64_t index : indices) {
    source_indices.push_back(indices_.at(index));
  }
  if (times_.empty()) return source_->get_batch(source_indices, context);
  std::vector<int64_t> occurrences;
  for (int64_t row = 0; row < std::ssize(indices); ++row) {
    occurrences.push_back(occurrence_within(
        context.occurrence(row),
        times_[indices[row]],
        before_[indices[row]]));
  }
  BatchContext of_source = context;
  of_source.occurrences = occurrences;
  return source_->get_batch(source_indices, of_source);
}

std::shared_ptr<const Dataset> Subset::begin_epoch(
    c10::ArrayRef<int64_t> order,
    const BatchContext& context) const {
  std::vector<int64_t> of_source;
  of_source.reserve(order.size());
  for (const int64_t index : order) of_source.push_back(indices_.at(index));
  auto opened = source_->begin_epoch(of_source, context);
  if (!opened) return nullptr;
  const auto epoch = std::make_shared<Subset>(*this);
  epoch->source_ = std::move(opened);
  return epoch;
}

std::string Subset::describe(int64_t index) const {
  return source_->describe(indices_.at(index));
}

Concat::Concat(std::vector<std::shared_ptr<const Dataset>> sources)
    : sources_(std::move(sources)) {
  int64_t end = 0;
  for (const auto& source : sources_) {
    TORCH_CHECK_VALUE(source, "[Concat] a source is null; expected datasets.");
    end += source->size();
    ends_.push_back(end);
    times_.push_back(std::count(sources_.begin(), sources_.end(), source));
    before_.push_back(std::count(
        sources_.begin(),
        sources_.begin() + std::ssize(before_),
        source));
  }
}

std::pair<size_t, int64_t> Concat::locate(int64_t index) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  TORCH_CHECK_INDEX(
      index >= 0 && end != ends_.end(),
      fmt::format(
          "[Concat] index {} is out of range; expected 0 to {}.",
          index,
          size() - 1));
  const size_t source = end - ends_.begin();
  return {source, index - (source ? ends_[source - 1] : 0)};
}

Batch Concat::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  // Consecutive samples from the same source are requested together.
  std::vector<Batch> parts;
  std::vector<int64_t> run, occurrences;
  size_t run_source = 0;
  const auto flush = [&] {
    if (run.empty()) return;
    BatchContext of_source = context;
    of_source.occurrences = occurrences;
    parts.push_back(sources_[run_source]->get_batch(run, of_source));
    run.clear();
    occurrences.clear();
  };
  for (int64_t row = 0; row < std::ssize(indices); ++row) {
    const auto [source, local] = locate(indices[row]);
    if (source != run_source) {
      flush();
      run_source = source;
    }
    run.push_back(local);
    if (context.occurrences.empty() && times_[source] == 1) continue;
    occurrences.push_back(occurrence_within(
        context.occurrence(row),
        times_[source],
        before_[source]));
  }
  flush();
  return parts.size() == 1 ? std::move(parts[0]) : collate(parts, context);
}

std::shared_ptr<const Dataset> Concat::begin_epoch(
    c10::ArrayRef<int64_t> order,
    const BatchContext& context) const {
  for (size_t i = 0; i + 1 < sources_.size(); ++i) {
    TERN_CHECK_VALUE(
        !context.training || !sources_[i]->can_end_early(),
        "[Concat] dataset {} of {} can end early, as a stream that cannot "
        "restart does, and training would end with it; expected such a dataset "
        "only at the end. Put it last.",
        i + 1,
        sources_.size());
  }
  std::vector<std::vector<int64_t>> of_sources(sources_.size());
  for (const int64_t index : order) {
    const auto [source, local] = locate(index);
    of_sources[source].push_back(local);
  }
  std::shared_ptr<Concat> epoch;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (of_sources[i].empty()) continue;
    auto opened = sources_[i]->begin_epoch(of_sources[i], context);
    if (!opened) continue;
    if (!epoch) epoch = std::make_shared<Concat>(*this);
    epoch->sources_[i] = std::move(opened);
  }
  return epoch;
}

bool Concat::can_end_early() const {
  return std::ranges::any_of(sources_, [](const auto& source) {
    return source->can_end_early();
  });
}

std::string Concat::describe(int64_t index) const {
  const auto [source, local] = locate(index);
  return sources_[source]->describe(local);
}

TensorDataset::TensorDataset(Tensors inputs, Tensors targets)
    : inputs_(std::move(inputs)), targets_(std::move(targets)) {
  TORCH_CHECK_VALUE(
      !inputs_.empty(),
      "[TensorDataset] there are no input tensors; expected at least one.");
  for (const Tensors* list : {&inputs_, &targets_}) {
    for (const torch::Tensor& tensor : *list) {
      TERN_CHECK_VALUE(
          tensor.defined() && tensor.dim() > 0 &&
              tensor.size(0) == inputs_[0].size(0),
          "[TensorDataset] a tensor is {}; expected {} rows, as in inputs[0].",
          shapes_of({tensor}),
          inputs_[0].dim() > 0 ? inputs_[0].size(0) : 0);
    }
  }
}

Batch TensorDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  const torch::Tensor rows = torch::from_blob(
      const_cast<int64_t*>(indices.data()),
      {static_cast<int64_t>(indices.size())},
      torch::kLong);
  const auto select = [&](const torch::Tensor& tensor) {
    if (!tensor.is_cpu()) {
      return tensor.index_select(0, rows.to(tensor.device()));
    }
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes[0] = rows.size(0);
    torch::Tensor selected = context.empty(sizes, tensor.scalar_type());
    torch::index_select_out(selected, tensor, 0, rows);
    return selected;
  };
  Batch batch{inputs_, targets_};
  for (Tensors* const list : {&batch.inputs, &batch.targets}) {
    for (torch::Tensor& tensor : *list) tensor = select(tensor);
  }
  return batch;
}

namespace {

torch::Tensor concatenate(
    c10::ArrayRef<Batch> samples,
    Tensors Batch::*list,
    size_t position,
    const BatchContext& context) {
  Tensors parts;
  int64_t rows = 0;
  for (const Batch& sample : samples) {
    TERN_CHECK_VALUE(
        (sample.*list).size() == (samples[0].*list).size(),
        "[collate] a sample has {} tensors, but the first has {}; expected the "
        "same number in every sample.",
        (sample.*list).size(),
        (samples[0].*list).size());
    const torch::Tensor& part = (sample.*list)[position];
    const torch::Tensor& first = (samples[0].*list)[position];
    TERN_CHECK_VALUE(
        part.dim() > 0 && part.sizes().slice(1) == first.sizes().slice(1) &&
            part.scalar_type() == first.scalar_type(),
        "[collate] a sample is {}, but the first is {}; expected equal dtypes "
        "and, after the first dimension, equal shapes. Resize the samples to "
        "the same size (sequences with SequencePadding::fixed_length).",
        shapes_of({part}),
        shapes_of({first}));
    rows += part.size(0);
    parts.push_back(part);
  }
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  sizes[0] = rows;
  torch::Tensor all = context.empty(sizes, parts[0].scalar_type());
  torch::cat_out(all, parts);
  return all;
}

}  // namespace

Batch collate(c10::ArrayRef<Batch> samples, const BatchContext& context) {
  Batch batch;
  int64_t asked_for = 0;
  for (const Batch& sample : samples) {
    for (const int64_t row : sample.left_out) {
      batch.left_out.push_back(asked_for + row);
    }
    asked_for += sample.size() + std::ssize(sample.left_out);
  }
  // A batch whose samples were all left out may have no tensors.
  const auto is_nothing = [](const Batch& sample) {
    return sample.inputs.empty() && !sample.left_out.empty();
  };
  std::vector<Batch> others;
  if (std::ranges::any_of(samples, is_nothing)) {
    std::ranges::remove_copy_if(
        samples,
        std::back_inserter(others),
        is_nothing);
    samples = others;
  }
  if (samples.empty()) return batch;
  for (const auto list : {&Batch::inputs, &Batch::targets}) {
    for (size_t i = 0; i < (samples[0].*list).size(); ++i) {
      (batch.*list).push_back(concatenate(samples, list, i, context));
    }
  }
  return batch;
}

}  // namespace tern
