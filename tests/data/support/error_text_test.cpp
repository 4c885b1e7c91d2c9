#include "tern/data/support/error_text.h"

#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::error_text_test {
namespace {

TEST(MessageOf, RemovesTheTableOfAnOperatorsBackends) {
  const torch::Tensor sparse = torch::ones({2, 2}).to_sparse();
  std::string message;
  try {
    sparse.clone().clamp_min_(0);
  } catch (const std::exception& error) {
    message = message_of(error);
  }
  EXPECT_TRUE(message.starts_with("Could not run 'aten::clamp_min_'"))
      << message;
  EXPECT_TRUE(message.ends_with("'SparseCPU' backend.")) << message;
}

TEST(MessageOf, KeepsTextAfterSuchATable) {
  const std::string table =
      "Could not run 'aten::f' with arguments from the 'X' backend. This could "
      "be because the operator doesn't exist for this backend. 'aten::f' is "
      "only available for these backends: [CPU].\n\nCPU: registered at "
      "/a.cpp:1 [kernel]\nMeta: fallthrough registered at /b.cpp:2 [backend "
      "fallback]";
  EXPECT_EQ(
      message_of(std::runtime_error(
          "first: " + table + "\n\nIn the step.\n" + table + "\n")),
      "first: Could not run 'aten::f' with arguments from the 'X' backend.\n"
      "In the step.\n"
      "Could not run 'aten::f' with arguments from the 'X' backend.");
  const std::string plain = "registered at noon\n\nand kept";
  EXPECT_EQ(message_of(std::runtime_error(plain)), plain);
}

}  // namespace
}  // namespace tern::error_text_test
