#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::test {

/// The fixture `name` of make_fixtures.py: from the folder in the environment
/// variable TERN_PARITY if set, else from the files stored beside the tests.
/// Sets LibTorch to one thread, as in Python.
nlohmann::json load_fixture(const std::string& name);

/// True if the fixtures were created on this machine for this run.
bool is_live();

/// A tensor with Python's bits.
torch::Tensor decode(const nlohmann::json& tensor);

/// The dtype for names such as "float32".
torch::ScalarType dtype_of(const std::string& name);
std::string name_of(torch::ScalarType dtype);

/// True if matrix products, convolutions and sums give the same bits here as
/// where the fixtures were created. Depends on LibTorch only, not on Tern.
bool rounds_alike();

/// Requires equal bits if `rounds_alike()`, else approximate equality.
testing::AssertionResult same(
    const torch::Tensor& actual,
    const torch::Tensor& expected);

}  // namespace tern::test
