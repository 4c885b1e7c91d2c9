#include "tern/learner/export/onnx/check_graph.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern::onnx {

namespace {

using Forward = std::function<Tensors(const Tensors&)>;

// Numbers that differ from the expected numbers.
struct Difference {
  int64_t count = 0;
  // The largest difference, relative to the largest number of the output.
  double distance = 0;
};

Difference difference(
    const torch::Tensor& expected,
    const torch::Tensor& actual,
    double tolerance) {
  if (expected.numel() == 0) return {};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const torch::Tensor own = expected.to(torch::kDouble),
                      other = actual.to(torch::kDouble);
  const torch::Tensor is_same = (own == other) | (own.isnan() & other.isnan());
  torch::Tensor distance = torch::where(is_same, 0, (own - other).abs())
                               .nan_to_num(kInfinity, kInfinity, kInfinity);
  if (expected.is_floating_point()) {
    // A norm may turn rounding errors into numbers near 0.
    const double largest = own.nan_to_num(0, 0, 0).abs().max().item<double>();
    distance /= std::max(largest, 0.3);
  }
  const int64_t count = (distance > tolerance).sum().item<int64_t>();
  return {count, distance.max().item<double>()};
}

// Returns how many numbers of each of the model's own outputs change when
// rounding changes its inputs, because the model rounds or compares numbers
// close to a limit. Empty if a second call with the same inputs gives different
// outputs.
std::vector<int64_t> changes_by_rounding(
    const Forward& forward,
    const Tensors& inputs,
    const Tensors& expected,
    double tolerance) {
  std::vector<int64_t> counts(expected.size(), 0);
  for (int i = 0; i < 4; ++i) {
    Tensors moved;
    for (const torch::Tensor& x : inputs) {
      const bool is_moved = i > 0 && x.is_floating_point();
      moved.push_back(is_moved ? x * (1 + 1e-6 * torch::randn_like(x)) : x);
    }
    const Tensors outputs = forward(moved);
    if (outputs.size() != expected.size()) return counts;
    for (size_t k = 0; k < expected.size(); ++k) {
      if (outputs[k].sizes() != expected[k].sizes()) return counts;
      const int64_t count =
          difference(expected[k], outputs[k], tolerance).count;
      if (i == 0 && count > 0) return counts;
      counts[k] = std::max(counts[k], count);
    }
  }
  return counts;
}

constexpr const char* kCure =
    "A forward that is random, counts its calls, or branches on values or "
    "sizes cannot be exported: remove such code; if it branches on sizes, give "
    "a larger example or export with .dynamic_batch and .dynamic_size = false. "
    "If none of this applies, this is a bug in Tern: please report it.";

void compare(
    const std::vector<std::string>& names,
    const Tensors& expected,
    const Tensors& actual,
    const Tensors& inputs,
    const Forward& forward,
    double tolerance) {
  TERN_CHECK_VALUE(
      expected.size() == names.size(),
      "[export_onnx] the model returns {} outputs for inputs of {}; expected "
      "{}, as in its trace. {}",
      expected.size(),
      shapes_of(inputs),
      names.size(),
      kCure);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string text = shapes_of({actual[i]}),
                      wanted = shapes_of({expected[i]});
    TERN_CHECK_VALUE(
        text == wanted,
        "[export_onnx] the output \"{}\" of the file would be {} for inputs of "
        "{}; expected {}, which the model returns. {}",
        names[i],
        text,
        shapes_of(inputs),
        wanted,
        kCure);
    const torch::Tensor own = expected[i].cpu();
    const Difference found = difference(own, actual[i], tolerance);
    if (found.count <= own.numel() / 10'000) continue;
    const int64_t by_rounding =
        changes_by_rounding(forward, inputs, expected, tolerance)[i];
    TERN_CHECK_VALUE(
        found.count <= 4 * by_rounding,
        "[export_onnx] {} of {} numbers of the output \"{}\" of the file would "
        "be off by up to {:.2g} of the largest one for inputs of {}; expected "
        "at most {:.2g}. {}",
        found.count,
        own.numel(),
        names[i],
        found.distance,
        shapes_of(inputs),
        tolerance,
        kCure);
  }
}

Tensors computed(
    const OnnxGraph& graph,
    const Tensors& inputs,
    const std::string& text) {
  try {
    return graph.compute(inputs);
  } catch (const c10::ValueError& error) {
    C10_THROW_ERROR(
        ValueError,
        fmt::format(
            "[export_onnx] the file could not be computed for inputs of {}: "
            "{}. Expected a graph that ONNX can compute. Give a larger example "
            "or export with .dynamic_batch and .dynamic_size = false; if they "
            "are false already, this is a bug in Tern: please report it.",
            text,
            message_of(error)));
  }
}

}  // namespace

void check_graph(
    const OnnxGraph& graph,
    const std::vector<std::string>& output_names,
    const std::vector<Tensors>& samples,
    const Forward& forward,
    double tolerance,
    const Forward& rest) {
  bool is_checked = false;
  for (const Tensors& inputs : samples) {
    const bool is_last = &inputs == &samples.back();
    if (is_last && is_checked) return;
    const std::string text = shapes_of(inputs);
    Tensors expected;
    try {
      expected = forward(inputs);
    } catch (const std::exception& error) {
      // The model rejects inputs of this size, so the file may too.
      TERN_CHECK_VALUE(
          !is_last,
          "[export_onnx] the model could be traced, but then failed for inputs "
          "of {}: {}. Expected every call to behave the same.",
          text,
          reason_of(error));
      continue;
    }
    const Tensors actual = computed(graph, inputs, text);
    const auto end = [&](const auto& all) {
      return all.begin() + (rest ? std::ssize(expected) : std::ssize(all));
    };
    compare(
        {output_names.begin(), end(output_names)},
        expected,
        actual,
        inputs,
        forward,
        tolerance);
    is_checked = true;
    if (!rest) continue;
    Tensors wanted = rest({actual.begin(), end(actual)});
    compare(
        {end(output_names), output_names.end()},
        wanted,
        {end(actual), actual.end()},
        inputs,
        [&](const Tensors&) { return wanted; },
        tolerance);
  }
}

}  // namespace tern::onnx
