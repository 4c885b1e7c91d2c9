#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tern {

/// Photographs of things with their alphas, and what they can stand before.
struct MattingFiles {
  /// pha[i] and fgr[i] belong together: a grey picture of alpha and the colours
  /// of what is in front.
  std::vector<std::string> pha, fgr;
  /// Any photographs.
  std::vector<std::string> bgr;
};

/// The pictures in `pairs/pha` and `pairs/fgr`, at any depth, which go together
/// by their names without suffix, and those in `backgrounds`.
///
///   MattingFiles files = find_matting_files("alphamatting27", "streets");
///
/// \throws DataError if a folder is missing or has no picture, or if a picture
///         of one of pha and fgr has no partner in the other; IoError.
MattingFiles find_matting_files(
    const std::filesystem::path& pairs,
    const std::filesystem::path& backgrounds);

/// Looks at the header of every picture of a pair, and into alphas that are
/// stored in colour.
/// \throws DataError naming the file if alpha and foreground differ in size or
///         alpha is not grey; as `find_matting_files` for their numbers.
void check_matting_files(const MattingFiles& files);

/// Draws the share `valid_pct` of the pairs and of the backgrounds to check
/// with; the first are those to learn from.
/// \throws c10::ValueError if that leaves none on a side.
std::pair<MattingFiles, MattingFiles>
split_matting_files(const MattingFiles& files, double valid_pct, uint64_t seed);

}  // namespace tern
