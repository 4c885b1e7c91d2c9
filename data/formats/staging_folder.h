#pragma once

#include <filesystem>

namespace tern {

/// A new folder beside `target` that becomes `target` in one step once it is
/// complete, and is removed when it never gets that far. A reader therefore
/// sees a whole folder or none. It does not wait for the disk, which takes
/// minutes on a busy one: after a power cut, files may be missing or short.
///
///   StagingFolder staging(cache / "digits");
///   write_file(staging.path() / "labels.csv", text);
///   staging.publish();
class StagingFolder {
 public:
  /// Creates the folder, and the parents of `target`. \throws IoError.
  explicit StagingFolder(std::filesystem::path target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Renames the folder to `target`.
  /// \return false if `target` exists by now with something in it: another
  ///         process was first, and its folder stays.
  bool publish();
  /// The same, with a folder inside `path()` in its place.
  bool publish(const std::filesystem::path& content);

  /// Removes what killed processes left beside `target`. Only while no other
  /// process can be filling a folder for the same target.
  static void remove_leftovers(const std::filesystem::path& target);

 private:
  std::filesystem::path target_, path_;
};

}  // namespace tern
