#pragma once

#include <map>
#include <string>

#include "tern/learner/export/onnx/aten_node.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Writes an operator of PyTorch as operators of ONNX: reads the arguments of
/// the node, adds to the graph, and returns what the results are there.
using Operator = Values (*)(AtenNode& node, OnnxGraph& graph);

/// By PyTorch's names, "aten::relu" for relu_ too, which writes into its first
/// argument. To add one: its function, a line here, one in operators.cpp, and a
/// call in operators_test.cpp.
const std::map<std::string, Operator>& operators();

// ---- elementwise.cpp ----

Values abs(AtenNode& node, OnnxGraph& graph);
Values ceil(AtenNode& node, OnnxGraph& graph);
Values cos(AtenNode& node, OnnxGraph& graph);
Values erf(AtenNode& node, OnnxGraph& graph);
Values exp(AtenNode& node, OnnxGraph& graph);
Values floor(AtenNode& node, OnnxGraph& graph);
Values log(AtenNode& node, OnnxGraph& graph);
Values neg(AtenNode& node, OnnxGraph& graph);
Values round(AtenNode& node, OnnxGraph& graph);
Values sign(AtenNode& node, OnnxGraph& graph);
Values sin(AtenNode& node, OnnxGraph& graph);
Values sqrt(AtenNode& node, OnnxGraph& graph);
Values tanh(AtenNode& node, OnnxGraph& graph);
Values relu(AtenNode& node, OnnxGraph& graph);
Values leaky_relu(AtenNode& node, OnnxGraph& graph);
Values elu(AtenNode& node, OnnxGraph& graph);
Values sigmoid(AtenNode& node, OnnxGraph& graph);
Values hardsigmoid(AtenNode& node, OnnxGraph& graph);
Values hardswish(AtenNode& node, OnnxGraph& graph);
Values silu(AtenNode& node, OnnxGraph& graph);
Values mish(AtenNode& node, OnnxGraph& graph);
Values gelu(AtenNode& node, OnnxGraph& graph);
Values clamp(AtenNode& node, OnnxGraph& graph);
Values clamp_min(AtenNode& node, OnnxGraph& graph);
Values hardtanh(AtenNode& node, OnnxGraph& graph);
Values add(AtenNode& node, OnnxGraph& graph);
Values sub(AtenNode& node, OnnxGraph& graph);
Values mul(AtenNode& node, OnnxGraph& graph);
Values div(AtenNode& node, OnnxGraph& graph);
Values pow(AtenNode& node, OnnxGraph& graph);
Values maximum(AtenNode& node, OnnxGraph& graph);
Values minimum(AtenNode& node, OnnxGraph& graph);
Values eq(AtenNode& node, OnnxGraph& graph);
Values ne(AtenNode& node, OnnxGraph& graph);
Values gt(AtenNode& node, OnnxGraph& graph);
Values lt(AtenNode& node, OnnxGraph& graph);
Values ge(AtenNode& node, OnnxGraph& graph);
Values le(AtenNode& node, OnnxGraph& graph);
Values where(AtenNode& node, OnnxGraph& graph);
Values masked_fill(AtenNode& node, OnnxGraph& graph);
Values to(AtenNode& node, OnnxGraph& graph);
Values same(AtenNode& node, OnnxGraph& graph);
Values dropout(AtenNode& node, OnnxGraph& graph);

// ---- reductions.cpp ----

Values sum(AtenNode& node, OnnxGraph& graph);
Values mean(AtenNode& node, OnnxGraph& graph);
Values amax(AtenNode& node, OnnxGraph& graph);
Values amin(AtenNode& node, OnnxGraph& graph);
Values argmax(AtenNode& node, OnnxGraph& graph);
Values topk(AtenNode& node, OnnxGraph& graph);
Values softmax(AtenNode& node, OnnxGraph& graph);
Values log_softmax(AtenNode& node, OnnxGraph& graph);

// ---- shapes.cpp ----

Values view(AtenNode& node, OnnxGraph& graph);
Values reshape(AtenNode& node, OnnxGraph& graph);
Values view_as(AtenNode& node, OnnxGraph& graph);
Values flatten(AtenNode& node, OnnxGraph& graph);
Values unflatten(AtenNode& node, OnnxGraph& graph);
Values squeeze(AtenNode& node, OnnxGraph& graph);
Values unsqueeze(AtenNode& node, OnnxGraph& graph);
Values expand(AtenNode& node, OnnxGraph& graph);
Values expand_as(AtenNode& node, OnnxGraph& graph);
Values permute(AtenNode& node, OnnxGraph& graph);
Values transpose(AtenNode& node, OnnxGraph& graph);
Values transpose_matrix(AtenNode& node, OnnxGraph& graph);
Values slice(AtenNode& node, OnnxGraph& graph);
Values narrow(AtenNode& node, OnnxGraph& graph);
Values split(AtenNode& node, OnnxGraph& graph);
Values unfold(AtenNode& node, OnnxGraph& graph);
Values cat(AtenNode& node, OnnxGraph& graph);
Values roll(AtenNode& node, OnnxGraph& graph);
Values constant_pad_nd(AtenNode& node, OnnxGraph& graph);
Values reflection_pad2d(AtenNode& node, OnnxGraph& graph);
Values replication_pad2d(AtenNode& node, OnnxGraph& graph);
Values zeros(AtenNode& node, OnnxGraph& graph);
Values ones(AtenNode& node, OnnxGraph& graph);
Values fill(AtenNode& node, OnnxGraph& graph);

// ---- indexing.cpp ----

Values select(AtenNode& node, OnnxGraph& graph);
Values index_select(AtenNode& node, OnnxGraph& graph);
Values gather(AtenNode& node, OnnxGraph& graph);
Values embedding(AtenNode& node, OnnxGraph& graph);
Values index(AtenNode& node, OnnxGraph& graph);
Values nonzero(AtenNode& node, OnnxGraph& graph);
Values index_put(AtenNode& node, OnnxGraph& graph);
Values scatter(AtenNode& node, OnnxGraph& graph);

// ---- convolutions.cpp ----

Values convolution(AtenNode& node, OnnxGraph& graph);
Values max_pool(AtenNode& node, OnnxGraph& graph);
Values avg_pool(AtenNode& node, OnnxGraph& graph);
Values adaptive_avg_pool(AtenNode& node, OnnxGraph& graph);
Values adaptive_max_pool2d(AtenNode& node, OnnxGraph& graph);
Values upsample_nearest2d(AtenNode& node, OnnxGraph& graph);
Values upsample_bilinear2d(AtenNode& node, OnnxGraph& graph);
Values upsample_bicubic2d(AtenNode& node, OnnxGraph& graph);
Values pixel_shuffle(AtenNode& node, OnnxGraph& graph);

// ---- layers.cpp ----

Values matmul(AtenNode& node, OnnxGraph& graph);
Values mm(AtenNode& node, OnnxGraph& graph);
Values addmm(AtenNode& node, OnnxGraph& graph);
Values linear(AtenNode& node, OnnxGraph& graph);
Values batch_norm(AtenNode& node, OnnxGraph& graph);
Values layer_norm(AtenNode& node, OnnxGraph& graph);
Values scaled_dot_product_attention(AtenNode& node, OnnxGraph& graph);
Values lstm(AtenNode& node, OnnxGraph& graph);
Values gru(AtenNode& node, OnnxGraph& graph);

}  // namespace tern::onnx
