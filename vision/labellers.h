#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/vision/image_item.h"

namespace tern {

/// Gives the labels of an item: one class or number, several of them, or the
/// path of its mask.
using Labeller = std::function<std::vector<std::string>(const ImageItem&)>;

/// The name of the folder that the image lies in.
Labeller label_from_folder();
/// What the first group of a regular expression (ECMAScript) finds in the path.
Labeller label_from_re(const std::string& pattern);
Labeller label_from_func(std::function<std::string(const ImageItem&)> label);
/// Cells of the item's row.
/// \param delimiter  Between several labels in a cell, such as " "; empty: one.
Labeller label_from_column(
    std::vector<std::string> columns,
    const std::string& delimiter = "");

}  // namespace tern
