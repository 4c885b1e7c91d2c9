#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace tern {

/// SHA-256 sums by file name; 64 lower-case digits each.
using Sha256Sums = std::map<std::string, std::string>;

/// Names that a list may contain: files in its own folder, or any paths.
enum class SumNames { files, paths };

/// Returns the lines that `sha256sum -c` reads:
/// "<SHA-256>  train-000000.tar". Escapes backslashes and line breaks as
/// sha256sum does.
std::string to_text(const Sha256Sums& sums);

/// \param path  For error messages.
/// \throws DataError naming a line that is not a sum and a name, or whose name
///         is invalid or duplicated. A list of paths must end with a line
///         break, which shows that it is complete.
Sha256Sums parse_sha256sums(
    std::span<const uint8_t> bytes,
    const std::string& path,
    SumNames names = SumNames::files);

/// \throws as `parse_sha256sums`; IoError.
Sha256Sums read_sha256sums(
    const std::filesystem::path& path,
    SumNames names = SumNames::files);

}  // namespace tern
