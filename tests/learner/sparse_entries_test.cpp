#include "tern/learner/sparse_entries.h"

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"

namespace tern::sparse_entries_test {
namespace {

torch::Tensor make_sparse() {
  return torch::sparse_coo_tensor(
      torch::tensor({{0, 4}}, torch::kLong),
      torch::ones({2, 3}),
      {5, 3});
}

TEST(SparseEntries, AreReadAsTheTensorThatWasInserted) {
  // The same index twice, as in the gradient of a word that occurs twice.
  const torch::Tensor duplicates = torch::sparse_coo_tensor(
      torch::tensor({{2, 2}}, torch::kLong),
      torch::tensor({{1.0f}, {2.0f}}),
      {5, 1});
  for (const torch::Tensor& sparse :
       {make_sparse(), duplicates, duplicates.coalesce()}) {
    StateDict state;
    insert_entry(state, "sum", sparse);
    for (const auto& entry : state) {
      EXPECT_FALSE(entry.value().is_sparse()) << entry.key();
    }
    size_t used = 0;
    const torch::Tensor read = find_entry(state, "sum", sparse.sizes(), &used);
    EXPECT_EQ(used, state.size());
    EXPECT_EQ(read.is_coalesced(), sparse.is_coalesced());
    EXPECT_TRUE(torch::equal(read._indices(), sparse._indices()));
    EXPECT_TRUE(torch::equal(read._values(), sparse._values()));
  }
}

TEST(SparseEntries, AreOneEntryIfTheTensorIsDense) {
  StateDict state;
  insert_entry(state, "sum", torch::ones({2}));
  EXPECT_EQ(state.size(), 1u);
  size_t used = 0;
  EXPECT_TRUE(
      torch::equal(find_entry(state, "sum", {2}, &used), torch::ones({2})));
  EXPECT_EQ(used, 1u);
  EXPECT_FALSE(find_entry(state, "other", {2}, &used).defined());
  EXPECT_EQ(used, 1u);
}

TEST(SparseEntries, AreRejectedIfAnIndexIsOutOfRange) {
  StateDict state;
  insert_entry(state, "sum", make_sparse());
  const auto find = [&] { find_entry(state, "sum", {4, 3}); };
  expect_error<c10::ValueError>(find, {"\"sum\"", "[4, 3]", "same model"});
}

}  // namespace
}  // namespace tern::sparse_entries_test
