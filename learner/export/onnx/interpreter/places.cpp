// Elements at indices given as tensors.
#include <algorithm>

#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

// Converts indices in a dimension of `size` to indices counted from the front.
Tensor places_within(const Tensor& given, int64_t size) {
  const Tensor places = given.to(torch::kLong);
  const bool are_within =
      ((places >= -size) & (places < size)).all().item<bool>();
  TERN_CHECK_VALUE(
      are_within,
      "it has indices outside a dimension of {}; expected indices inside",
      size);
  return torch::where(places < 0, places + size, places);
}

std::vector<Tensor> gather(const Operation& op) {
  const Tensor& x = op.input();
  const int64_t axis = op.axis(0);
  const Tensor places = places_within(op.places(1), x.size(axis));
  Integers sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + axis);
  const Integers added = places.sizes().vec();
  sizes.insert(sizes.begin() + axis, added.begin(), added.end());
  return {x.index_select(axis, places.flatten()).reshape(sizes)};
}

std::vector<Tensor> gather_elements(const Operation& op) {
  const Tensor& x = op.input();
  const int64_t axis = op.axis(0);
  const Tensor& given = op.places(1);
  TERN_CHECK_VALUE(
      given.dim() == x.dim(),
      "its indices have {} dimensions; expected {}",
      given.dim(),
      x.dim());
  return {x.gather(axis, places_within(given, x.size(axis)))};
}

// Index tuples [..., k] for the first k dimensions.
struct Tuples {
  std::vector<Tensor> of_dimension;
  int64_t count;
};

Tuples tuples_of(const Tensor& given, const Tensor& x) {
  TERN_CHECK_VALUE(
      given.scalar_type() == torch::kLong && given.dim() > 0 &&
          given.size(-1) <= x.dim(),
      "its index tuples are {} with {} elements each; expected Long with at "
      "most {} elements",
      torch::toString(given.scalar_type()),
      given.dim() > 0 ? given.size(-1) : 0,
      x.dim());
  Tuples tuples{{}, given.size(-1)};
  for (int64_t i = 0; i < tuples.count; ++i) {
    const Tensor places = places_within(given.select(-1, i), x.size(i));
    tuples.of_dimension.push_back(places);
  }
  return tuples;
}

c10::List<std::optional<Tensor>> as_index(const Tuples& tuples) {
  c10::List<std::optional<Tensor>> index;
  for (const Tensor& places : tuples.of_dimension) index.push_back(places);
  return index;
}

std::vector<Tensor> gather_nd(const Operation& op) {
  const Tensor& x = op.input();
  const Tensor& given = op.input(1);
  const int64_t batch_dims = op.integer("batch_dims", 0);
  TERN_CHECK_VALUE(
      batch_dims <= 1,
      "its batch_dims is {}; expected 0 or 1",
      batch_dims);
  if (batch_dims == 0) return {x.index(as_index(tuples_of(given, x)))};
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < x.size(0); ++i) {
    rows.push_back(x[i].index(as_index(tuples_of(given[i], x[i]))));
  }
  return {torch::stack(rows)};
}

// How a scatter combines an element with an update.
enum class Reduction { kNone, kAdd, kMul };

Reduction reduction_of(const Operation& op) {
  const std::string name = op.text("reduction", "none");
  TERN_CHECK_VALUE(
      name == "none" || name == "add" || name == "mul",
      "its reduction is {}; expected none, add or mul, which opset 17 has",
      name);
  return name == "none"  ? Reduction::kNone
         : name == "add" ? Reduction::kAdd
                         : Reduction::kMul;
}

void require_type_of_first(const Operation& op, const Tensor& updates) {
  TERN_CHECK_VALUE(
      updates.scalar_type() == op.input().scalar_type(),
      "it writes {} into {}; expected the same type",
      torch::toString(updates.scalar_type()),
      torch::toString(op.input().scalar_type()));
}

std::vector<Tensor> scatter_nd(const Operation& op) {
  const Tensor &x = op.input(), &given = op.input(1), &updates = op.input(2);
  require_type_of_first(op, updates);
  const auto index = as_index(tuples_of(given, x));
  const Tensor old = x.index(index);
  TERN_CHECK_VALUE(
      updates.sizes() == old.sizes(),
      "its updates have {} elements; expected the shape of {}",
      updates.numel(),
      old.numel());
  const Reduction reduction = reduction_of(op);
  TERN_CHECK_VALUE(
      reduction != Reduction::kMul,
      "its reduction is mul, which the check does not compute");
  return {x.index_put(index, updates, reduction == Reduction::kAdd)};
}

std::vector<Tensor> scatter_elements(const Operation& op) {
  const Tensor &x = op.input(), &updates = op.input(2);
  require_type_of_first(op, updates);
  const int64_t axis = op.axis(0);
  const Tensor places = places_within(op.places(1), x.size(axis));
  TERN_CHECK_VALUE(
      updates.sizes() == places.sizes() && places.dim() == x.dim(),
      "its indices have {} and its updates {} elements; expected the same "
      "shape",
      places.numel(),
      updates.numel());
  switch (reduction_of(op)) {
    case Reduction::kAdd:
      return {x.scatter_add(axis, places, updates)};
    case Reduction::kMul:
      return {x.scatter(axis, places, updates, "multiply")};
    default:
      return {x.scatter(axis, places, updates)};
  }
}

std::vector<Tensor> one_hot(const Operation& op) {
  const Tensor &given = op.numbers(0), &values = op.input(2);
  const auto depth = op.input(1).item<int64_t>();
  const int64_t axis = from_front(op.integer("axis", -1), given.dim() + 1);
  Tensor places = given.to(torch::kLong).unsqueeze(axis);
  places = torch::where(places < 0, places + depth, places);
  Integers shape(given.dim() + 1, 1);
  shape[axis] = depth;
  const Tensor is_hot = places == torch::arange(depth).view(shape);
  return {torch::where(is_hot, values[1], values[0])};
}

std::vector<Tensor> compress(const Operation& op) {
  const bool has_axis = op.integer("axis", -100) != -100;
  const Tensor x = has_axis ? op.input() : op.input().flatten();
  const int64_t axis = has_axis ? op.axis(0) : 0;
  const Tensor places = op.booleans(1).nonzero().flatten();
  return {x.index_select(axis, places)};
}

}  // namespace

void add_places(ComputeTable& table) {
  table["Gather"] = gather;
  table["GatherElements"] = gather_elements;
  table["GatherND"] = gather_nd;
  table["ScatterND"] = scatter_nd;
  table["ScatterElements"] = scatter_elements;
  table["OneHot"] = one_hot;
  table["Compress"] = compress;
  // One row per dimension, one column per element.
  table["NonZero"] = [](const Operation& op) -> std::vector<Tensor> {
    return {op.input().nonzero().t()};
  };
}

}  // namespace tern::onnx
