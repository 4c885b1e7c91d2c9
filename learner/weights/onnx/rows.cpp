#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "tern/learner/weights/onnx/translator.h"

namespace tern::onnx {

namespace {

using T = Translator;
using Text = std::string;

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// Argument 2 is a factor of argument 1.
void add(T& t, const Text& onnx) {
  formula(t, onnx + (t.number(2) == 1 ? "(^0,^1)~2" : "(^0,Mul(^1,^2))"));
}

// Over the dimensions of argument 1, or over all.
void reduce(T& t, const Text& onnx) {
  if (t.count() < 3 || t.ints(1).empty()) {
    return formula(t, onnx + "(^0,keepdims=#0)~1~2~3");
  }
  const bool is_sum = onnx == "ReduceSum";  // ONNX is not even here
  formula(t, onnx + (is_sum ? "(^0,@1" : "(^0,axes=@1") + ",keepdims=2)~3");
}

// ---- Layers ----

void convolution(T& t, const Text&) {
  const Text how =
      "(0,1,2?,kernel_shape=+1,strides=*3,pads=&4,dilations=*5,group=8";
  const Text ignored = ")~6~7~9~10~11~12";
  formula(
      t,
      t.flag(6) ? "ConvTranspose" + how + ",output_padding=*7" + ignored
                : "Conv" + how + ignored);
}

void linear(T& t, const Text&) {
  const Text product = "MatMul(0,!1)";
  formula(t, t.has(2) ? "Add(" + product + ",2)" : product);
}

// Without padding PyTorch leaves out what ceil_mode adds.
void avg_pool(T& t, const Text&) {
  const Ints pads = t.ints(3);
  const bool is_padded =
      std::ranges::any_of(pads, [](auto n) { return n > 0; });
  formula(
      t,
      Text("AveragePool(0,kernel_shape=*1,strides=*2,") +
          (is_padded ? "pads=&3,count_include_pad=5)" : "ceil_mode=4)~3~5"));
}

void adaptive_pool(T& t, const Text& onnx) {
  for (const int64_t side : t.ints(1)) {
    if (side != 1) t.refuse("its output is larger than 1; expected 1");
  }
  t.give({t.op(onnx, {t.in(0)})});
}

void upsample(T& t, const Text& mode) {
  const Sizes from = t.sizes(0), to = t.out_sizes();
  for (size_t i = 2; t.has(t.count() - 1) && i < to.size(); ++i) {
    if (to[i][0] % from[i][0] == 0) continue;
    t.refuse("its scale_factor gives no whole size; expected output sizes");
  }
  formula(
      t,
      fmt::format(
          "Resize(0,_,_,$,mode='{},coordinate_transformation_mode='{},"
          "nearest_mode='floor,cubic_coeff_a=#-0.75)~1~2~3~4",
          mode,
          mode == "nearest" ? "asymmetric"
          : t.flag(2)       ? "align_corners"
                            : "half_pixel"));
}

void attention(T& t, const Text&) {
  const auto width = static_cast<double>(t.sizes(0).back()[0]);
  const double scale = t.has(6) ? t.number(6) : 1 / std::sqrt(width);
  Text scores = fmt::format("MatMul(Mul(0,#{}),!1)", scale);
  if (t.has(3)) {
    const bool is_bool = t.type(3) == torch::kBool;
    scores =
        is_bool ? "Where(3," + scores + ",#-inf)" : "Add(3," + scores + ")";
  }
  formula(t, "MatMul(Softmax(" + scores + ",axis=#-1),2)~4~6");
}

// (x, initial states, weights, has_biases, layers, dropout, train,
// bidirectional, batch_first)
void recurrent(T& t, const Text& onnx) {
  const bool is_lstm = onnx == "LSTM";
  // PyTorch's in the order of ONNX.
  const torch::Tensor gates =
      torch::tensor(is_lstm ? Ints{0, 3, 1, 2} : Ints{1, 0, 2});
  const int64_t layers = t.integer(4), ways = t.flag(7) ? 2 : 1;
  const int64_t each = t.flag(3) ? 4 : 2;
  const auto weights = t.same(2).toTensorVector();
  if (std::ssize(weights) != each * layers * ways) {
    t.refuse("it is packed or has proj_size; expected neither");
  }
  std::vector<Values> states, last(is_lstm ? 2 : 1);
  for (Value* state : is_lstm ? t.list(1) : Values{t.in(1)}) {
    states.push_back(t.ops("Split", {state}, {{"axis", 0}}, layers));
  }
  const Attributes swap = {{"perm", Ints{1, 0, 2}}};
  Value* y = t.flag(8) ? t.op("Transpose", {t.in(0)}, swap) : t.in(0);
  for (int64_t i = 0; i < layers; ++i) {
    const auto part = [&](int64_t k) {
      std::vector<torch::Tensor> both;
      for (int64_t way = i * ways; way < (i + 1) * ways; ++way) {
        both.push_back(weights[way * each + k]
                           .unflatten(0, {gates.numel(), -1})
                           .index_select(0, gates)
                           .flatten(0, 1));
      }
      return torch::stack(both);
    };
    Values inputs = {y, t.constant(part(0)), t.constant(part(1))};
    inputs.push_back(
        each == 4 ? t.constant(torch::cat({part(2), part(3)}, 1)) : nullptr);
    inputs.push_back(nullptr);
    for (const Values& state : states) inputs.push_back(state[i]);
    Attributes how = {
        {"hidden_size", weights[1].size(1)},
        {"direction", ways == 2 ? "bidirectional" : "forward"}};
    if (!is_lstm) how.emplace_back("linear_before_reset", 1);
    const Values results = t.ops(onnx, inputs, how, last.size() + 1);
    // [T, ways, N, H] -> [T, N, ways * H]
    y = t.op("Transpose", {results[0]}, {{"perm", Ints{0, 2, 1, 3}}});
    y = t.op("Reshape", {y, t.int_list({0, 0, -1})});
    for (size_t k = 0; k < last.size(); ++k) last[k].push_back(results[k + 1]);
  }
  Values all = {t.flag(8) ? t.op("Transpose", {y}, swap) : y};
  for (const Values& s : last) all.push_back(t.op("Concat", s, {{"axis", 0}}));
  t.give(all);
}

// ---- Views and parts ----

void reshape(T& t, const Text&) {
  const Sizes from = t.sizes(0), to = t.out_sizes();
  Ints sizes;  // 0 keeps one, and one may be -1
  for (size_t i = 0; i < to.size(); ++i) {
    const bool is_kept = i < from.size() && from[i] == to[i];
    sizes.push_back(is_kept ? 0 : to[i][0] == to[i][1] ? to[i][0] : -1);
  }
  const bool is_clear = std::ranges::count(sizes, -1) <= 1;
  t.give(
      {t.op("Reshape", {t.in(0), is_clear ? t.int_list(sizes) : t.shape(to)})});
}

void permute(T& t, const Text& aten) {
  Ints order = t.ints(1);
  if (aten == "transpose") {
    order.resize(t.sizes(0).size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[t.axis(1)], order[t.axis(2)]);
  }
  for (int64_t& axis : order) axis += axis < 0 ? t.sizes(0).size() : 0;
  t.give({t.op("Transpose", {t.in(0)}, {{"perm", order}})});
}

// (x, dimension, begin, end, step), or for narrow the length in place of both.
void slice(T& t, const Text& aten) {
  const int64_t axis = t.axis(1), begin = t.has(2) ? t.integer(2) : 0;
  const int64_t step = aten == "slice" ? t.integer(4) : 1;
  const Size size = t.sizes(0)[axis], part = t.out_sizes()[axis];
  Sizes how = {{begin, begin}, {}, {axis, axis}, {step, step}};
  for (size_t k : {0, 1}) {
    how[1][k] = (begin < 0 ? begin + size[k] : begin) + part[k] * step;
  }
  if (how[1][0] >= size[0] && how[1][1] >= size[1]) how[1] = {kEnd, kEnd};
  Values inputs = {t.in(0)};
  for (const Size& number : how) inputs.push_back(t.shape({number}));
  t.give({t.op("Slice", inputs)});
}

void split(T& t, const Text&) {
  const int64_t axis = t.axis(2);
  Sizes lengths;
  for (const Value* part : t.out()) lengths.push_back(t.sizes_of(part)[axis]);
  const Values inputs = {t.in(0), t.shape(lengths)};
  t.give(t.ops("Split", inputs, {{"axis", axis}}, lengths.size()));
}

int64_t static_size(const T& t, int64_t axis) {
  const Size size = t.sizes(0)[axis];
  if (size[0] != size[1]) t.refuse("it divides a dynamic dimension");
  return size[0];
}

void roll(T& t, const Text&) {
  const Ints shifts = t.ints(1), axes = t.ints(2);
  Value* x = t.in(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t size = static_size(t, axes[i]);
    Value* const at = t.constant(torch::arange(size).roll(shifts[i]));
    x = t.op("Gather", {x, at}, {{"axis", axes[i]}});
  }
  t.give({x});
}

// PyTorch begins with the last dimension.
void pad(T& t, const Text& mode) {
  const Ints from_last = t.ints(1);
  const size_t rank = t.sizes(0).size();
  Ints pads(2 * rank, 0);
  for (size_t i = 0; i < from_last.size(); ++i) {
    pads[rank - 1 - i / 2 + (i % 2) * rank] = from_last[i];
  }
  Value* const number = mode == "constant" ? t.in(2, t.out_type()) : nullptr;
  t.give({t.op("Pad", {t.in(0), t.int_list(pads), number}, {{"mode", mode}})});
}

// Windows of a dimension, each a last dimension.
void unfold(T& t, const Text&) {
  const int64_t axis = t.axis(1), size = t.integer(2), step = t.integer(3);
  const int64_t length = static_size(t, axis);
  const torch::Tensor all = torch::arange(length).unfold(0, size, step);
  Value* const y = t.op("Gather", {t.in(0), t.constant(all)}, {{"axis", axis}});
  Ints order(t.sizes(0).size() + 1);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + axis + 1, order.begin() + axis + 2, order.end());
  t.give({t.op("Transpose", {y}, {{"perm", order}})});
}

// At places that several tensors of indices name, broadcast to one shape:
// [..., n].
void index(T& t, const Text& onnx) {
  Values indices = t.list(1);
  Value* sum = indices[0];
  for (Value* index : indices) sum = t.op("Add", {sum, index});
  Value* const shape = t.op("Shape", {sum});
  for (Value*& index : indices) {
    index = t.op("Expand", {index, shape});
    index = t.op("Unsqueeze", {index, t.int_list({-1})});
  }
  Values inputs = {t.in(0), t.op("Concat", indices, {{"axis", -1}})};
  if (onnx == "ScatterND") {
    if (t.flag(3)) t.refuse("it accumulates; expected one value for a place");
    inputs.push_back(t.in(2));
  }
  t.give({t.op(onnx, inputs)});
}

// Of a number, or a tensor.
void scatter(T& t, const Text&) {
  const Text values = t.sizes(3).empty() ? "Expand(^3,Shape(2))" : "^3";
  formula(t, "ScatterElements(0,2," + values + ",axis=1)");
}

// PyTorch's names, and after = what the function is given: otherwise the name.
using Put = void (*)(T&, const Text&);
constexpr std::pair<Put, const char*> kRows[] = {
    {formula,
     "abs=Abs(0) ceil=Ceil(0) cos=Cos(0) erf=Erf(0) exp=Exp(0) floor=Floor(0) "
     "log=Log(0) neg=Neg(0) relu=Relu(0) round=Round(0) sigmoid=Sigmoid(0) "
     "sign=Sign(0) sin=Sin(0) sqrt=Sqrt(0) tanh=Tanh(0) "
     "hardswish=HardSwish(0) hardsigmoid=HardSigmoid(0,alpha=#0.1666667) "
     "leaky_relu=LeakyRelu(0,alpha=.1) elu=Elu(0,alpha=.1)~2~3 "
     "silu=Mul(0,Sigmoid(0)) mish=Mul(0,Tanh(Softplus(0))) "
     "gelu=Mul(Mul(0,#0.5),Add(Erf(Mul(0,#0.7071067811865476)),#1)) "
     "clamp=Clip(0,^1?,^2?) clamp_min=Clip(0,^1) hardtanh=Clip(0,^1,^2) "
     "softmax=Softmax(^0,axis=1) log_softmax=LogSoftmax(^0,axis=1) "
     "mul=Mul(^0,^1) div=Div(^0,^1) pow=Pow(^0,^1) maximum=Max(^0,^1) "
     "minimum=Min(^0,^1) eq=Equal(%0,%1) ne=Not(Equal(%0,%1)) "
     "gt=Greater(%0,%1) ge=GreaterOrEqual(%0,%1) lt=Less(%0,%1) "
     "le=LessOrEqual(%0,%1) where=Where(0,^1,^2) masked_fill=Where(1,^2,^0) "
     "argmax=ArgMax(0,axis=1,keepdims=2) topk=TopK(0,@1,axis=2,largest=3)~4 "
     "matmul=MatMul(0,1) bmm=MatMul(0,1) mm=MatMul(0,1) "
     "addmm=Gemm(1,!2,0,beta=.3,alpha=.4,transB=#1) embedding=Gather(0,1)~2 "
     "batch_norm=BatchNormalization(0,1,2,3,4,epsilon=7)~6~8 "
     "layer_norm=LayerNormalization(0,2,3?,axis=-1,epsilon=4)~5 "
     "max_pool1d=MaxPool(0,kernel_shape=*1,strides=*2,pads=&3,dilations=*4,"
     "ceil_mode=5) max_pool2d=MaxPool(0,kernel_shape=*1,strides=*2,pads=&3,"
     "dilations=*4,ceil_mode=5) pixel_shuffle=DepthToSpace(0,blocksize=1,"
     "mode='CRD) select=Gather(0,2,axis=1) index_select=Gather(0,2,axis=1) "
     "gather=GatherElements(0,2,axis=1) nonzero=Transpose(NonZero(0)) "
     "cat=Concat([0,axis=1) unsqueeze=Unsqueeze(0,@1) t=!0 mT=!0 "
     "expand=Expand(0,$)~1~2 expand_as=Expand(0,$)~1 fill=Expand(^1,$)~0 "
     "empty_like=Expand(^#0,$)~0~1~2~3~4~5 "
     "zeros_like=Expand(^#0,$)~0~1~2~3~4~5 "
     "ones_like=Expand(^#1,$)~0~1~2~3~4~5 new_ones=Expand(^#1,$)~0~1~2~3~4~5 "
     "new_zeros=Expand(^#0,$)~0~1~2~3~4~5 to=^0~1~2~3~4~5~6~7 type_as=^0~1 "
     "alias=0 detach=0 clone=0~1 contiguous=0~1 dropout=0~1 "
     "feature_dropout=0~1"},
    {add, "add=Add sub=Sub"},
    {reduce, "mean=ReduceMean sum=ReduceSum amax=ReduceMax amin=ReduceMin"},
    {convolution, "_convolution"},
    {linear, "linear"},
    {avg_pool, "avg_pool1d avg_pool2d"},
    {adaptive_pool,
     "adaptive_avg_pool1d=GlobalAveragePool "
     "adaptive_avg_pool2d=GlobalAveragePool adaptive_max_pool2d=GlobalMaxPool"},
    {upsample,
     "upsample_nearest2d=nearest upsample_bilinear2d=linear "
     "upsample_bicubic2d=cubic"},
    {attention, "scaled_dot_product_attention"},
    {recurrent, "lstm=LSTM gru=GRU"},
    {reshape, "view reshape view_as flatten unflatten squeeze"},
    {permute, "permute transpose"},
    {slice, "slice narrow"},
    {split, "split chunk split_with_sizes"},
    {roll, "roll"},
    {pad,
     "constant_pad_nd=constant reflection_pad2d=reflect "
     "replication_pad2d=edge"},
    {unfold, "unfold"},
    {index, "index=GatherND index_put=ScatterND"},
    {scatter, "scatter"}};

}  // namespace

bool put_row(T& t, const Text& aten) {
  for (const auto& [put, names] : kRows) {
    std::istringstream words(names);
    for (Text word; words >> word;) {
      const size_t at = std::min(word.find('='), word.size() - 1);
      if (word != aten && word.substr(0, at) != aten) continue;
      put(t, word == aten ? aten : word.substr(at + 1));
      return true;
    }
  }
  return false;
}

}  // namespace tern::onnx
