#include "tern/learner/inference/traced_sizes.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <unordered_map>

#include <fmt/ranges.h>
#include <torch/csrc/jit/ir/constants.h>

#include "tern/learner/inference/frozen_graph.h"

namespace tern {

namespace {

namespace jit = torch::jit;

bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return false;
  }
  const bool is_same_memory = a.is_alias_of(b) && a.strides() == b.strides() &&
                              a.storage_offset() == b.storage_offset();
  return is_same_memory || torch::equal(a, b);
}

bool is_same(const c10::IValue& a, const c10::IValue& b) {
  const auto are_same = [](const auto& all, const auto& others) {
    return std::ranges::equal(all, others, [](const auto& x, const auto& y) {
      return is_same(x, y);
    });
  };
  if (a.isTensor() && b.isTensor()) return is_same(a.toTensor(), b.toTensor());
  if (a.isList() && b.isList()) return are_same(a.toListRef(), b.toListRef());
  if (a.isTuple() && b.isTuple()) {
    return are_same(a.toTupleRef().elements(), b.toTupleRef().elements());
  }
  return a.tagKind() == b.tagKind() && a == b;
}

std::string shape_text(const c10::IValue& tensor) {
  if (!tensor.isTensor() || !tensor.toTensor().defined()) return "none";
  return fmt::format("[{}]", fmt::join(tensor.toTensor().sizes(), ", "));
}

// Describes a tensor only by its sizes, since it may have many numbers.
std::string text_of(const c10::IValue& value) {
  if (value.isTensor()) return "a tensor of " + shape_text(value);
  if (!value.isTensorList()) return c10::str(value);
  std::vector<std::string> sizes;
  for (const c10::IValue& tensor : value.toListRef()) {
    sizes.push_back(shape_text(tensor));
  }
  return fmt::format("tensors of {}", fmt::join(sizes, " and "));
}

std::string name_of(const jit::Node& node) {
  const std::string name = node.kind().toQualString();
  return name == "prim::Return" ? "the output" : name;
}

// If the node only builds or unpacks a list, returns the operator that uses or
// produces the list.
const jit::Node* operator_of(const jit::Node* node) {
  if (node->kind() == c10::prim::ListUnpack) return node->input()->node();
  while (node->kind().is_prim() && node->outputs().size() == 1 &&
         !node->output()->uses().empty()) {
    node = node->output()->uses()[0].user;
  }
  return node;
}

std::string place(const jit::Node& node) {
  const jit::Node& known = *operator_of(&node);
  return fmt::format("{} in {}", name_of(known), place_of(known));
}

SizeDifference other_path(const jit::Node& first, const jit::Node& second) {
  const auto counts = [](const jit::Node& node) {
    return fmt::format(
        "takes {} and returns {} values",
        node.inputs().size(),
        node.outputs().size());
  };
  SizeDifference difference{place(first), counts(first), counts(second)};
  if (first.kind() != second.kind()) {
    difference.first = "is the next operator";
    difference.second = name_of(second) + " is";
  } else if (difference.first == difference.second) {
    difference.first = "takes the result of one operator";
    difference.second = "the result of another";
  }
  return difference;
}

// Skips constants, whose order varies.
std::vector<const jit::Node*> operators(const jit::Graph& graph) {
  std::vector<const jit::Node*> all;
  for (const jit::Node* node : graph.nodes()) {
    if (node->kind() != c10::prim::Constant) all.push_back(node);
  }
  all.push_back(graph.return_node());
  return all;
}

std::vector<int64_t> sizes_of(const jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  if (!type) return {};
  return type->sizes().concrete_sizes().value_or(std::vector<int64_t>());
}

/// Returns an integer, even if it is written as a float: 6 or 6.0.
std::optional<int64_t> whole_number(const c10::IValue& value) {
  if (value.isInt()) return value.toInt();
  constexpr double kLargest = 0x1p53;
  if (!value.isDouble() || value.toDouble() != std::trunc(value.toDouble()) ||
      std::abs(value.toDouble()) > kLargest) {
    return std::nullopt;
  }
  return static_cast<int64_t>(value.toDouble());
}

