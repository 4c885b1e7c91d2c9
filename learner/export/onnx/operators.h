#pragma once

#include <functional>
#include <map>
#include <string>

#include "tern/learner/export/onnx/aten_node.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Writes an operator of PyTorch as operators of ONNX: reads the arguments of
/// the node, adds to the graph, and returns what the results are there.
using Operator = std::function<Values(AtenNode& node, OnnxGraph& graph)>;

/// By PyTorch's names, "aten::relu" for relu_ too, which writes into its first
/// argument.
using OperatorTable = std::map<std::string, Operator>;

/// The name that a node has in the tables.
std::string operator_name(const jit::Node& node);
/// Whether it writes into its first argument, as relu_ does.
bool is_in_place(const jit::Node& node);

/// All that can be written. To add one: its function and a line of the table in
/// the file of its subject, and a call in operators_test.cpp.
const OperatorTable& operators();

/// One of `self`, computed in the type of the result: PyTorch gives floats for
/// whole numbers, to which they are cast before.
Operator formula(Term (*function)(const Term& x));

/// Why another one cannot be written, and what to write instead.
std::string why_refused(const std::string& name);

// ---- A table in each file of that name ----

OperatorTable activations();
OperatorTable arithmetic();
OperatorTable attention();
OperatorTable comparisons();
OperatorTable convolutions();
OperatorTable functions();
OperatorTable indexing();
OperatorTable matrix_products();
OperatorTable new_tensors();
OperatorTable norms();
OperatorTable padding();
OperatorTable pooling();
OperatorTable recurrent_layers();
OperatorTable reductions();
OperatorTable resizing();
OperatorTable shapes();
OperatorTable sorting();

}  // namespace tern::onnx
