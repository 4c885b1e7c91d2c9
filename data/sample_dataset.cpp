#include "tern/data/sample_dataset.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <ATen/Dispatch.h>
#include <ATen/ops/repeat_interleave.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

// One tensor of each sample, for example inputs[1].
struct Column {
  const char* where;  // the calling function
  c10::ArrayRef<Sample> samples;
  Tensors Sample::*list;
  int64_t position;

  int64_t size() const { return std::ssize(samples); }
  const torch::Tensor& operator[](int64_t row) const {
    return (samples[row].*list)[position];
  }
  std::string name(int64_t row) const;
  // Returns "inputs[1] of sample 7 is [3] Long".
  std::string text(int64_t row) const {
    return fmt::format("{} is {}", name(row), shapes_of({(*this)[row]}));
  }
};

const char* name_of(Tensors Sample::*list) {
  return list == &Sample::inputs ? "inputs" : "targets";
}

std::string name_of(c10::ArrayRef<Sample> samples, int64_t row) {
  const int64_t index = samples[row].index;
  return index >= 0 ? fmt::format("sample {}", index)
                    : fmt::format("the sample in row {}", row);
}

std::string Column::name(int64_t row) const {
  return fmt::format(
      "{}[{}] of {}",
      name_of(list),
      position,
      name_of(samples, row));
}

void check_counts(const char* where, c10::ArrayRef<Sample> samples) {
  TERN_CHECK_VALUE(
      !samples.empty(),
      "[{}] there is no sample; expected at least one.",
      where);
  for (int64_t row = 0; row < std::ssize(samples); ++row) {
    const Sample &sample = samples[row], &first = samples[0];
    TERN_CHECK_VALUE(
        sample.inputs.size() == first.inputs.size() &&
            sample.targets.size() == first.targets.size(),
        "[{}] {} has {} inputs and {} targets where {} has {} and {}; expected "
        "the same number in each.",
        where,
        name_of(samples, row),
        sample.inputs.size(),
        sample.targets.size(),
        name_of(samples, 0),
        first.inputs.size(),
        first.targets.size());
  }
}

void check_types(const Column& column) {
  for (int64_t row = 0; row < column.size(); ++row) {
    const torch::Tensor &tensor = column[row], &first = column[0];
    TERN_CHECK_VALUE(
        tensor.defined(),
        "[{}] {} is undefined; expected a tensor.",
        column.where,
        column.name(row));
    TERN_CHECK_VALUE(
        tensor.scalar_type() == first.scalar_type() &&
            tensor.device() == first.device(),
        "[{}] {} on {}, but {} on {}; expected one dtype and device. Convert "
        "the tensor in get.",
        column.where,
        column.text(row),
        tensor.device().str(),
        column.text(0),
        first.device().str());
  }
}

// Checks that tensors differ only in their first dimension.
void check_sequences(const Column& column) {
  check_types(column);
  for (int64_t row = 0; row < column.size(); ++row) {
    const torch::Tensor &tensor = column[row], &first = column[0];
    TERN_CHECK_VALUE(
        tensor.dim() > 0,
        "[{}] {}, which is 0-dim; expected [T, ...]. To stack this tensor, "
        "remove its position from the options.",
        column.where,
        column.text(row));
    TERN_CHECK_VALUE(
        tensor.sizes().slice(1) == first.sizes().slice(1),
        "[{}] {}, but {}; expected equal shapes after the first dimension, "
        "also for an empty sample.",
        column.where,
        column.text(row),
        column.text(0));
  }
}

torch::Tensor empty(
    const BatchContext& context,
    const std::vector<int64_t>& sizes,
    const torch::Tensor& like) {
  return like.is_cpu() ? context.empty(sizes, like.scalar_type())
                       : torch::empty(sizes, like.options());
}

torch::Tensor stack(const Column& column, const BatchContext& context) {
  check_types(column);
  Tensors rows;
  for (int64_t row = 0; row < column.size(); ++row) {
    TERN_CHECK_VALUE(
        column[row].sizes() == column[0].sizes(),
        "[{}] {}, but {}; expected equal shapes. Pad them with pad_sequences, "
        "or pack them with pack_sequences.",
        column.where,
        column.text(row),
        column.text(0));
    rows.push_back(column[row]);
  }
  std::vector<int64_t> sizes = rows[0].sizes().vec();
  sizes.insert(sizes.begin(), column.size());
  torch::Tensor all = empty(context, sizes, rows[0]);
  torch::stack_out(all, rows);
  return all;
}

bool can_hold(torch::ScalarType dtype, double value) {
  if (dtype == torch::kBool) return value == 0 || value == 1;
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
    return AT_DISPATCH_INTEGRAL_TYPES(dtype, "pad_sequences", [&] {
      using Limits = std::numeric_limits<scalar_t>;
      // The largest int64_t rounds up to a double that is out of int64_t's
      // range.
      return value == std::trunc(value) &&
             value >= static_cast<double>(Limits::min()) &&
             value < std::ldexp(1.0, Limits::digits);
    });
  }
  if (!std::isfinite(value)) return true;
  return std::isfinite(torch::tensor(value, torch::kDouble)
                           .to(dtype)
                           .to(torch::kDouble)
                           .item<double>());
}