/// True if a list is the shape of a `view` or `reshape` and contains no -1, so
/// that one number may become -1.
bool may_infer(const jit::Node& list) {
  if (list.kind() != c10::prim::ListConstruct) return false;
  for (const jit::Use& use : list.output()->uses()) {
    const bool is_shape = use.user->kind() == c10::aten::view ||
                          use.user->kind() == c10::aten::reshape;
    if (!is_shape || use.offset != 1) return false;
  }
  return std::ranges::none_of(list.inputs(), [](const jit::Value* size) {
    const auto number = jit::toIValue(size);
    return number && *number == -1;
  });
}

}  // namespace

/// Compares two traces side by side, and maps the values of one to the other.
class TracedSizes::Comparison {
 public:
  /// \param learns  Add the sources that are found to `sources`.
  Comparison(std::map<Argument, Source>& sources, bool learns)
      : sources_(sources), learns_(learns) {}

  std::optional<SizeDifference> of(
      const jit::Graph& first,
      const jit::Graph& second) {
    const auto nodes = operators(first), others = operators(second);
    if (first.inputs().size() != second.inputs().size()) {
      return other_path(*nodes.back(), *others.back());
    }
    match(first.inputs(), second.inputs());
    // The return nodes come last and differ from all other nodes.
    for (size_t i = 0; i < std::min(nodes.size(), others.size()); ++i) {
      if (auto difference = of(*nodes[i], *others[i])) return difference;
    }
    return std::nullopt;
  }

 private:
  void match(
      at::ArrayRef<const jit::Value*> first,
      at::ArrayRef<const jit::Value*> second) {
    for (size_t i = 0; i < first.size(); ++i) {
      in_second_[first[i]] = second[i];
      const auto sizes = sizes_of(first[i]), others = sizes_of(second[i]);
      if (sizes.size() != others.size()) continue;
      for (size_t dim = 0; dim < sizes.size(); ++dim) {
        if (sizes[dim] == others[dim]) continue;
        readable_.try_emplace(
            {sizes[dim], others[dim]},
            Source{.tensor = first[i], .dimension = static_cast<int64_t>(dim)});
      }
    }
  }

  std::optional<SizeDifference> of(
      const jit::Node& first,
      const jit::Node& second) {
    if (first.kind() != second.kind() ||
        first.inputs().size() != second.inputs().size() ||
        first.outputs().size() != second.outputs().size() ||
        !first.blocks().empty() || !second.blocks().empty() ||
        attribute_of(first) != attribute_of(second)) {
      return other_path(first, second);
    }
    for (size_t i = 0; i < first.inputs().size(); ++i) {
      if (auto difference = of(first, second, i)) return difference;
    }
    match(first.outputs(), second.outputs());
    return std::nullopt;
  }

  std::optional<SizeDifference>
  of(const jit::Node& first, const jit::Node& second, size_t input) {
    const jit::Value* const value = first.input(input);
    const jit::Value* const other = second.input(input);
    const auto known = jit::toIValue(value), other_known = jit::toIValue(other);
    if (known.has_value() != other_known.has_value()) {
      return other_path(first, second);
    }
    if (!known) {
      if (in_second_[value] == other) return std::nullopt;
      return other_path(first, second);
    }
    if (is_explained({&first, input}, *known, *other_known)) {
      return std::nullopt;
    }
    const std::string text = text_of(*known),
                      other_text = text_of(*other_known);
    return SizeDifference{
        place(first),
        "takes " + text,
        (text == other_text ? "other numbers in " : "") + other_text};
  }

  /// True if the constants are equal, or multiples of a size.
  bool is_explained(
      const Argument& argument,
      const c10::IValue& known,
      const c10::IValue& other) {
    const auto source = sources_.find(argument);
    if (source == sources_.end() && is_same(known, other)) return true;
    const auto first = whole_number(known), second = whole_number(other);
    if (!first || !second || known.tagKind() != other.tagKind()) return false;
    if (source != sources_.end() && gives(source->second, *second)) return true;
    if (!learns_) return false;
    if (source == sources_.end()) {
      if (const auto found = find_source(*first, *second)) {
        sources_.emplace(argument, *found);
        return true;
      }
    }
    // A product of several sizes, such as the size of a batch of windows.
    const jit::Node& list = *argument.first;
    if (!may_infer(list)) return false;
    for (size_t i = 0; i < list.inputs().size(); ++i) {
      const auto inferred = sources_.find({&list, i});
      if (inferred != sources_.end() && inferred->second.is_inferred)
        return false;
    }
    sources_.insert_or_assign(argument, Source{.is_inferred = true});
    return true;
  }

