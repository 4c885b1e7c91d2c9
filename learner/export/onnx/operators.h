#pragma once

#include <functional>
#include <map>
#include <string>

#include "tern/learner/export/onnx/aten_node.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Translates an operator of PyTorch to operators of ONNX: reads the arguments
/// of the node, adds operators to the graph, and returns their results.
using Operator = std::function<Values(AtenNode& node, OnnxGraph& graph)>;

/// Functions by PyTorch's names. The entry "aten::relu" also handles relu_,
/// which writes into its first argument.
using OperatorTable = std::map<std::string, Operator>;

/// Returns the name of a node in the tables.
std::string operator_name(const jit::Node& node);
/// True if the operator writes into its first argument, as relu_ does.
bool is_in_place(const jit::Node& node);

/// Returns all supported operators. To add an operator, write its function, and
/// add an entry to that file's table and a call to operators_test.cpp.
const OperatorTable& operators();

/// Returns the operator that applies `function` to `self`, computed in the type
/// of the result: PyTorch returns floats for integers, so these are cast first.
Operator formula(Term (*function)(const Term& x));

/// Returns why an operator that is not in the tables is not supported, and what
/// to write instead.
std::string why_refused(const std::string& name);

// ---- One table per file; the file has the function's name ----

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