int64_t padded_length(const Column& column, const SequencePadding& padding) {
  int64_t longest = padding.min_length;
  for (int64_t row = 0; row < column.size(); ++row) {
    const int64_t length = column[row].size(0);
    TERN_CHECK_VALUE(
        padding.fixed_length == 0 || length <= padding.fixed_length,
        "[{}] {}, longer than fixed_length, {}; expected at most that length. "
        "Raise fixed_length, or truncate the sample in get.",
        column.where,
        column.text(row),
        padding.fixed_length);
    longest = std::max(longest, length);
  }
  if (padding.fixed_length > 0) return padding.fixed_length;
  return (longest + padding.multiple - 1) / padding.multiple * padding.multiple;
}

torch::Tensor pad(
    const Column& column,
    const SequencePadding& padding,
    const BatchContext& context) {
  check_sequences(column);
  TERN_CHECK_VALUE(
      can_hold(column[0].scalar_type(), padding.value),
      "[{}] {}, which cannot hold the padding value {}; expected a value of "
      "that dtype. Set SequencePadding::value, or convert the tensor in get.",
      column.where,
      column.text(0),
      padding.value);
  const int64_t length = padded_length(column, padding);
  std::vector<int64_t> sizes = column[0].sizes().vec();
  sizes[0] = length;
  sizes.insert(sizes.begin(), column.size());
  torch::Tensor all = empty(context, sizes, column[0]);
  for (int64_t row = 0; row < column.size(); ++row) {
    const torch::Tensor of_row = all[row];
    const int64_t own = column[row].size(0);
    of_row.narrow(0, 0, own).copy_(column[row]);
    of_row.narrow(0, own, length - own).fill_(padding.value);
  }
  return all;
}

// Returns lengths [N] kLong, on the device of the tensors.
torch::Tensor lengths_of(const Column& column, const BatchContext& context) {
  torch::Tensor lengths = context.empty({column.size()}, torch::kLong);
  auto* const numbers = lengths.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < column.size(); ++row) {
    numbers[row] = column[row].size(0);
  }
  return lengths.to(column[0].device());
}

torch::Tensor
mask_of(const Column& column, int64_t length, const BatchContext& context) {
  const torch::Device device = column[0].device();
  const torch::Tensor places = torch::arange(length, device);
  const torch::Tensor lengths = lengths_of(column, context).unsqueeze(1);
  if (!device.is_cpu()) return places < lengths;
  torch::Tensor mask = context.empty({column.size(), length}, torch::kBool);
  torch::lt_out(mask, places, lengths);
  return mask;
}

torch::Tensor concatenate(const Column& column, const BatchContext& context) {
  check_sequences(column);
  Tensors parts;
  int64_t rows = 0;
  for (int64_t row = 0; row < column.size(); ++row) {
    parts.push_back(column[row]);
    rows += column[row].size(0);
  }
  std::vector<int64_t> sizes = column[0].sizes().vec();
  sizes[0] = rows;
  torch::Tensor all = empty(context, sizes, column[0]);
  torch::cat_out(all, parts);
  return all;
}

// Calls `act` for each tensor of the samples, with its options or null.
template <class Options, class PositionOf, class Act>
void for_each_column(
    const char* where,
    c10::ArrayRef<Sample> samples,
    const std::vector<Options>& of_inputs,
    const std::vector<Options>& of_targets,
    const PositionOf& position_of,
    const Act& act) {
  check_counts(where, samples);
  for (const auto list : {&Sample::inputs, &Sample::targets}) {
    const auto& chosen = list == &Sample::inputs ? of_inputs : of_targets;
    const int64_t count = std::ssize(samples[0].*list);
    for (const Options& options : chosen) {
      TERN_CHECK_VALUE(
          std::invoke(position_of, options) < count,
          "[{}] the options name {}[{}], but {} has {} {}; expected a smaller "
          "position.",
          where,
          name_of(list),
          std::invoke(position_of, options),
          name_of(samples, 0),
          count,
          name_of(list));
    }
    for (int64_t position = 0; position < count; ++position) {
      const auto options = std::ranges::find(chosen, position, position_of);
      act(Column{where, samples, list, position},
          options == chosen.end() ? nullptr : &*options);
    }
  }
}

Tensors& list_of(Batch& batch, const Column& column) {
  return column.list == &Sample::inputs ? batch.inputs : batch.targets;
}

void check_positions(
    const char* where,
    const char* list,
    std::vector<int64_t> positions) {
  std::ranges::sort(positions);
  for (size_t i = 0; i < positions.size(); ++i) {
    TERN_CHECK_VALUE(
        positions[i] >= 0 && (i == 0 || positions[i] != positions[i - 1]),
        "[{}] the options for {} have position {}{}; expected distinct "
        "positions of 0 or more.",
        where,
        list,
        positions[i],
        positions[i] < 0 ? "" : " twice");
  }
}

