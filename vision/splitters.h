#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/vision/image_item.h"

namespace tern {

/// Says for each item where it belongs; `train` or `valid`.
using Splitter = std::function<std::vector<Split>(const ImageItems&)>;

/// Draws `valid_pct` of the items to check with, the same for the same seed.
Splitter split_at_random(double valid_pct = 0.2, uint64_t seed = 42);
/// By the folder in the path: the last of the two names in it decides.
Splitter split_by_folder(
    const std::string& train = "train",
    const std::string& valid = "valid");
/// To check with those whose file name, or end of the path, is in the list.
Splitter split_by_list(std::vector<std::string> valid);
/// To check with those for which `is_valid` holds.
Splitter split_by_func(std::function<bool(const ImageItem&)> is_valid);
/// To check with those with 1, true, valid or validation in a column; for
/// 0, false, train or nothing the item is to learn from.
Splitter split_by_column(const std::string& column);

}  // namespace tern
