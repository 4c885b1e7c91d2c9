#pragma once

// The same state dicts as in tests/parity/oracle/weight_files.py.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/state_dict.h"

namespace tern::test {

/// A tensor [2, 3] of each dtype, under its Python name, and some tensors of
/// unusual shapes.
inline StateDict types_state() {
  const torch::Tensor count = torch::arange(6).reshape({2, 3});
  StateDict state;
  state.insert("bool", count.remainder(2).to(torch::kBool));
  state.insert("uint8", count.to(torch::kByte));
  state.insert("int8", count.to(torch::kChar));
  state.insert("uint16", count.to(torch::kUInt16));
  state.insert("int16", count.to(torch::kShort));
  state.insert("uint32", count.to(torch::kUInt32));
  state.insert("int32", count.to(torch::kInt));
  state.insert("uint64", count.to(torch::kUInt64));
  state.insert("int64", count);
  state.insert("float8_e4m3fn", count.to(at::kFloat8_e4m3fn));
  state.insert("float8_e5m2", count.to(at::kFloat8_e5m2));
  state.insert("float16", count.to(torch::kHalf));
  state.insert("bfloat16", count.to(torch::kBFloat16));
  state.insert("float32", count.to(torch::kFloat));
  state.insert("float64", count.to(torch::kDouble));
  for (const auto& [name, part] :
       {std::pair("complex64", torch::kFloat),
        std::pair("complex128", torch::kDouble)}) {
    state.insert(name, torch::complex(count.to(part), -count.to(part)));
  }
  state.insert("scalar", torch::tensor(2.5f));
  state.insert("empty", torch::empty({0, 3}));
  state.insert("quote \" tab \t é 漢 😀", torch::tensor({int64_t{7}}));
  return state;
}

/// Views: shared memory and strides.
inline StateDict layout_state() {
  const torch::Tensor base = torch::arange(24.f).reshape({4, 6});
  StateDict state;
  state.insert("base", base);
  state.insert("same", base);
  state.insert("transposed", base.t());
  state.insert("part", base.slice(0, 1, 3).slice(1, 2, 5));
  state.insert("every_second", base.flatten().slice(0, 0, 24, 2));
  state.insert("expanded", base[0].slice(0, 0, 1).expand({5}));
  state.insert(
      "channels_last",
      torch::arange(24.f)
          .reshape({1, 2, 3, 4})
          .contiguous(at::MemoryFormat::ChannelsLast));
  return state;
}

/// Removes these names from `state`.
inline StateDict without(
    const StateDict& state,
    const std::vector<std::string>& names) {
  StateDict rest;
  for (const auto& item : state) {
    if (std::find(names.begin(), names.end(), item.key()) == names.end()) {
      rest.insert(item.key(), item.value());
    }
  }
  return rest;
}

/// Compares names in order, dtypes, shapes and every bit.
inline testing::AssertionResult same_state(
    const StateDict& actual,
    const StateDict& expected) {
  if (actual.keys() != expected.keys()) {
    return testing::AssertionFailure()
           << "names: " << testing::PrintToString(actual.keys());
  }
  const auto bytes = [](const torch::Tensor& tensor) {
    return tensor.contiguous().view(-1).view(torch::kByte);
  };
  for (const auto& item : expected) {
    const torch::Tensor& got = actual[item.key()];
    if (got.scalar_type() != item.value().scalar_type() ||
        got.sizes() != item.value().sizes() ||
        (got.numel() > 0 && !torch::equal(bytes(got), bytes(item.value())))) {
      return testing::AssertionFailure() << item.key() << " differs";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace tern::test