void check_paddings(
    const char* list,
    const std::vector<SequencePadding>& paddings) {
  std::vector<int64_t> positions;
  for (const SequencePadding& padding : paddings) {
    TERN_CHECK_VALUE(
        padding.multiple >= 1 && padding.min_length >= 0 &&
            padding.fixed_length >= 0,
        "[pad_sequences] the padding of {}[{}] has multiple {}, min_length {} "
        "and fixed_length {}; expected a multiple of 1 or more, and lengths of "
        "0 or more.",
        list,
        padding.position,
        padding.multiple,
        padding.min_length,
        padding.fixed_length);
    positions.push_back(padding.position);
  }
  check_positions("pad_sequences", list, std::move(positions));
}

void check_lengths(const char* where, const torch::Tensor& lengths) {
  TERN_CHECK_VALUE(
      lengths.defined() && lengths.dim() == 1 &&
          lengths.scalar_type() == torch::kLong,
      "[{}] the lengths are {}; expected [N] Long, as pack_sequences returns "
      "them in front of the values.",
      where,
      shapes_of({lengths}));
}

}  // namespace

Collate stack_samples() {
  return [](c10::ArrayRef<Sample> samples, const BatchContext& context) {
    Batch batch;
    for_each_column<int64_t>(
        "stack_samples",
        samples,
        {},
        {},
        std::identity(),
        [&](const Column& column, const int64_t*) {
          list_of(batch, column).push_back(stack(column, context));
        });
    return batch;
  };
}

Collate pad_sequences(PadOptions options) {
  check_paddings("inputs", options.inputs);
  check_paddings("targets", options.targets);
  return [options = std::move(options)](
             c10::ArrayRef<Sample> samples,
             const BatchContext& context) {
    Batch batch;
    Tensors input_masks, target_masks;
    for_each_column(
        "pad_sequences",
        samples,
        options.inputs,
        options.targets,
        &SequencePadding::position,
        [&](const Column& column, const SequencePadding* padding) {
          Tensors& list = list_of(batch, column);
          if (!padding) {
            list.push_back(stack(column, context));
            return;
          }
          list.push_back(pad(column, *padding, context));
          if (padding->mask == MaskPlace::none) return;
          const bool is_input = padding->mask == MaskPlace::input;
          (is_input ? input_masks : target_masks)
              .push_back(mask_of(column, list.back().size(1), context));
        });
    batch.inputs.insert(
        batch.inputs.end(),
        input_masks.begin(),
        input_masks.end());
    batch.targets.insert(
        batch.targets.end(),
        target_masks.begin(),
        target_masks.end());
    return batch;
  };
}

Collate pack_sequences(PackOptions options) {
  check_positions("pack_sequences", "inputs", options.inputs);
  check_positions("pack_sequences", "targets", options.targets);
  return [options = std::move(options)](
             c10::ArrayRef<Sample> samples,
             const BatchContext& context) {
    Batch batch;
    for_each_column(
        "pack_sequences",
        samples,
        options.inputs,
        options.targets,
        std::identity(),
        [&](const Column& column, const int64_t* is_packed) {
          Tensors& list = list_of(batch, column);
          if (!is_packed) {
            list.push_back(stack(column, context));
            return;
          }
          torch::Tensor values = concatenate(column, context);
          list.push_back(lengths_of(column, context));
          list.push_back(std::move(values));
        });
    return batch;
  };
}

torch::Tensor offsets_of(const torch::Tensor& lengths) {
  check_lengths("offsets_of", lengths);
  return lengths.cumsum(0) - lengths;
}

torch::Tensor sample_of_row(const torch::Tensor& lengths, int64_t rows) {
  check_lengths("sample_of_row", lengths);
  if (lengths.is_cpu()) {
    const auto sum = lengths.sum().item<int64_t>();
    TERN_CHECK_VALUE(
        sum == rows,
        "[sample_of_row] the lengths add up to {}, and there are {} rows; "
        "expected the same number. Pass the lengths that precede these values.",
        sum,
        rows);
  }
  return at::repeat_interleave(lengths, std::optional(rows));
}

SampleDataset::SampleDataset(Collate collate) : collate_(std::move(collate)) {
  TERN_CHECK_VALUE(
      collate_,
      "[SampleDataset] collate is empty; expected a function. Omit it for "
      "stack_samples().");
}

Batch SampleDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  std::vector<Sample> samples;
  samples.reserve(indices.size());
  for (int64_t row = 0; row < std::ssize(indices); ++row) {
    samples.push_back(get(indices[row], context.of_row(row)));
    samples.back().index = indices[row];
  }
  if (samples.empty()) return {};
  Batch batch = collate_(samples, context);
  TERN_CHECK_VALUE(
      batch.size() + std::ssize(batch.left_out) == std::ssize(samples),
      "[SampleDataset] collate returned inputs of {} for {} samples; expected "
      "one row per sample in inputs[0]. Return a tensor with one row per "
      "sample first, such as the lengths of packed values.",
      shapes_of(batch.inputs),
      samples.size());
  return batch;
}

SampleList::SampleList(std::vector<Sample> samples, Collate collate)
    : SampleDataset(std::move(collate)), samples_(std::move(samples)) {}

}  // namespace tern
