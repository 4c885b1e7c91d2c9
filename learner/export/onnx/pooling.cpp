// Maxima and means over windows, or over parts of an image.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"
#include "tern/learner/export/onnx/spatial.h"

namespace tern::onnx {

namespace {

// The spatial dimensions follow N and C.
void check_has_batch(const AtenNode& node, int64_t spatial_rank) {
  if (node.rank("self") == spatial_rank + 2) return;
  refuse(fmt::format(
      "its self has {} dimensions; expected {}, with the batch. Write "
      "unsqueeze(0) before and squeeze(0) after it",
      node.rank("self"),
      spatial_rank + 2));
}

// With ceil_mode there is one more window if numbers remain. PyTorch omits a
// window that would begin in the padding at the end, and readers of ONNX differ
// in this. For fixed sizes the padding at the end is therefore set to the size
// that the last window needs. For dynamic sizes it must be certain that no
// window begins there.
struct Window {
  Integers kernel, stride, pads;  // the beginnings, then the ends
  bool is_ceil = false;

  Attributes attributes() const {
    return {
        {"kernel_shape", kernel},
        {"strides", stride},
        {"pads", pads},
        {"ceil_mode", is_ceil}};
  }
};

Window window_of(AtenNode& node, OnnxGraph& graph, int64_t rank) {
  const Integers kernel = per_dimension(node.integers("kernel_size"), rank);
  const Integers given = node.integers("stride");
  // PyTorch's default is the kernel's size, ONNX's is 1.
  const Integers stride = given.empty() ? kernel : per_dimension(given, rank);
  const Integers padding = per_dimension(node.integers("padding"), rank);
  const Integers dilation = node.has("dilation")
                                ? per_dimension(node.integers("dilation"), rank)
                                : Integers(rank, 1);
  Integers pads = both_sides(padding, rank);
  bool is_ceil = node.flag("ceil_mode");
  if (is_ceil) {
    const Integers self = node.sizes("self"), all = node.output_sizes();
    const Integers from(self.begin() + 2, self.end());
    const bool is_dynamic = graph.differ(from);
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t extent = dilation[i] * (kernel[i] - 1) + 1;
      if (is_dynamic) {
        if (stride[i] + padding[i] <= extent) continue;
        refuse(
            "its ceil_mode may begin a window in the padding for some sizes; "
            "expected images of one size, or a stride and padding that are "
            "together no larger than the kernel. Pad the images, and write it "
            "without ceil_mode");
      }
      const int64_t end = (all[i + 2] - 1) * stride[i] + extent;
      pads[rank + i] = std::max(padding[i], end - from[i] - padding[i]);
    }
    is_ceil = is_dynamic;
  }
  return {kernel, stride, pads, is_ceil};
}

// ONNX Runtime requires the padding to be less than the number of kernel
// elements in a dimension, but the last window of a dilated kernel may need
// more.
Term padded_for(const Term& x, Window& window) {
  const auto rank = std::ssize(window.kernel);
  bool is_taken = true;
  for (int64_t i = 0; i < rank; ++i) {
    is_taken = is_taken && window.pads[rank + i] < window.kernel[i];
  }
  if (is_taken) return x;
  Integers pads(2, 0);  // of N and C
  pads.insert(pads.end(), window.pads.begin(), window.pads.begin() + rank);
  pads.insert(pads.end(), 2, 0);
  pads.insert(pads.end(), window.pads.begin() + rank, window.pads.end());
  window.pads.assign(2 * rank, 0);
  OnnxGraph& graph = x.graph();
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  return x.op_with(
      "Pad",
      {graph.integers(pads), graph.scalar(kLowest, x.type())},
      {{"mode", "constant"}});
}

// ONNX Runtime pools only floats and bytes.
Term poolable(AtenNode& node) {
  const Term x = node.term("self");
  return x.is_float() ? x : x.to(torch::kDouble);
}

Operator max_pool(int64_t rank) {
  return [rank](AtenNode& node, OnnxGraph& graph) -> Values {
    check_has_batch(node, rank);
    Window window = window_of(node, graph, rank);
    const Term x = padded_for(poolable(node), window);
    Attributes attributes = window.attributes();
    attributes.emplace_back(
        "dilations",
        per_dimension(node.integers("dilation"), rank));
    const Term largest(
        graph,
        graph.op("MaxPool", {x.value()}, attributes),
        x.type());
    return largest.to(node.type("self"));
  };
}

// Returns the factor from the mean of a window's numbers inside the image to
// PyTorch's mean, which is divided by the window's size including padding, or
// by divisor_override.
torch::Tensor shares(AtenNode& node, int64_t rank) {
  Integers sizes = node.sizes("self");
  sizes[0] = sizes[1] = 1;
  for (int64_t i = rank; i < 3; ++i) sizes.insert(sizes.begin() + 2, 1);
  const auto in_3d = [&](const char* name, int64_t otherwise) {
    Integers numbers = per_dimension(node.integers(name), rank);
    if (numbers.empty()) return numbers;
    numbers.insert(numbers.begin(), 3 - rank, otherwise);
    return numbers;
  };
  std::optional<int64_t> divisor;
  if (node.has("divisor_override")) divisor = node.integer("divisor_override");
  torch::Tensor all = torch::avg_pool3d(
      torch::ones(sizes),
      in_3d("kernel_size", 1),
      in_3d("stride", 1),
      in_3d("padding", 0),
      node.flag("ceil_mode"),
      node.flag("count_include_pad"),
      divisor);
  for (int64_t i = rank; i < 3; ++i) all = all.squeeze(2);
  return all.to(node.type("self"));
}

// Before opset 19, ONNX also counts the part of a window with ceil_mode that
// extends beyond the padding; PyTorch does not. Therefore ONNX only counts
// numbers inside the image, and a constant factor corrects the result to
// PyTorch's count.
Operator avg_pool(int64_t rank) {
  return [rank](AtenNode& node, OnnxGraph& graph) -> Values {
    check_has_batch(node, rank);
    const Term x = node.term("self");
    const bool is_ceil = node.flag("ceil_mode");
    const bool has_divisor = node.has("divisor_override");
    const bool counts_padding = node.flag("count_include_pad");
    const Integers padding = node.integers("padding");
    const bool has_padding = padding != Integers(padding.size(), 0);
    const bool counts_otherwise = is_ceil && counts_padding && has_padding;
    // Computed first, since the window may be written differently in the two
    // traces.
    std::optional<Term> share;
    if (has_divisor || counts_otherwise) {
      share = Term(graph, graph.constant(shares(node, rank)), x.type());
    }
    Attributes attributes = window_of(node, graph, rank).attributes();
    attributes.emplace_back(
        "count_include_pad",
        counts_padding && !is_ceil && !has_divisor);
    const Term mean = x.op("AveragePool", {}, attributes);
    return share ? mean * *share : mean;
  };
}

// ---- Parts of an image ----

// Row k holds the weights of a dimension's numbers in mean k: [to, from].
torch::Tensor mean_matrix(int64_t from, int64_t to) {
  return torch::adaptive_avg_pool1d(torch::eye(from), to).t().contiguous();
}

// Computes the mean of each part of one dimension as a matrix product.
Term means_of_parts(const Term& x, int64_t axis, int64_t to, AtenNode& node) {
  OnnxGraph& graph = x.graph();
  const int64_t rank = node.rank("self"), from = node.sizes("self")[axis];
  const torch::Tensor matrix = mean_matrix(from, to).to(x.type());
  const auto constant = [&](const torch::Tensor& tensor) {
    return Term(graph, graph.constant(tensor), x.type());
  };
  if (axis == rank - 1)
    return term::matmul(x, constant(matrix.t().contiguous()));
  if (axis == rank - 2) return term::matmul(constant(matrix), x);
  const auto swap = [&](const Term& y) {
    Value* const swapped =
        graph.swap_dimensions(y.value(), rank, axis, rank - 1);
    return Term(graph, swapped, x.type());
  };
  return swap(term::matmul(swap(x), constant(matrix.t().contiguous())));
}

struct Parts {
  Integers from, to;
  bool is_one = true;      // one part in every dimension
  bool is_divided = true;  // into parts of equal size
};

Parts parts_of(AtenNode& node, int64_t rank) {
  check_has_batch(node, rank);
  const Integers self = node.sizes("self"), output = node.output_sizes();
  node.ignore({"output_size"});  // equals the output's
  Parts parts{
      {self.begin() + 2, self.end()},
      {output.begin() + 2, output.end()}};
  for (int64_t i = 0; i < rank; ++i) {
    parts.is_one &= parts.to[i] == 1;
    parts.is_divided &= parts.from[i] % parts.to[i] == 0;
  }
  return parts;
}

// Adjacent windows.
Attributes windows(const Parts& parts) {
  Integers kernel;
  for (size_t i = 0; i < parts.to.size(); ++i) {
    kernel.push_back(parts.from[i] / parts.to[i]);
  }
  return {{"kernel_shape", kernel}, {"strides", kernel}};
}

Operator adaptive_avg_pool(int64_t rank) {
  return [rank](AtenNode& node, OnnxGraph& graph) -> Values {
    const Parts parts = parts_of(node, rank);
    const Term x = node.term("self");
    if (parts.is_one) return x.op("GlobalAveragePool");
    graph.check_path(parts.is_divided ? "windows" : "parts");
    if (parts.is_divided) return x.op("AveragePool", {}, windows(parts));
    Term y = x;
    for (int64_t i = 0; i < rank; ++i) {
      if (parts.from[i] == parts.to[i]) continue;
      y = means_of_parts(y, i + 2, parts.to[i], node);
    }
    return y;
  };
}

// Without the indices of the maxima, which ONNX does not provide.
Operator adaptive_max_pool(int64_t rank) {
  return [rank](AtenNode& node, OnnxGraph&) -> Values {
    const Parts parts = parts_of(node, rank);
    const Term x = poolable(node);
    const torch::ScalarType type = node.type("self");
    if (parts.is_one) return x.op("GlobalMaxPool").to(type);
    if (!parts.is_divided) {
      refuse(fmt::format(
          "its output_size is {} for an image of {}; expected a divisor of the "
          "image's size, since all windows in ONNX have the same size. Pad the "
          "image, or use adaptive_avg_pool",
          c10::str(c10::IValue(parts.to)),
          c10::str(c10::IValue(parts.from))));
    }
    return x.op("MaxPool", {}, windows(parts)).to(type);
  };
}

}  // namespace

OperatorTable pooling() {
  return {
      {"aten::adaptive_avg_pool1d", adaptive_avg_pool(1)},
      {"aten::adaptive_avg_pool2d", adaptive_avg_pool(2)},
      {"aten::adaptive_avg_pool3d", adaptive_avg_pool(3)},
      {"aten::adaptive_max_pool1d", adaptive_max_pool(1)},
      {"aten::adaptive_max_pool2d", adaptive_max_pool(2)},
      {"aten::adaptive_max_pool3d", adaptive_max_pool(3)},
      {"aten::avg_pool1d", avg_pool(1)},
      {"aten::avg_pool2d", avg_pool(2)},
      {"aten::avg_pool3d", avg_pool(3)},
      {"aten::max_pool1d", max_pool(1)},
      {"aten::max_pool2d", max_pool(2)},
      {"aten::max_pool2d_with_indices", max_pool(2)},
      {"aten::max_pool3d", max_pool(3)},
  };
}

}  // namespace tern::onnx
