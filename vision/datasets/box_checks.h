#pragma once

// Checks shared by all readers of annotations.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/bad_boxes.h"

namespace tern {

/// Maximum size of a file with the annotations of one image, or with a list of
/// names.
inline constexpr int64_t kMaxAnnotationBytes = int64_t{64} << 20;

/// Returns the fault of a box, such as "has no width"; empty if the box is
/// valid. A box may reach a pixel beyond the image, because annotation tools
/// round.
/// \param image  Size of the image; 0 x 0: unknown.
std::string box_fault(const Box& box, ImageSize image);

/// Returns true if all numbers of a box are finite, its width and height are
/// positive and its area is not negative. Does not check its position.
bool has_size(const Box& box);

/// Applies a policy to the bad boxes of a file or folder.
class BadBoxCounter {
 public:
  BadBoxCounter(std::string path, BadBoxes policy, const Sink& sink)
      : path_(std::move(path)), policy_(policy), sink_(sink) {}

  void count_box() { ++total_; }
  /// Records a bad box.
  /// \param where  Its file and line.
  /// \param what   The fault, without a period.
  /// \throws DataError if bad boxes are errors.
  void reject(const std::string& where, const std::string& what);
  /// Warns once if there were bad boxes.
  void finish() const;

 private:
  std::string path_;
  BadBoxes policy_;
  Sink sink_;
  std::string first_;
  int64_t bad_ = 0, total_ = 0;
};

/// The classes of a reader: the given classes, or if there are none, the
/// classes that it finds.
class BoxClasses {
 public:
  /// \param caller  For error messages, such as "read_voc".
  /// \throws c10::ValueError if a name is empty or duplicated.
  BoxClasses(std::vector<std::string> given, const char* caller);

  /// Returns false if classes were given and `name` is not one of them.
  /// \param where  File and line, for error messages.
  /// \throws DataError if `name` is empty or not UTF-8.
  bool knows(const std::string& name, const std::string& where);
  /// Returns the given classes in their order, or the classes found, sorted.
  std::vector<std::string> names() const;
  /// Returns the first few classes for an error message.
  std::string some() const;

 private:
  std::vector<std::string> given_;
  std::set<std::string, std::less<>> known_;
};

/// \throws DataError if `name` is empty, not UTF-8 or contains control
///         characters.
void check_class_name(const std::string& name, const std::string& where);

/// Returns the path of an image that is named in an annotation file.
/// \param check_files  Throws if the image does not exist.
/// \param where        The annotation that names the image, for error messages.
/// \throws DataError if the name is absolute or leads out of the folder, or if
///         the file is missing.
std::string annotated_image_path(
    const std::filesystem::path& folder,
    const std::string& name,
    bool check_files,
    const std::string& where);

}  // namespace tern
