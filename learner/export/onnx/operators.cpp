#include "tern/learner/export/onnx/operators.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tern::onnx {

namespace {

using Advice = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kRandom =
    "it draws random numbers in evaluation; expected none, since a file must "
    "return the same output for the same input. Draw them only if "
    "is_training(), or pass them as an input";
constexpr std::string_view kPacked =
    "it packs or unpacks a sequence; expected a padded sequence. Call the "
    "recurrent layer with the padded tensor, and mask its output";

// Operators with a specific reason for not being supported.
constexpr Advice kReasons[] = {
    {"aten::_pack_padded_sequence", kPacked},
    {"aten::_pad_packed_sequence", kPacked},
    {"aten::bernoulli", kRandom},
    {"aten::exponential", kRandom},
    {"aten::multinomial", kRandom},
    {"aten::normal", kRandom},
    {"aten::poisson", kRandom},
    {"aten::rand", kRandom},
    {"aten::rand_like", kRandom},
    {"aten::randint", kRandom},
    {"aten::randint_like", kRandom},
    {"aten::randn", kRandom},
    {"aten::randn_like", kRandom},
    {"aten::random", kRandom},
    {"aten::randperm", kRandom},
    {"aten::uniform", kRandom}};

// Replacements for operators that are not in the tables.
constexpr Advice kInstead[] = {
    {"aten::_upsample_bicubic2d_aa", "upsample_bicubic2d without antialias"},
    {"aten::_upsample_bilinear2d_aa", "upsample_bilinear2d without antialias"},
    {"aten::col2im", "conv_transpose2d"},
    {"aten::copy",
     "cat, where or constant_pad_nd instead of an assignment to a slice"},
    {"aten::cummax", "amax, or topk"},
    {"aten::cumprod", "cumsum of logarithms, then exp"},
    {"aten::diff", "a difference of two slices"},
    {"aten::embedding_bag", "embedding, then sum, mean or amax over the bag"},
    {"aten::hstack", "cat"},
    {"aten::hypot", "(a * a + b * b).sqrt()"},
    {"aten::index_add", "scatter, or a matmul with a matrix of ones and zeros"},
    {"aten::index_copy", "index_put"},
    {"aten::index_fill", "masked_fill"},
    {"aten::linalg_norm", "norm or linalg_vector_norm"},
    {"aten::logaddexp", "logsumexp of a stack"},
    {"aten::masked_scatter", "where"},
    {"aten::masked_select", "where or masked_fill, which keep the shape"},
    {"aten::median", "sort, then select"},
    {"aten::meshgrid", "view and expand"},
    {"aten::nan_to_num", "where and isnan"},
    {"aten::one_hot", "a comparison with arange: x.unsqueeze(-1) == arange"},
    {"aten::scatter_add", "a matmul with a matrix of ones and zeros"},
    {"aten::scatter_reduce", "scatter with distinct indices"},
    {"aten::take", "flatten, then index_select"},
    {"aten::take_along_dim", "gather"},
    {"aten::tensor_split", "split"},
    {"aten::vstack", "cat"}};

}  // namespace

bool is_in_place(const jit::Node& node) {
  const std::string name = node.kind().toQualString();
  return name.ends_with('_') && !name.ends_with("__");  // __and__ is not
}

std::string operator_name(const jit::Node& node) {
  std::string name = node.kind().toQualString();
  if (is_in_place(node)) name.pop_back();
  return name;
}

const OperatorTable& operators() {
  static const OperatorTable table = [] {
    OperatorTable all;
    for (const auto& subject :
         {activations,
          arithmetic,
          attention,
          comparisons,
          convolutions,
          functions,
          indexing,
          matrix_products,
          new_tensors,
          norms,
          padding,
          pooling,
          recurrent_layers,
          reductions,
          resizing,
          shapes,
          sorting}) {
      all.merge(subject());
    }
    return all;
  }();
  return table;
}

Operator formula(Term (*function)(const Term& x)) {
  return [function](AtenNode& node, OnnxGraph&) -> Values {
    return function(node.term("self", node.output_type()));
  };
}

std::string why_refused(const std::string& name) {
  for (const auto& [refused, why] : kReasons) {
    if (refused == name) return std::string(why);
  }
  for (const auto& [refused, instead] : kInstead) {
    if (refused != name) continue;
    return fmt::format(
        "the exporter does not support it; expected an operator listed in "
        "docs/inference.md. Use {}",
        instead);
  }
  return "the exporter does not support it; expected an operator listed in "
         "docs/inference.md. Use such operators in the module";
}

}  // namespace tern::onnx
