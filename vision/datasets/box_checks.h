#pragma once

// What the readers of annotations have in common.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/bad_boxes.h"

namespace tern {

/// Limit on a file of the annotations of one image, or a list of names.
inline constexpr int64_t kMaxAnnotationBytes = int64_t{64} << 20;

/// Returns what is wrong with a box, such as "has no width"; empty if nothing
/// is. One that reaches a pixel beyond the image, by rounding, is accepted.
/// \param image  0 x 0 if it is not known.
std::string box_fault(const Box& box, ImageSize image);

/// Returns whether a box is finite, has a width, a height and no negative area,
/// wherever it is.
bool has_size(const Box& box);

/// Applies a policy to the bad boxes of a file or folder.
class BadBoxCounter {
 public:
  BadBoxCounter(std::string path, BadBoxes policy, const Sink& sink)
      : path_(std::move(path)), policy_(policy), sink_(sink) {}

  void count_box() { ++total_; }
  /// Records a bad box.
  /// \param where  Its file and line.
  /// \param what   The fault, without a full stop.
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

/// The classes of a reader: those given to it, or those that it finds.
class BoxClasses {
 public:
  /// \param caller  For error messages, such as "read_voc".
  /// \throws c10::ValueError if one of them is empty or duplicated.
  BoxClasses(std::vector<std::string> given, const char* caller);

  /// Returns false if the class is not among those given.
  /// \param where  File and line, for error messages.
  /// \throws DataError if it is no class name: empty or not UTF-8.
  bool knows(const std::string& name, const std::string& where);
  /// Returns those given, in their order, or those found, sorted.
  std::vector<std::string> names() const;
  /// Returns the first few of them for an error message.
  std::string some() const;

 private:
  std::vector<std::string> given_;
  std::set<std::string, std::less<>> known_;
};

/// \throws DataError if a name of a class is empty, not UTF-8 or has control
///         characters.
void check_class_name(const std::string& name, const std::string& where);

/// Returns the path of an image that a file of annotations names.
/// \param where        Who names it, for error messages.
/// \param check_files  Whether it must exist.
/// \throws DataError if the name is absolute or leads out of the folder, or the
///         file is missing.
std::string annotated_image_path(
    const std::filesystem::path& folder,
    const std::string& name,
    bool check_files,
    const std::string& where);

}  // namespace tern
