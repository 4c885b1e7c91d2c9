#include "tern/learner/inference/batch_sizes.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/script.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/inference/frozen_graph.h"
#include "tern/learner/inference/trace.h"

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

std::string sizes_of(const c10::IValue& tensor) {
  if (!tensor.isTensor() || !tensor.toTensor().defined()) return "none";
  return fmt::format("[{}]", fmt::join(tensor.toTensor().sizes(), ", "));
}

// Of a tensor its sizes: its numbers are many.
std::string text_of(const c10::IValue& value) {
  if (value.isTensor()) return "a tensor of " + sizes_of(value);
  if (!value.isTensorList()) return c10::str(value);
  std::vector<std::string> sizes;
  for (const c10::IValue& tensor : value.toListRef()) {
    sizes.push_back(sizes_of(tensor));
  }
  return fmt::format("tensors of {}", fmt::join(sizes, " and "));
}

std::string name_of(const jit::Node& node) {
  const std::string name = node.kind().toQualString();
  return name == "prim::Return" ? "the output" : name;
}

// The operator that gives or takes the list, if it is no operator itself.
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

BatchDifference other_path(const jit::Node& first, const jit::Node& second) {
  const auto counts = [](const jit::Node& node) {
    return fmt::format(
        "takes {} and gives {} values",
        node.inputs().size(),
        node.outputs().size());
  };
  BatchDifference difference{place(first), counts(first), counts(second)};
  if (first.kind() != second.kind()) {
    difference.first = "is the next operator";
    difference.second = name_of(second) + " is";
  } else if (difference.first == difference.second) {
    difference.first = "takes the result of one operator";
    difference.second = "that of another";
  }
  return difference;
}

class Comparison {
 public:
  std::optional<BatchDifference> of(
      const jit::Block& first,
      const jit::Block& second) {
    if (first.inputs().size() != second.inputs().size()) {
      return other_path(*first.return_node(), *second.return_node());
    }
    match(first.inputs(), second.inputs());
    const auto nodes = operators(first), others = operators(second);
    // The return nodes, the last, differ from all others.
    for (size_t i = 0; i < std::min(nodes.size(), others.size()); ++i) {
      if (auto difference = of(*nodes[i], *others[i])) return difference;
    }
    return std::nullopt;
  }

 private:
  // Constants come in any order.
  static std::vector<const jit::Node*> operators(const jit::Block& block) {
    std::vector<const jit::Node*> all;
    for (const jit::Node* node : block.nodes()) {
      if (node->kind() != c10::prim::Constant) all.push_back(node);
    }
    all.push_back(block.return_node());
    return all;
  }

  void match(
      at::ArrayRef<const jit::Value*> first,
      at::ArrayRef<const jit::Value*> second) {
    for (size_t i = 0; i < first.size(); ++i) in_second_[first[i]] = second[i];
  }

  std::optional<BatchDifference> of(
      const jit::Node& first,
      const jit::Node& second) {
    if (first.kind() != second.kind() ||
        first.inputs().size() != second.inputs().size() ||
        first.outputs().size() != second.outputs().size() ||
        first.blocks().size() != second.blocks().size()) {
      return other_path(first, second);
    }
    for (size_t i = 0; i < first.inputs().size(); ++i) {
      if (auto difference = of(first, second, i)) return difference;
    }
    for (size_t i = 0; i < first.blocks().size(); ++i) {
      auto difference = of(*first.blocks()[i], *second.blocks()[i]);
      if (difference) return difference;
    }
    match(first.outputs(), second.outputs());
    return std::nullopt;
  }

  std::optional<BatchDifference>
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
    if (is_same(*known, *other_known)) return std::nullopt;
    const std::string text = text_of(*known),
                      other_text = text_of(*other_known);
    return BatchDifference{
        place(first),
        "takes " + text,
        (text == other_text ? "other numbers in " : "") + other_text};
  }

  std::unordered_map<const jit::Value*, const jit::Value*> in_second_;
};

}  // namespace

std::optional<BatchDifference> batch_difference(
    const jit::Graph& first,
    const jit::Graph& second) {
  return Comparison().of(*first.block(), *second.block());
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

void check_other_batch_size(
    Model& model,
    const jit::Module& traced,
    const Tensors& inputs,
    const char* call,
    const std::string& cure) {
  if (!have_samples(inputs)[0]) return;
  // So that halves, remainders and the like of the two differ as well.
  const int64_t size = inputs[0].size(0), other = 2 * size + 1 - size % 2;
  const Tensors others = with_batch_size(inputs, other);
  Tensors expected;
  std::optional<jit::Module> second;
  try {
    second = trace(model, others, [&](const Tensors& given) {
      expected = model.forward(given);
      return expected;
    });
  } catch (const c10::Error& error) {
    TERN_CHECK_VALUE(
        false,
        "[{}] the model cannot be run with {} samples in place of {} ({}); "
        "expected one that takes any number. {}",
        call,
        other,
        size,
        reason_of(error),
        cure);
  }
  const auto difference = batch_difference(
      *constant_graph(traced, call),
      *constant_graph(*second, call));
  if (difference) {
    TERN_CHECK_VALUE(
        false,
        "[{}] {} {} for a batch of {} and {} for one of {}, and a trace keeps "
        "the former; expected nothing that is taken from the size of the "
        "batch. {}",
        call,
        difference->place,
        difference->first,
        size,
        difference->second,
        other,
        cure);
  }
  TERN_CHECK_VALUE(
      outputs_alike(expected, Model(traced).forward(others)),
      "[{}] the trace's output for {} samples differs from the model's; "
      "expected a deterministic forward. Take out of it what is random, counts "
      "its calls, or decides by values.",
      call,
      other);
}

}  // namespace tern
