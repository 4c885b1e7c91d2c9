#define ONNX_NAMESPACE onnx_torch  // LibTorch's own copy of ONNX

#include "tern/learner/export/onnx/translator.h"

#include <numeric>
#include <sstream>

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/serialization/export.h>

#include "tern/kernels/check.h"
#include "tern/learner/inference/frozen_graph.h"

namespace tern::onnx {

namespace {

constexpr int64_t kOpset = 17;  // the first with LayerNormalization

// Later uses of the tensor itself have the operator's result in a trace; those
// of what shares its memory have not.
bool overwrites_others(Node& node) {
  const auto graph = node.owningGraph()->shared_from_this();
  const jit::AliasDb aliases(graph);
  for (const Node* later = &node; later != graph->return_node();) {
    later = later->next();
    for (const Value* read : later->inputs()) {
      const bool is_older = read->node()->isBefore(&node);
      if (is_older && aliases.mayAlias(read, node.input(0))) return true;
    }
  }
  return false;
}

}  // namespace

Text Translator::run(Graph& trace, const Names& inputs, const Names& outputs) {
  node_ = trace.param_node();
  for (size_t i = 0; i < inputs.size(); ++i) {
    give(graph_->addInput(inputs[i]), trace.inputs()[i]);
  }
  for (Node* node : trace.nodes()) {
    node_ = node;
    if (node->kind().is_prim()) continue;
    const Text name = node->kind().toUnqualString();
    in_first(name + std::to_string(sizes_of(node->output(0)).size()));
    if (name.ends_with('_') && overwrites_others(*node)) {
      refuse("it writes into what is read later. Use the operator without _");
    }
    try {
      const Values all = row(name.substr(0, name.find_last_not_of('_') + 1));
      for (size_t i = 0; i < all.size(); ++i) give(all[i], out()[i]);
    } catch (const c10::Error& error) {
      const Text what = error.what_without_backtrace();
      if (what.starts_with("[export_onnx]")) throw;
      refuse(what);
    }
  }
  const auto result = trace.outputs();
  const bool is_tuple = result[0]->node()->kind() == c10::prim::TupleConstruct;
  const auto results = is_tuple ? result[0]->node()->inputs() : result;
  for (size_t i = 0; i < outputs.size(); ++i) {
    in_first(outputs[i]);
    // Of its own: inputs and weights have names already.
    Value* const named = op("Identity", {value(results[i])});
    named->setDebugName(outputs[i]);
    give(named, results[i]);
    graph_->registerOutput(named);
  }
  if (first_ == nullptr) return {};
  size_t bytes_of_all = 1 << 20;  // and what is not weights
  for (const auto& [name, x] : initializers_) bytes_of_all += x.nbytes();
  TERN_CHECK_VALUE(
      bytes_of_all >> 31 == 0,
      "[export_onnx] the weights take {:.2f} GiB; expected less than the 2 of "
      "an ONNX file. Set .half, or call export_torchscript.",
      static_cast<double>(bytes_of_all) / (1 << 30));
  const auto proto = std::get<0>(jit::export_onnx(
      graph_,
      initializers_,
      kOpset,
      dynamic_axes_,
      /*defer_weight_export=*/false,
      torch::onnx::OperatorExportTypes::ONNX,
      /*strip_doc_string=*/true,
      /*keep_initializers_as_inputs=*/false));
  Text bytes = jit::serialize_model_proto_to_string(proto);
  jit::check_onnx_proto(bytes);
  return bytes;
}

void Translator::refuse(const Text& why) const {
  const Text kind = node_->kind().toQualString();
  const Text name = kind == "prim::Param" ? "an input" : kind;
  C10_THROW_ERROR(
      ValueError,
      fmt::format("[export_onnx] {} in {}: {}.", name, place_of(*node_), why));
}

Values Translator::formula(Text text) {
  const size_t tail = std::min(text.find('~'), text.size());
  used_.clear();
  for (const char c : text.substr(tail)) {
    if (c != '~') used_.insert(std::stoul(Text(1, c), nullptr, 16));
  }
  text.resize(tail);
  for (size_t end = 0; (end = text.find(')')) != Text::npos;) {
    const size_t open = text.rfind('(', end);
    const size_t begin = text.find_last_of("(,", open - 1) + 1;
    const Text name = text.substr(begin, open - begin);
    std::istringstream parts(text.substr(open + 1, end - open - 1));
    Values inputs;
    Attributes how;
    for (Text x; std::getline(parts, x, ',');) {
      const size_t at = std::min(x.find('='), x.size());
      const Text key = x.substr(0, at);
      if (key != x) how.emplace_back(key, attribute(key, x.substr(at + 1)));
      if (key == x) std::ranges::copy(terms(x), std::back_inserter(inputs));
    }
    text.replace(begin, end + 1 - begin, fmt::format("&{}", made_.size()));
    made_.push_back(ops(name, inputs, how, name == "TopK" ? 2 : 1));
  }
  Values results = terms(text);
  for (size_t i = 0; i < node_->inputs().size(); ++i) {
    if (used_.contains(i) || !has(i)) continue;
    const c10::IValue x = known(i);
    const auto& usual = node_->schema().arguments()[i].default_value();
    const bool is_off = usual == x || x == false || x == Ints{0};
    if (!is_off) refuse(fmt::format("its argument {} is set", i));
  }
  return results;
}

size_t Translator::argument(const Text& x) {
  const size_t i = *used_.insert(std::stoul(x)).first;
  if (!x.ends_with('?') && !has(i)) refuse("it lacks argument " + x);
  return i;
}

Values Translator::terms(const Text& x, Type own) {
  const Text rest = x.substr(1);
  if (x[0] == '&') return made_[std::stoul(rest)];
  if (x[0] == '_') return {nullptr};
  if (x[0] == '$') return {shape(sizes_of(out()[0]), rest == "?")};
  if (x[0] == '[') return list(argument(rest));
  if (x[0] == '@') return {shape(ints(argument(rest)))};
  if (x[0] == '^') return terms(rest, type_of(out()[0]));
  if (x[0] == '%') return terms(rest, promoteTypes(type(0), type(1)));
  const auto as = own.value_or(torch::kFloat);
  if (x[0] == '#') return {constant(torch::full({}, std::stod(rest), as))};
  if (x[0] != '!' && x[0] != '/') return {in(argument(x), own)};
  Ints order(sizes(argument(rest)).size());
  std::iota(order.begin(), order.end(), 0);
  const size_t rank = order.size();
  const size_t one = x[0] == '!' ? rank - 2 : axis(1);
  std::swap(order[one], order[x[0] == '!' ? rank - 1 : axis(2)]);
  return {op("Transpose", {in(argument(rest))}, {{"perm", order}})};
}

c10::IValue Translator::attribute(const Text& key, const Text& x) {
  if (x[0] == '\'') return x.substr(1);
  if (x[0] == '#') return std::stod(x.substr(1));
  const size_t i = argument(x);
  const Ints weight = sizes(i);
  if (!weight.empty()) return Ints(weight.begin() + 2, weight.end());
  c10::IValue given = known(i);
  if (key == "alpha") return given.toScalar().toDouble();
  if (!given.isIntList() || key == "axes") return given;
  Ints all = ints(i);
  if (key == "axis") return -std::ssize(all);
  for (int64_t& k : all) k += key == "perm" && k < 0 ? std::ssize(all) : 0;
  if (all.empty()) all = ints(1);  // the stride of a pooling
  const size_t sides = sizes(0).size() - 2, ends = key == "pads" ? 2 : 1;
  for (size_t k = 0; all.size() < ends * sides; ++k) all.push_back(all[k]);
  return all;
}

}  // namespace tern::onnx
