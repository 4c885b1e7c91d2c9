#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::test {

/// What make_fixtures.py wrote about `name`; from the folder in the environment
/// variable TERN_PARITY if there is one, else from what is stored beside the
/// tests. Sets LibTorch to one thread, as Python was.
nlohmann::json load_fixture(const std::string& name);

/// Whether the fixtures were made on this machine, for this run.
bool is_live();

/// A tensor with the bits that Python had.
torch::Tensor decode(const nlohmann::json& tensor);

/// "float32" and its like.
torch::ScalarType dtype_of(const std::string& name);
std::string name_of(torch::ScalarType dtype);

/// Whether matrix products, convolutions and sums give the bits here that they
/// gave where the fixtures were made. Asks LibTorch alone, nothing of Tern.
bool rounds_alike();

/// Every bit, if `rounds_alike()`; else about the same numbers.
testing::AssertionResult same(
    const torch::Tensor& actual,
    const torch::Tensor& expected);

}  // namespace tern::test
