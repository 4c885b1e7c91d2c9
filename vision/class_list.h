#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tern {

/// Where shards of images keep the names of their classes, beside them.
inline constexpr const char* kClassListName = "classes.txt";

/// The lines of a file, each the name of a class by its number; empty if there
/// is no such file.
/// \throws DataError for an empty or repeated name; IoError.
std::vector<std::string> read_class_list(const std::filesystem::path& file);

}  // namespace tern
