#pragma once

#include <torch/types.h>

namespace tern::reference {

/// `tern::normalize_images` in operations of ATen: its definition, for tests.
torch::Tensor normalize_images(
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype = torch::kFloat);

}  // namespace tern::reference
