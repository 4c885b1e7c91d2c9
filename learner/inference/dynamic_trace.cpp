#include "tern/learner/inference/dynamic_trace.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
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

namespace tern {

namespace {

namespace jit = torch::jit;
using GraphPtr = std::shared_ptr<jit::Graph>;

struct Dimension {
  size_t input;
  int64_t index;

  friend bool operator==(const Dimension&, const Dimension&) = default;
};

/// Dimensions that have one size and change together, such as the lengths of
/// token ids and of their mask.
struct Group {
  int64_t size;
  std::vector<Dimension> dimensions;
};

/// All dimensions of the inputs but that of the batch. Inputs with samples have
/// the same dimension in common where it has one size; those without, such as a
/// mask [T, T], every dimension of this size.
/// \param have  Which inputs have samples.
std::vector<Group> groups_of(
    const Tensors& inputs,
    const std::vector<bool>& have) {
  std::vector<Group> groups;
  const auto add = [&](const Dimension& dimension, auto belongs) {
    const int64_t size = inputs[dimension.input].size(dimension.index);
    for (Group& group : groups) {
      if (group.size == size && belongs(group)) {
        group.dimensions.push_back(dimension);
        return true;
      }
    }
    return false;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int64_t d = 1; have[i] && d < inputs[i].dim(); ++d) {
      const bool is_in_one = add({i, d}, [&](const Group& group) {
        return group.dimensions[0].index == d;
      });
      if (!is_in_one) groups.push_back({inputs[i].size(d), {{i, d}}});
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int64_t d = 0; !have[i] && d < inputs[i].dim(); ++d) {
      const bool is_in_one = add({i, d}, [](const Group&) { return true; });
      if (!is_in_one) groups.push_back({inputs[i].size(d), {{i, d}}});
    }
  }
  return groups;
}

/// What an input has along the group's dimensions, over and over or in part.
Tensors resized(Tensors inputs, const Group& group, int64_t size) {
  for (const auto [input, dimension] : group.dimensions) {
    torch::Tensor& x = inputs[input];
    const auto places = torch::arange(size, x.device()) % group.size;
    x = x.index_select(dimension, places);
  }
  return inputs;
}

/// Two other sizes for each try. Networks that halve an image several times
/// take sizes that are multiples of a power of two.
std::vector<std::pair<int64_t, int64_t>> other_sizes(int64_t size) {
  int64_t step = 1;
  while (step < 32 && size % (2 * step) == 0) step *= 2;
  std::vector<std::pair<int64_t, int64_t>> pairs = {
      {size + step, size + 2 * step}};
  if (size > 2 * step) pairs.emplace_back(size - step, size - 2 * step);
  pairs.emplace_back(2 * size, 3 * size);
  return pairs;
}

/// A group that may have other sizes, and one that the numbers were not learned
/// from.
struct FreeGroup {
  Group group;
  int64_t third_size;

  /// Where the network takes no larger size than the example's.
  bool is_limited() const { return third_size < group.size; }
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
        is_dynamic_batch_(options.dynamic_batch && have_[0]) {}

  jit::Module make() {
    for (const bool tries_sizes : {true, false}) {
      const auto [module, outputs] = trace_of(base_inputs());
      const GraphPtr graph = graph_of(module);
      TracedSizes sizes(graph);
      std::vector<bool> has_rows(outputs.size(), false);
      if (is_dynamic_batch_) has_rows = learn_batch(sizes, outputs);
      std::vector<FreeGroup> free;
      if (tries_sizes) free = learn_sizes(sizes);
      sizes.insert_into(*graph);
      add_checks(*graph, free);
      add_rows_checks(*graph, has_rows);
      // Sizes of the example, which an optimizer would take for all sizes.
      jit::EraseShapeInformation(graph);
      if (!free.empty() && !answers_other_sizes(module, free)) continue;
      check_answers(module);
      return module;
    }
    TORCH_INTERNAL_ASSERT(false);
  }

 private:
  static GraphPtr graph_of(const jit::Module& module) {
    return module.get_method("forward").graph();
  }

  /// Two samples, for one broadcasts.
  Tensors base_inputs() const { return of_batch(2); }

  Tensors of_batch(int64_t size) const {
    return is_dynamic_batch_ ? with_batch_size(inputs_, size) : inputs_;
  }

  /// With the network's answer.
  std::pair<jit::Module, Tensors> trace_of(const Tensors& inputs) {
    Tensors outputs;
    const auto forward = [&](const Tensors& given) {
      outputs = model_.forward(given);
      return outputs;
    };
    std::optional<jit::Module> module;
    try {
      module = trace(model_, inputs, forward);
    } catch (const c10::Error& error) {
      const auto samples = [](const Tensors& batch) {
        return batch[0].dim() > 0 ? batch[0].size(0) : 0;
      };
      if (samples(inputs) == samples(inputs_)) throw;
      TERN_CHECK_VALUE(
          false,
          "[{}] the model cannot be run with {} samples in place of {} ({}); "
          "expected one that takes any number. {}",
          options_.call,
          samples(inputs),
          samples(inputs_),
          reason_of(error),
          options_.cure);
    }
    check_made_tensors(graph_of(*module), options_.call);
    return {*module, outputs};
  }

