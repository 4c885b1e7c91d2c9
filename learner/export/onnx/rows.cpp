#include <cmath>
#include <sstream>

#include "tern/learner/export/onnx/translator.h"

namespace tern::onnx {

namespace {

Values attention(Translator& t, const Text&) {
  const double scale = t.has(6) ? t.known(6).toScalar().toDouble()
                                : 1 / std::sqrt(t.sizes(0).back());
  const Text scores = fmt::format("MatMul(Mul(0,#{}),!1)", scale);
  const bool chooses = t.has(3) && t.type(3) == torch::kBool;
  const Text masked =
      chooses ? "Where(3," + scores + ",#-inf)" : "Add(" + scores + ",3?)";
  return t.formula("MatMul(Softmax(" + masked + "),2)~46");
}

// (x, states, weights, has_biases, layers, dropout, train, 2 ways, batch_first)
Values recurrent(Translator& t, const Text& onnx) {
  const bool is_lstm = onnx == "LSTM", is_batch_first = t.flag(8);
  // PyTorch's gates in the order of ONNX.
  const Ints gates = is_lstm ? Ints{0, 3, 1, 2} : Ints{1, 0, 2};
  const int64_t layers = t.integer(4), ways = t.flag(7) ? 2 : 1;
  std::vector<torch::Tensor> all = t.known(2).toTensorVector();
  if (std::ssize(all) != 4 * layers * ways) {
    t.refuse("it is packed, or has proj_size or no biases");
  }
  const int64_t hidden = all[1].size(1);
  for (torch::Tensor& x : all) {
    x = x.unflatten(0, {-1, hidden})
            .index({torch::tensor(gates)})
            .flatten(0, 1);
  }
  std::vector<Values> states, results;
  for (Value* state : is_lstm ? t.list(1) : Values{t.in(1)}) {
    states.push_back(t.ops("Split", {state}, {{"axis", 0}}, layers));
  }
  const Attributes swap = {{"perm", Ints{1, 0, 2}}};
  Value* y = is_batch_first ? t.op("Transpose", {t.in(0)}, swap) : t.in(0);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto part = [&](int64_t k) {
      const int64_t way = 4 * ways * layer + k, last = way + 4 * (ways - 1);
      return torch::stack({all[way], all[last]}).narrow(0, 0, ways);
    };
    Values inputs = {y, t.constant(part(0)), t.constant(part(1))};
    inputs.push_back(t.constant(torch::cat({part(2), part(3)}, 1)));
    inputs.push_back(nullptr);  // lengths
    for (const Values& state : states) inputs.push_back(state[layer]);
    Attributes how = {
        {"hidden_size", hidden},
        {"direction", ways == 2 ? "bidirectional" : "forward"}};
    if (!is_lstm) how.emplace_back("linear_before_reset", 1);
    results.push_back(t.ops(onnx, inputs, how, states.size() + 1));
    // [T, ways, N, H] -> [T, N, ways * H]
    y = t.op("Transpose", {results.back()[0]}, {{"perm", Ints{0, 2, 1, 3}}});
    y = t.op("Reshape", {y, t.shape({0, 0, -1})});
  }
  Values outputs = {is_batch_first ? t.op("Transpose", {y}, swap) : y};
  for (size_t k = 1; k <= states.size(); ++k) {
    Values last;
    for (const Values& layer : results) last.push_back(layer[k]);
    outputs.push_back(t.op("Concat", last, {{"axis", 0}}));
  }
  return outputs;
}

// (x, dimension, begin, end, step), or for narrow the length in place of both.
Values slice(Translator& t, const Text& aten) {
  const int64_t axis = t.axis(1), size = t.sizes(0)[axis];
  const int64_t given = t.has(2) ? t.integer(2) : 0;
  const int64_t begin = std::max<int64_t>(given < 0 ? given + size : given, 0);
  const int64_t step = aten == "slice" ? t.integer(4) : 1;
  const int64_t length = Translator::sizes_of(t.out()[0])[axis];
  const int64_t end = begin + length * step;
  Values inputs = {t.in(0)};
  for (const int64_t number : {given, std::min(end, size), axis, step}) {
    inputs.push_back(t.shape({number}));
  }
  return {t.op("Slice", inputs)};
}

Values split(Translator& t, const Text&) {
  const int64_t axis = t.axis(2);
  Ints lengths;
  for (const Value* part : t.out())
    lengths.push_back(Translator::sizes_of(part)[axis]);
  const Values inputs = {t.in(0), t.shape(lengths)};
  return t.ops("Split", inputs, {{"axis", axis}}, lengths.size());
}

Values roll(Translator& t, const Text&) {
  const Ints shifts = t.ints(1), axes = t.ints(2), sizes = t.sizes(0);
  if (axes.empty()) t.refuse("it has no dims; expected those that it rolls");
  Value* x = t.in(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t size = sizes[(axes[i] + sizes.size()) % sizes.size()];
    Value* const from = t.constant(torch::arange(size).roll(shifts[i]));
    x = t.op("Gather", {x, from}, {{"axis", axes[i]}});
  }
  return {x};
}

// PyTorch begins with the last dimension.
Values pad(Translator& t, const Text& mode) {
  const Ints from_last = t.ints(1);
  const size_t rank = t.sizes(0).size();
  Ints pads(2 * rank, 0);
  for (size_t i = 0; i < from_last.size(); ++i) {
    pads[rank - 1 - i / 2 + (i % 2) * rank] = from_last[i];
  }
  Value* const number = mode == "constant" ? t.in(2, t.type(0)) : nullptr;
  return {t.op("Pad", {t.in(0), t.shape(pads), number}, {{"mode", mode}})};
}

// Windows of the last dimension.
Values unfold(Translator& t, const Text&) {
  const Ints sizes = t.sizes(0);
  if (t.axis(1) + 1 != std::ssize(sizes)) t.refuse("it has another dimension");
  const torch::Tensor all = torch::arange(sizes.back());
  Value* const at = t.constant(all.unfold(0, t.integer(2), t.integer(3)));
  return {t.op("Gather", {t.in(0), at}, {{"axis", -1}})};
}

// Over all dimensions, if argument 1 has none or is the type of the sum.
Values reduce(Translator& t, const Text& text) {
  if (t.has(2) && !t.ints(1).empty()) return t.formula(text);
  const Text name = text.substr(0, text.find('('));
  Value* const x = t.in(0, Translator::type_of(t.out()[0]));
  return {t.op(name, {x}, {{"keepdims", int64_t{t.flag(2)}}})};
}

Values scatter(Translator& t, const Text& text) {
  const Ints from = t.sizes(3);
  if (!from.empty() && from != t.sizes(2)) t.refuse("its src is cut to index");
  return t.formula(text);
}

// At places of several tensors of indices, broadcast to one shape: [..., n].
Values index(Translator& t, const Text& onnx) {
  Values indices = t.list(1);
  const bool are_others = std::ranges::any_of(indices, [](const Value* x) {
    return !x || Translator::type_of(x) == torch::kBool;
  });
  if (are_others || t.flag(3)) t.refuse("it has slices, a mask or accumulates");
  Value* sum = indices[0];
  for (Value* index : indices) sum = t.op("Add", {sum, index});
  Value* const shape = t.op("Shape", {sum});
  for (Value*& index : indices) {
    Value* const whole = t.op("Expand", {index, shape});
    index = t.op("Unsqueeze", {whole, t.shape({-1})});
  }
  Value* const places = t.op("Concat", indices, {{"axis", -1}});
  if (!t.has(2)) return {t.op(onnx, {t.in(0), places})};
  const Ints x = t.sizes(0), rest(x.begin() + std::ssize(indices), x.end());
  Value* const whole = t.op("Concat", {shape, t.shape(rest)}, {{"axis", 0}});
  Value* const values = t.op("Expand", {t.in(2, t.type(0)), whole});
  return {t.op(onnx, {t.in(0), places, values})};
}

Values upsample(Translator& t, const Text& text) {
  const Ints from = t.sizes(0), to = Translator::sizes_of(t.out()[0]);
  const bool is_whole = to[2] % from[2] == 0 && to[3] % from[3] == 0;
  if (t.ints(1).empty() && !is_whole) t.refuse("its scale is no whole number");
  return t.formula(text);
}

constexpr std::pair<Values (*)(Translator&, const Text&), const char*> kRows[] =
    {{attention, "scaled_dot_product_attention"},
     {recurrent, "lstm=LSTM; gru=GRU"},
     {upsample, R"(
upsample_nearest2d=Resize(0,_,_,$,nearest_mode='floor,
  coordinate_transformation_mode='asymmetric)~12;
upsample_bilinear2d&2=Resize(0,_,_,$,mode='linear,
  coordinate_transformation_mode='align_corners)~123;
upsample_bilinear2d=Resize(0,_,_,$,mode='linear)~123;
upsample_bicubic2d=Resize(0,_,_,$,mode='cubic)~13)"},
     {slice, "slice|narrow"},
     {split, "split|chunk|split_with_sizes"},
     {roll, "roll"},
     {pad, "constant_pad_nd=constant; reflection_pad2d=reflect"},
     {pad, "replication_pad2d=edge"},
     {unfold, "unfold"},
     {index, "index=GatherND; index_put=ScatterND"},
     {scatter, "scatter=ScatterElements(0,2,Expand(^3,Shape(2)),axis=1)"},
     {reduce, R"(
sum=ReduceSum(^0,@1,keepdims=2)~3; mean=ReduceMean(^0,axes=1,keepdims=2)~3;
amax=ReduceMax(0,axes=1,keepdims=2); amin=ReduceMin(0,axes=1,keepdims=2))"},
     {[](Translator& t, const Text& text) { return t.formula(text); }, R"(
abs=Abs(0); erf=Erf(0); exp=Exp(0); log=Log(0); neg=Neg(0); relu=Relu(0);
sigmoid=Sigmoid(0); sqrt=Sqrt(0); tanh=Tanh(0); hardswish=HardSwish(0);
hardsigmoid=HardSigmoid(0,alpha=#0.1666667); leaky_relu=LeakyRelu(0,alpha=1);
elu=Elu(0,alpha=1); silu=Mul(0,Sigmoid(0)); softmax=Softmax(^0,axis=1);
gelu=Mul(Mul(0,#0.5),Add(Erf(Mul(0,#0.7071067811865476)),#1));
adaptive_avg_pool1d|adaptive_avg_pool2d&1=GlobalAveragePool(0)~1;
adaptive_max_pool2d&1=GlobalMaxPool(0)~1; log_softmax=LogSoftmax(^0,axis=1);
clamp=Clip(0,^1?,^2?); clamp_min=Clip(0,^1); hardtanh=Clip(0,^1,^2);
mish=Mul(0,Tanh(Softplus(0))); cos=Cos(0); sin=Sin(0); floor=Floor(0);
ceil=Ceil(0); round=Round(0); sign=Sign(0);
add=Add(^0,^1); sub=Sub(^0,^1); mul=Mul(^0,^1); div=Div(^0,^1); pow=Pow(^0,^1);
maximum=Max(^0,^1); minimum=Min(^0,^1); eq=Equal(%0,%1); ne=Not(Equal(%0,%1));
gt=Greater(%0,%1); lt=Less(%0,%1); ge=GreaterOrEqual(%0,%1);
le=LessOrEqual(%0,%1); where=Where(0,^1,^2); masked_fill=Where(1,^2,^0);
argmax=ArgMax(0,axis=1,keepdims=2); topk=TopK(0,@1,axis=2,largest=3)~4;
embedding=Gather(0,1)~2; matmul|bmm|mm=MatMul(0,1); linear=Add(MatMul(0,!1),2?);
addmm=Add(MatMul(1,2),0); batch_norm=BatchNormalization(0,1,2,3,4,epsilon=7)~68;
_convolution&6=ConvTranspose(0,1,2?,kernel_shape=1,strides=3,pads=4,
  dilations=5,output_padding=7,group=8)~69abc;
_convolution=Conv(0,1,2?,kernel_shape=1,strides=3,pads=4,dilations=5,
  group=8)~679abc; layer_norm=LayerNormalization(0,2,3?,axis=1,epsilon=4)~5;
max_pool1d|max_pool2d=MaxPool(0,kernel_shape=1,strides=2,pads=3,dilations=4,
  ceil_mode=5); t|mT=!0; transpose=/0~12; permute=Transpose(0,perm=1);
avg_pool1d|avg_pool2d&4=AveragePool(0,kernel_shape=1,strides=2,ceil_mode=4)~5;
avg_pool1d|avg_pool2d=AveragePool(0,kernel_shape=1,strides=2,pads=3,
  count_include_pad=5); pixel_shuffle=DepthToSpace(0,blocksize=1,mode='CRD);
nonzero=Transpose(NonZero(0)); select|index_select=Gather(0,2,axis=1);
gather=GatherElements(0,2,axis=1); cat=Concat([0,axis=1);
unsqueeze=Unsqueeze(0,@1); expand|expand_as=Expand(0,$)~12; fill=Expand(^1,$)~0;
view|reshape|view_as|flatten|unflatten|squeeze=Reshape(0,$?)~12;
empty_like|zeros_like|new_zeros=Expand(^#0,$)~012345; to|type_as=^0~1234567;
ones_like|new_ones=Expand(^#1,$)~012345;
alias|detach|clone|contiguous|dropout|feature_dropout=0~12)"}};

// PyTorch's names, after & an argument that is true or 1, after = what is
// given.
template <typename Use>
void for_each_row(const Use& use) {
  for (const auto& [put, rows] : kRows) {
    Text text = rows;
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    std::istringstream words(text);
    for (Text word; std::getline(words, word, ';');) {
      const size_t at = std::min(word.find('='), word.size());
      const size_t end = std::min(word.find('&'), at);
      const Text given = at < word.size() ? word.substr(at + 1) : "";
      use(put, word.substr(0, end), end < at ? word[end + 1] - '0' : 0, given);
    }
  }
}

}  // namespace

Values Translator::row(const Text& aten) {
  Text why =
      "the exporter has no row for it; expected operators of the list in "
      "docs/inference.md. Write the module with those";
  std::optional<Values> values;
  for_each_row([&](auto put, const Text& names, int on, const Text& given) {
    const bool is_it = ('|' + names + '|').find('|' + aten + '|') != Text::npos;
    if (values || !is_it) return;
    const c10::IValue x = on > 0 ? known(on) : true;
    if (x == true || x == Ints{1} || x == Ints{1, 1}) {
      values = put(*this, given.empty() ? aten : given);
    }
    why = fmt::format("argument {} is {}; expected 1", on, c10::str(x));
  });
  if (!values) refuse(why);
  return *values;
}

Text row_names() {
  Text all;
  for_each_row(
      [&](auto, const Text& names, int, const Text&) { all += '|' + names; });
  return all;
}

}  // namespace tern::onnx
