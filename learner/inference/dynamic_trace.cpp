#include "tern/learner/inference/dynamic_trace.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/jit/passes/shape_analysis.h>
#include <torch/script.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/program_checks.h"
#include "tern/learner/inference/trace.h"
#include "tern/learner/inference/traced_sizes.h"
#include "tern/learner/inference/value_reads.h"

namespace tern {

namespace {

namespace jit = torch::jit;

/// Calls `f`. Unset if the network rejects such inputs, for any reason other
/// than lack of memory.
template <class F>
auto if_taken(const F& f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Calls `f` for an optional check. Also unset on lack of memory.
template <class F>
auto if_possible(const F& f) -> std::optional<decltype(f())> {
  try {
    return if_taken(f);
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

struct Dimension {
  size_t input;
  int64_t index;
};

/// Dimensions of the same size that may have to change together, such as the
/// lengths of token ids and of their mask.
using Group = std::vector<Dimension>;

/// Groups all dimensions of the inputs except the batch dimension. Two inputs
/// with samples share a group if the same dimension has the same size in both.
/// Dimensions of inputs without samples, such as a mask [T, T], are grouped
/// with all dimensions of the same size.
/// \param have  Which inputs have samples.
std::vector<Group> groups_of(
    const Tensors& inputs,
    const std::vector<bool>& have) {
  std::vector<Group> groups;
  const auto size_of = [&](const Dimension& dimension) {
    return inputs[dimension.input].size(dimension.index);
  };
  const auto add = [&](const Dimension& dimension) {
    for (Group& group : groups) {
      const bool is_alike =
          !have[dimension.input] || group[0].index == dimension.index;
      if (is_alike && size_of(group[0]) == size_of(dimension)) {
        group.push_back(dimension);
        return;
      }
    }
    groups.push_back({dimension});
  };
  for (const bool has_samples : {true, false}) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (have[i] != has_samples) continue;
      for (int64_t d = has_samples ? 1 : 0; d < inputs[i].dim(); ++d) {
        add({i, d});
      }
    }
  }
  return groups;
}

/// Repeats or truncates the inputs along the group's dimensions.
Tensors resized(Tensors inputs, const Group& group, int64_t size) {
  for (const auto& [input, dimension] : group) {
    torch::Tensor& x = inputs[input];
    const auto places = torch::arange(size, x.device()) % x.size(dimension);
    x = x.index_select(dimension, places);
  }
  return inputs;
}

/// Returns the largest power of two, up to 32, that divides a size. Networks
/// that halve an image several times accept only multiples of such a number.
int64_t step_of(int64_t size) {
  int64_t step = 1;
  while (step < 32 && size % (2 * step) == 0) step *= 2;
  return step;
}

/// Pairs of sizes to try in turn: the first to learn from, the second to
/// compare with.
std::vector<std::pair<int64_t, int64_t>> other_sizes(int64_t size) {
  const int64_t step = step_of(size);
  std::vector<std::pair<int64_t, int64_t>> pairs = {
      {size + step, size + 2 * step}};
  if (size > 2 * step) pairs.emplace_back(size - step, size - 2 * step);
  if (size != step) pairs.emplace_back(2 * size, 3 * size);
  return pairs;
}

/// The sizes that the program accepts for a group that may change.
struct FreeGroup {
  Group dimensions;
  int64_t other_size = 0;  // a size that the network accepts
  std::optional<int64_t> limit = {};
  int64_t step = 1;  // sizes are multiples of it
};

/// A dimension that must have the example's size, and why.
struct FixedDimension {
  Dimension dimension;
  std::string reason;
};

class DynamicTrace {
 public:
  DynamicTrace(
      Model& model,
      const Tensors& inputs,
      const DynamicTraceOptions& options)
      : model_(model),
        inputs_(inputs),
        options_(options),
        have_(have_samples(inputs)),
        is_dynamic_batch_(options.dynamic_batch && have_[0]) {
    for (const torch::Tensor& input : inputs) {
      TERN_CHECK_VALUE(
          input.numel() > 0,
          "[{}] the example is {}; expected inputs that are not empty. Give a "
          "batch as the model receives it.",
          options.call,
          shapes_of(inputs));
    }
  }

  jit::Module make() {
    model_.forward(inputs_);  // lazy initialization must not be traced
    choose_base();
    auto program = make_program(/*tries_sizes=*/true);
    if (!program) program = make_program(/*tries_sizes=*/false);
    return *program;
  }

 private:
  struct Traced {
    jit::Module module;
    Tensors outputs;

    std::shared_ptr<jit::Graph> graph() const {
      return module.get_method("forward").graph();
    }
  };

  /// Unset if the sizes that were learned one by one do not work together.
  std::optional<jit::Module> make_program(bool tries_sizes) {
    free_.clear();
    fixed_.clear();
    const Traced first = traced(of_batch(base_));
    TracedSizes sizes(first.graph());
    std::vector<bool> has_rows(first.outputs.size(), false);
    if (is_dynamic_batch_) has_rows = learn_batch(sizes, first);
    for (const Group& group : groups_of(inputs_, have_)) {
      if (tries_sizes) {
        learn_group(sizes, group);
      } else {
        for (const Dimension& dimension : group) fix(dimension, "");
      }
    }
    const auto graph = first.graph();
    sizes.insert_into(*graph);
    add_state_checks(*graph);
    add_size_checks(*graph);
    add_rows_checks(*graph, has_rows);
    // The shapes are the example's, and an optimizer would assume them for all
    // inputs.
    jit::EraseShapeInformation(graph);
    if (!free_.empty() && !matches_at_other_sizes(first.module)) return {};
    check_outputs(first.module);
    return first.module;
  }

  Tensors of_batch(int64_t size) const {
    return is_dynamic_batch_ ? with_batch_size(inputs_, size) : inputs_;
  }

  Traced traced(const Tensors& inputs) {
    Tensors outputs;
    const ValueReads reads;
    const jit::Module module = trace(model_, inputs, [&](const Tensors& given) {
      outputs = model_.forward(given);
      return outputs;
    });
    reads_values_ |= reads.is_any();
    Traced result{module, outputs};
    check_made_tensors(result.graph(), options_.call);
    return result;
  }

  /// If the network reads values, a number may equal a size by chance, so no
  /// sizes are learned.
  std::optional<SizeDifference> learn(TracedSizes& sizes, const Traced& other)
      const {
    return reads_values_ ? sizes.compare(*other.graph())
                         : sizes.learn(*other.graph());
  }

  // ---- The batch ----

  /// Chooses two samples, because a single sample broadcasts; or the example's
  /// number, if the network does not accept two.
  void choose_base() {
    base_ = inputs_[0].dim() > 0 ? inputs_[0].size(0) : 0;
    if (!is_dynamic_batch_ || base_ == 2) return;
    if (if_taken([&] { return model_.forward(of_batch(2)); })) base_ = 2;
  }

  Traced traced_batch(int64_t size) {
    try {
      return traced(of_batch(size));
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      TERN_CHECK_VALUE(
          false,
          "[{}] the model failed with {} samples in place of {} ({}); expected "
          "a model that accepts any number. {}",
          options_.call,
          size,
          base_,
          reason_of(error),
          options_.cure);
    }
  }

  /// \return For each output, true if it has one row per sample.
  std::vector<bool> learn_batch(TracedSizes& sizes, const Traced& first) {
    std::vector<bool> has_rows(first.outputs.size(), true);
    const auto note_rows = [&](const Traced& other, int64_t size) {
      for (size_t i = 0; i < has_rows.size(); ++i) {
        const bool has = i < other.outputs.size() &&
                         other.outputs[i].dim() > 0 &&
                         other.outputs[i].size(0) == size;
        has_rows[i] = has_rows[i] && has;
      }
    };
    note_rows(first, base_);
    // If base_ is even this is odd, and vice versa, so that halves and
    // remainders differ too.
    const int64_t second_size = 2 * base_ + 1 - base_ % 2;
    const Traced second = traced_batch(second_size);
    check_difference(learn(sizes, second), second_size);
    note_rows(second, second_size);
    for (const int64_t size : {base_ + 1, inputs_[0].size(0)}) {
      // A single sample is contiguous in every memory format, so its trace
      // differs.
      if (size == 1 || size == base_ || size == second_size) continue;
      check_difference(sizes.compare(*traced_batch(size).graph()), size);
    }
    constexpr int64_t kMany = 67;  // beyond min(64, N) and the like
    const bool follows = sizes.count() > 0;
    if (follows) {
      const auto many = if_possible([&] { return traced(of_batch(kMany)); });
      if (many) check_difference(sizes.compare(*many->graph()), kMany);
    }
    // A number of rows that depends on values may match by chance.
    if (reads_values_) has_rows.assign(has_rows.size(), false);
    return has_rows;
  }

  void check_difference(
      const std::optional<SizeDifference>& difference,
      int64_t size) const {
    if (!difference) return;
    TERN_CHECK_VALUE(
        false,
        "[{}] {} {} for a batch of {} and {} for a batch of {}, but a trace "
        "always keeps the former; expected the same for both, or a multiple of "
        "a size{}. {}",
        options_.call,
        difference->place,
        difference->first,
        base_,
        difference->second,
        size,
        reads_values_ ? ", and no number that depends on values" : "",
        options_.cure);
  }

  // ---- Other dimensions ----

  /// Learns each dimension separately if the network accepts that, and the
  /// remaining dimensions together.
  void learn_group(TracedSizes& sizes, const Group& group) {
    Group rest;
    for (const Dimension& dimension : group) {
      if (group.size() == 1 || !is_learned(sizes, {dimension})) {
        rest.push_back(dimension);
      }
    }
    if (rest.empty() || is_learned(sizes, rest)) return;
    for (const Dimension& dimension : rest) fix(dimension, reason_);
  }

  bool is_learned(TracedSizes& sizes, const Group& group) {
    reason_.clear();
    const Tensors base = of_batch(base_);
    const int64_t size = base[group[0].input].size(group[0].index);
    const auto traced_at = [&](int64_t other) {
      return if_taken([&] { return traced(resized(base, group, other)); });
    };
    for (const auto& [second_size, third_size] : other_sizes(size)) {
      const bool is_larger = second_size > size;
      if (is_larger && may_read_past_the_end(base)) continue;
      FreeGroup free{.dimensions = group, .other_size = third_size};
      TracedSizes learned = sizes;
      const auto is_same = [&](const Traced& other, int64_t other_size) {
        const auto difference = learned.compare(*other.graph());
        if (difference) note_reason(*difference, size, other_size);
        return !difference;
      };

      const auto second = traced_at(second_size);
      if (!second) continue;
      if (const auto difference = learn(learned, *second)) {
        note_reason(*difference, size, second_size);
        return false;
      }
      auto third = traced_at(third_size);
      if (!third && is_larger && size > 1) {  // the second size is the largest
        free.limit = second_size;
        free.other_size = size - std::min(step_of(size), size - 1);
        third = traced_at(free.other_size);
      }
      if (!third) continue;
      const bool may_pad =
          is_larger && !free.limit && learned.count() == sizes.count();
      const bool fits = may_pad ? learns_beyond_padding(
                                      learned,
                                      {size, third_size},
                                      *third,
                                      traced_at)
                                : is_same(*third, free.other_size);
      if (!fits) return false;
      if (!is_larger) free.limit = size;

      // Finds the smallest step that the network accepts. Also detects halving
      // of odd sizes, and padding to a multiple.
      for (; free.step < step_of(size); free.step *= 2) {
        const int64_t near = is_larger ? size + free.step : size - free.step;
        const auto other = traced_at(near);
        if (other && !is_same(*other, near)) return false;
        if (other) break;
      }
      // Detects bounds, such as min(T, 512).
      if (learned.count() > sizes.count() && !free.limit) {
        const auto longer =
            if_possible([&] { return traced(resized(base, group, 4 * size)); });
        if (longer && !is_same(*longer, 4 * size)) return false;
      }
      sizes = std::move(learned);
      free_.push_back(free);
      return true;
    }
    return false;
  }

  /// A network that pads its input to a multiple of up to 32 may compute the
  /// same at the first three sizes. Learns from the first size at which it does
  /// not, and checks with a further one.
  /// \param known  The example's size and the third size.
  template <class TracedAt>
  bool learns_beyond_padding(
      TracedSizes& learned,
      std::pair<int64_t, int64_t> known,
      const Traced& third,
      const TracedAt& traced_at) {
    constexpr int64_t kMultiple = 32;
    const auto [size, third_size] = known;
    const auto beyond = [step = step_of(size)](int64_t other) {
      return (other + kMultiple - 1) / kMultiple * kMultiple + step;
    };
    int64_t other_size = third_size;
    std::optional<Traced> other = third;
    if (!learned.compare(*third.graph())) {
      other_size = beyond(third_size);
      other = traced_at(other_size);
      if (!other || !learned.compare(*other->graph())) return true;
    }
    if (const auto difference = learn(learned, *other)) {
      note_reason(*difference, size, other_size);
      return false;
    }
    const int64_t last_size = beyond(other_size);
    const auto last = traced_at(last_size);
    const auto difference =
        last ? learned.compare(*last->graph()) : std::nullopt;
    if (difference) note_reason(*difference, size, last_size);
    return last && !difference;
  }

  /// True if an operator's index cannot exceed a limit that the graph computes.
  static bool has_limited_index(const jit::Node& node) {
    if (node.kind() != c10::aten::index_select) return false;
    const jit::Node* index = node.input(2)->node();
    while (index->kind() == c10::aten::to) index = index->input(0)->node();
    return index->kind() == c10::aten::minimum;
  }

  /// A CUDA kernel with an index beyond a tensor's end makes the device
  /// unusable for the whole process.
  bool may_read_past_the_end(const Tensors& inputs) {
    if (!inputs[0].is_cuda()) return false;
    const auto graph = traced(inputs).graph();
    return std::ranges::any_of(graph->nodes(), [](const jit::Node* node) {
      if (has_limited_index(*node)) return false;
      const std::string_view name = node->kind().toQualString();
      return name.starts_with("aten::index") || name == "aten::embedding" ||
             name == "aten::gather" || name.starts_with("aten::scatter");
    });
  }

  void
  note_reason(const SizeDifference& difference, int64_t size, int64_t other) {
    reason_ = fmt::format(
        "{} {} for a size of {} and {} for a size of {}",
        difference.place,
        difference.first,
        size,
        difference.second,
        other);
  }

  void fix(const Dimension& dimension, const std::string& reason) {
    fixed_.push_back(
        {dimension,
         reason.empty() ? "the network was not run with any other size"
                        : reason});
  }

  // ---- Checks in the program ----

  static jit::Value* size_of(jit::Graph& graph, const Dimension& dimension) {
    jit::Value* const input = graph.inputs()[dimension.input + 1];
    return graph.insert(c10::aten::size, {input, dimension.index});
  }

  static std::string name_of(const Dimension& dimension) {
    return fmt::format(
        "dimension {} of input {}",
        dimension.index,
        dimension.input);
  }

  int64_t size_in_example(const Dimension& dimension) const {
    return inputs_[dimension.input].size(dimension.index);
  }

  void add_size_checks(jit::Graph& graph) const {
    const jit::WithInsertPoint first(*graph.nodes().begin());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      jit::Value* const input = graph.inputs()[i + 1];  // input 0 is the module
      raise_if(
          graph,
          graph.insert(c10::aten::dim, {input}),
          c10::aten::ne,
          graph.insertConstant(inputs_[i].dim()),
          fmt::format(
              "[Model] input {} has {{}} dimensions; expected {{}}, as in the "
              "example that the program was exported with.",
              i));
    }
    Group batch;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (have_[i]) batch.push_back({i, 0});
    }
    if (is_dynamic_batch_) {
      add_equal_checks(graph, batch);
    } else {
      for (const Dimension& dimension : batch) {
        add_batch_check(graph, dimension);
      }
    }
    for (const FixedDimension& fixed : fixed_) add_fixed_check(graph, fixed);
    for (const FreeGroup& free : free_) {
      add_equal_checks(graph, free.dimensions);
      if (free.limit) add_limit_check(graph, free.dimensions[0], *free.limit);
      if (free.step > 1) add_step_check(graph, free.dimensions[0], free.step);
    }
  }