  /// \return For each output, whether it has a row for each sample.
  std::vector<bool> learn_batch(TracedSizes& sizes, const Tensors& outputs) {
    std::vector<bool> has_rows(outputs.size(), true);
    const auto note_rows = [&](const Tensors& batch, const Tensors& answer) {
      for (size_t i = 0; i < has_rows.size() && i < answer.size(); ++i) {
        has_rows[i] = has_rows[i] && answer[i].dim() > 0 &&
                      answer[i].size(0) == batch[0].size(0);
      }
    };
    note_rows(base_inputs(), outputs);
    // Of the other parity, so that halves and remainders differ as well.
    const auto [second, answer] = trace_of(of_batch(5));
    check_difference(sizes.learn(*graph_of(second)), 5);
    note_rows(of_batch(5), answer);
    for (const int64_t size : {int64_t{3}, inputs_[0].size(0)}) {
      if (size == 1) continue;  // of which each view is contiguous, and more
      const auto other = trace_of(of_batch(size)).first;
      check_difference(sizes.compare(*graph_of(other)), size);
    }
    return has_rows;
  }

  void check_difference(
      const std::optional<SizeDifference>& difference,
      int64_t size) const {
    if (!difference) return;
    TERN_CHECK_VALUE(
        false,
        "[{}] {} {} for a batch of 2 and {} for one of {}, and a trace keeps "
        "the former; expected the same, or a multiple of a size. {}",
        options_.call,
        difference->place,
        difference->first,
        difference->second,
        size,
        options_.cure);
  }

  /// The groups of dimensions that may have other sizes.
  std::vector<FreeGroup> learn_sizes(TracedSizes& sizes) {
    std::vector<FreeGroup> free;
    const Tensors base = base_inputs();
    for (const Group& group : groups_of(base, have_)) {
      if (group.size == 0) continue;  // of an empty example
      for (const auto& [second_size, third_size] : other_sizes(group.size)) {
        TracedSizes learned = sizes;
        try {
          const auto second = trace_of(resized(base, group, second_size)).first;
          if (learned.learn(*graph_of(second))) break;
          const auto third = trace_of(resized(base, group, third_size)).first;
          if (learned.compare(*graph_of(third))) break;
        } catch (const std::exception&) {
          continue;  // the network takes no such size
        }
        sizes = std::move(learned);
        free.push_back({group, third_size});
        break;
      }
    }
    return free;
  }

  void add_checks(jit::Graph& graph, const std::vector<FreeGroup>& free) const {
    add_state_checks(graph);
    // Each is put before the others.
    for (size_t i = inputs_.size(); i-- > 0;) {
      jit::Value* const input = graph.inputs()[i + 1];  // behind the module
      for (int64_t d = inputs_[i].dim(); d-- > 0;) {
        const int64_t size = inputs_[i].size(d);
        if (have_[i] && d == 0) {
          if (!is_dynamic_batch_) add_batch_check(graph, input, size);
          continue;
        }
        if (size == 0) continue;  // of an empty example
        const auto group = std::ranges::find_if(free, [&](const auto& other) {
          const auto& dimensions = other.group.dimensions;
          return std::ranges::count(dimensions, Dimension{i, d}) > 0;
        });
        if (group == free.end()) {
          add_size_check(graph, input, i, d, size);
        } else if (group->is_limited()) {
          add_limit_check(graph, input, i, d, size);
        }
      }
    }
  }

  void add_rows_checks(jit::Graph& graph, const std::vector<bool>& has_rows)
      const {
    jit::Value* const input = graph.inputs()[1];  // behind the module
    jit::Value* const result = graph.outputs()[0];
    for (size_t i = 0; i < has_rows.size(); ++i) {
      if (!has_rows[i]) continue;
      const bool is_tuple = has_rows.size() > 1;
      add_rows_check(
          graph,
          input,
          is_tuple ? result->node()->input(i) : result);
    }
  }

  /// Whether the program has the network's answers where all sizes are others.
  bool answers_other_sizes(
      const jit::Module& module,
      const std::vector<FreeGroup>& free) {
    Tensors batch = of_batch(3);
    for (const auto& [group, third_size] : free) {
      batch = resized(batch, group, third_size);
    }
    try {
      Model program(module);
      return answers(program, batch, model_.forward(batch));
    } catch (const std::exception&) {  // it does not take all at once
      return false;
    }
  }

  static bool
  answers(Model& program, const Tensors& batch, const Tensors& expected) {
    try {
      return outputs_alike(expected, program.forward(batch));
    } catch (const c10::Error&) {  // of shapes that do not fit
      return false;
    }
  }

  /// \throws c10::ValueError where the program answers otherwise.
  void check_answers(const jit::Module& module) {
    Model program(module);
    std::vector<Tensors> batches = {inputs_};
    if (is_dynamic_batch_) batches.push_back(of_batch(5));
    if (is_dynamic_batch_) batches.push_back(of_batch(1));
    for (const Tensors& batch : batches) {
      Tensors expected;
      try {
        expected = model_.forward(batch);
      } catch (const c10::Error&) {
        continue;  // one sample is too few for it
      }
      TERN_CHECK_VALUE(
          answers(program, batch, expected),
          "[{}] the trace's output for inputs of {} differs from the model's; "
          "expected a deterministic forward. Take out of it what is random, "
          "counts its calls, or decides by values.",
          options_.call,
          shapes_of(batch));
    }
  }

  Model& model_;
  const Tensors inputs_;
  const DynamicTraceOptions options_;
  const std::vector<bool> have_;
  const bool is_dynamic_batch_;
};

}  // namespace

jit::Module dynamic_trace(
    Model& model,
    const Tensors& inputs,
    const DynamicTraceOptions& options) {
  return DynamicTrace(model, inputs, options).make();
}

}  // namespace tern
