#pragma once

#include <filesystem>
#include <string>

namespace tern {

/// What the names begin with that stand beside `target` while it is made.
std::string temp_prefix(const std::filesystem::path& target);

/// A random path beside `target` for something that will be renamed to it.
std::filesystem::path temp_name_beside(const std::filesystem::path& target);

}  // namespace tern