  bool gives(const Source& source, int64_t number) const {
    if (source.is_inferred) return true;
    const auto sizes = sizes_of(in_second_.at(source.tensor));
    return sizes.at(source.dimension) * source.factor == number;
  }

  std::optional<Source> find_source(int64_t first, int64_t second) const {
    // Largest size first, to find the size itself, if a tensor has it, rather
    // than a multiple of a smaller size.
    for (const auto& [sizes, source] : readable_ | std::views::reverse) {
      const int64_t factor = first / std::max<int64_t>(sizes.first, 1);
      if (factor == 0 || factor * sizes.first != first ||
          factor * sizes.second != second) {
        continue;
      }
      Source found = source;
      found.factor = factor;
      return found;
    }
    return std::nullopt;
  }

  /// Returns the attribute that a prim::GetAttr reads, to distinguish
  /// parameters.
  static std::string attribute_of(const jit::Node& node) {
    return node.kind() == c10::prim::GetAttr ? node.s(c10::attr::name) : "";
  }

  std::map<Argument, Source>& sources_;
  const bool learns_;
  std::unordered_map<const jit::Value*, const jit::Value*> in_second_;
  /// Key: the size in each of the two traces.
  std::map<std::pair<int64_t, int64_t>, Source> readable_;
};

std::optional<SizeDifference> TracedSizes::learn(const jit::Graph& other) {
  return Comparison(sources_, /*learns=*/true).of(*trace_, other);
}

std::optional<SizeDifference> TracedSizes::compare(
    const jit::Graph& other) const {
  auto sources = sources_;
  return Comparison(sources, /*learns=*/false).of(*trace_, other);
}

void TracedSizes::insert_into(jit::Graph& graph) const {
  std::unordered_map<const jit::Node*, jit::Node*> nodes;
  std::unordered_map<const jit::Value*, jit::Value*> values;
  const auto match = [&](const jit::Node* node, jit::Node* copy) {
    nodes[node] = copy;
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      values[node->output(i)] = copy->output(i);
    }
  };
  match(trace_->param_node(), graph.param_node());
  match(trace_->return_node(), graph.return_node());
  auto copy = graph.nodes().begin();
  for (const jit::Node* node : trace_->nodes()) match(node, *copy++);

  std::map<std::pair<const jit::Value*, int64_t>, jit::Value*> sizes;
  const auto size_of = [&](const Source& source) {
    jit::Value*& size = sizes[{source.tensor, source.dimension}];
    if (size != nullptr) return size;
    // Read where the tensor is created, because an operator may change its
    // shape later.
    jit::Value* const tensor = values.at(source.tensor);
    jit::Node* const maker = tensor->node();
    const jit::WithInsertPoint here(
        maker == graph.param_node() ? *graph.nodes().begin() : maker->next());
    size = graph.insert(c10::aten::size, {tensor, source.dimension});
    return size;
  };
  const auto replace = [&](const Argument& argument, const Source& source) {
    const auto [node, i] = argument;
    const bool is_float = node->input(i)->type() == c10::FloatType::get();
    jit::Node* const user = nodes.at(node);
    jit::Value* number = nullptr;
    if (!source.is_inferred) number = size_of(source);
    const jit::WithInsertPoint here(user);
    if (source.is_inferred) number = graph.insertConstant(-1);
    if (source.factor != 1) {
      number = graph.insert(c10::aten::mul, {number, source.factor});
    }
    if (is_float) number = graph.insert(c10::aten::Float, {number});
    user->replaceInput(i, number);
  };
  // In the order of the trace, so that the same network always gives the same
  // program.
  for (const jit::Node* node : operators(*trace_)) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const auto source = sources_.find({node, i});
      if (source != sources_.end()) replace(source->first, source->second);
    }
  }
}

std::vector<bool> have_samples(const Tensors& inputs) {
  const auto rows = [](const torch::Tensor& input) {
    return input.dim() > 0 ? input.size(0) : 0;
  };
  std::vector<bool> have;
  for (const torch::Tensor& input : inputs) {
    have.push_back(rows(input) > 0 && rows(input) == rows(inputs[0]));
  }
  return have;
}

Tensors with_batch_size(const Tensors& inputs, int64_t size) {
  const std::vector<bool> have = have_samples(inputs);
  Tensors result = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!have[i]) continue;
    const auto samples = torch::arange(size, inputs[i].device());
    result[i] = inputs[i].index_select(0, samples % inputs[i].size(0));
  }
  return result;
}

}  // namespace tern