  void add_batch_check(jit::Graph& graph, const Dimension& dimension) const {
    raise_if(
        graph,
        size_of(graph, dimension),
        c10::aten::ne,
        graph.insertConstant(size_in_example(dimension)),
        "[Model] the batch has {} samples; expected {}. The program was "
        "exported for that number only: give it batches of that size, or "
        "export it with dynamic_batch.");
  }

  void add_fixed_check(jit::Graph& graph, const FixedDimension& fixed) const {
    raise_if(
        graph,
        size_of(graph, fixed.dimension),
        c10::aten::ne,
        graph.insertConstant(size_in_example(fixed.dimension)),
        fmt::format(
            "[Model] {} has a size of {{}}; expected {{}}, as in the example "
            "that the program was exported with: {}. Give it inputs of that "
            "size, or export it with an example of your size.",
            name_of(fixed.dimension),
            without_braces(fixed.reason)));
  }

  static void add_equal_checks(jit::Graph& graph, const Group& group) {
    for (const Dimension& dimension : group | std::views::drop(1)) {
      raise_if(
          graph,
          size_of(graph, dimension),
          c10::aten::ne,
          size_of(graph, group[0]),
          fmt::format(
              "[Model] {} has a size of {{}} and {} a size of {{}}; expected "
              "the same, as in the example that the program was exported with. "
              "Give it such inputs, or export it with an example in which they "
              "differ.",
              name_of(dimension),
              name_of(group[0])));
    }
  }

