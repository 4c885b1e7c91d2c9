// New tensors filled with one number. `arange`, and tensors into which nothing
// is written, are constants of a trace and are not handled here.
#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

void ignore_options(AtenNode& node) {
  node.ignore(
      {"self",
       "size",
       "dtype",
       "layout",
       "device",
       "pin_memory",
       "memory_format",
       "names"});
}

// For the *_like functions, sizes that depend on the inputs are read from the
// given tensor.
Value* new_shape(AtenNode& node, OnnxGraph& graph, bool is_like) {
  const Integers sizes = node.output_sizes();
  return is_like && graph.differ(sizes)
             ? graph.op("Shape", {node.value("self")})
             : graph.integers(sizes);
}

// For `empty` any number will do, since later operators overwrite it.
Operator filled(double number, bool is_like = false) {
  return [=](AtenNode& node, OnnxGraph& graph) -> Values {
    ignore_options(node);
    Value* const value = graph.scalar(number, node.output_type());
    return {graph.op("Expand", {value, new_shape(node, graph, is_like)})};
  };
}

// `full`, `full_like`, `new_full` and `fill`. Only the shape and the type of a
// tensor argument are used.
Operator filled_by(const char* argument, bool is_like = false) {
  return [=](AtenNode& node, OnnxGraph& graph) -> Values {
    ignore_options(node);
    Value* const value = node.value(argument, node.output_type());
    return {graph.op("Expand", {value, new_shape(node, graph, is_like)})};
  };
}

}  // namespace

OperatorTable new_tensors() {
  return {
      {"aten::empty", filled(0)},
      {"aten::empty_like", filled(0, true)},
      {"aten::fill", filled_by("value", true)},
      {"aten::full", filled_by("fill_value")},
      {"aten::full_like", filled_by("fill_value", true)},
      {"aten::new_empty", filled(0)},
      {"aten::new_full", filled_by("fill_value")},
      {"aten::new_ones", filled(1)},
      {"aten::new_zeros", filled(0)},
      {"aten::ones", filled(1)},
      {"aten::ones_like", filled(1, true)},
      {"aten::zero", filled(0, true)},
      {"aten::zeros", filled(0)},
      {"aten::zeros_like", filled(0, true)},
  };
}

}  // namespace tern::onnx