  static void add_limit_check(
      jit::Graph& graph,
      const Dimension& dimension,
      int64_t limit) {
    raise_if(
        graph,
        size_of(graph, dimension),
        c10::aten::gt,
        graph.insertConstant(limit),
        fmt::format(
            "[Model] {} has a size of {{}}; expected at most {{}}, the largest "
            "size that the network accepted when the program was exported. "
            "Give it smaller inputs, or export it with a larger example.",
            name_of(dimension)));
  }

  static void
  add_step_check(jit::Graph& graph, const Dimension& dimension, int64_t step) {
    jit::Value* const size = size_of(graph, dimension);
    jit::Value* const rest = graph.insert(c10::aten::remainder, {size, step});
    raise_if(
        graph,
        graph.insert(c10::aten::sub, {size, rest}),
        c10::aten::ne,
        size,
        fmt::format(
            "[Model] {} has a size that is not a multiple of {}: {{}} would be "
            "one, but it is {{}}; expected a multiple, since the network "
            "accepted no other size when the program was exported. Pad the "
            "inputs.",
            name_of(dimension),
            step));
  }

  void add_rows_checks(jit::Graph& graph, const std::vector<bool>& has_rows)
      const {
    const jit::WithInsertPoint last(graph.return_node());
    jit::Value* const result = graph.outputs()[0];
    for (size_t i = 0; i < has_rows.size(); ++i) {
      if (!has_rows[i]) continue;
      const bool is_tuple = has_rows.size() > 1;
      jit::Value* const output = is_tuple ? result->node()->input(i) : result;
      raise_if(
          graph,
          graph.insert(c10::aten::size, {output, 0}),
          c10::aten::ne,
          size_of(graph, {0, 0}),
          "[Model] the output has {} rows for {} samples; expected one row per "
          "sample. The network takes a different path for this batch size than "
          "for the one that it was exported with: give it fewer samples, or "
          "export it with an example of this batch size and dynamic_batch = "
          "false.");
    }
  }

  /// Removes braces, which have a meaning in TorchScript's format strings.
  static std::string without_braces(std::string text) {
    std::erase_if(text, [](char c) { return c == '{' || c == '}'; });
    return text;
  }

  // ---- Outputs ----

  /// True if the program's outputs match the network's when all sizes change at
  /// once.
  bool matches_at_other_sizes(const jit::Module& module) {
    Tensors batch = of_batch(base_ + 1);
    for (const FreeGroup& free : free_) {
      batch = resized(batch, free.dimensions, free.other_size);
    }
    const auto expected = if_taken([&] { return model_.forward(batch); });
    return expected && outputs_match(module, batch, *expected);
  }

  static bool outputs_match(
      const jit::Module& module,
      const Tensors& batch,
      const Tensors& expected) {
    const auto outputs = if_taken([&] { return Model(module).forward(batch); });
    return outputs && outputs_alike(expected, *outputs);
  }

  /// \throws c10::ValueError if the program's outputs differ.
  void check_outputs(const jit::Module& module) {
    std::vector<Tensors> batches = {inputs_};
    if (is_dynamic_batch_) batches.push_back(of_batch(2 * base_ + 1));
    for (const Tensors& batch : batches) {
      TERN_CHECK_VALUE(
          outputs_match(module, batch, model_.forward(batch)),
          "[{}] the trace's output for inputs of {} differs from the model's; "
          "expected a deterministic forward. Remove what is random, counts its "
          "calls, or branches on values.",
          options_.call,
          shapes_of(batch));
    }
    if (!is_dynamic_batch_) return;
    const Tensors one = of_batch(1);
    const auto expected = if_taken([&] { return model_.forward(one); });
    TERN_CHECK_VALUE(
        !expected || outputs_match(module, one, *expected),
        "[{}] the model treats a single sample differently from several, which "
        "a trace cannot do; expected the same path for every batch size. {}",
        options_.call,
        options_.cure);
  }

  Model& model_;
  const Tensors inputs_;
  const DynamicTraceOptions options_;
  const std::vector<bool> have_;
  const bool is_dynamic_batch_;
  int64_t base_ = 0;  // number of samples in the program's trace
  bool reads_values_ = false;
  std::vector<FreeGroup> free_;
  std::vector<FixedDimension> fixed_;
  std::string reason_;  // why the last group was not learned
};

}  // namespace

jit::Module dynamic_trace(
    Model& model,
    const Tensors& inputs,
    const DynamicTraceOptions& options) {
  return DynamicTrace(model, inputs, options).make();
}

}  // namespace tern
