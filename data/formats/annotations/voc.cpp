#include "tern/data/formats/annotations/voc.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <pugixml.hpp>
#include <string_view>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

// Maximum side of an image; VOC's have about 500 pixels.
constexpr double kMaxSide = 1e9;

/// Reads the elements of a parsed file.
class VocReader {
 public:
  VocReader(std::string_view text, const std::string& path)
      : text_(text), path_(path) {}

  VocFile read(const pugi::xml_node& root) {
    if (std::string_view(root.name()) != "annotation") {
      fail(
          root,
          "the document is a " + printable(root.name()) +
              "; expected an 'annotation', as in Pascal VOC");
    }
    VocFile file;
    file.file_name = trimmed(root.child("filename").child_value());
    if (const pugi::xml_node size = root.child("size")) {
      file.width = side(size, "width");
      file.height = side(size, "height");
    }
    for (const pugi::xml_node object : root.children("object")) {
      file.objects.push_back(read_object(object));
    }
    return file;
  }

  [[noreturn]] void fail_at(size_t offset, const std::string& what) {
    throw DataError(
        path_ + ":" + std::to_string(line_at(offset)),
        what + ". Correct this line of the file.");
  }

 private:
  /// Offsets mostly increase from call to call, so most lines are counted only
  /// once.
  size_t line_at(size_t offset) {
    offset = std::min(offset, text_.size());
    if (offset < counted_) counted_ = 0, line_ = 1;
    line_ += static_cast<size_t>(std::count(
        text_.begin() + static_cast<std::ptrdiff_t>(counted_),
        text_.begin() + static_cast<std::ptrdiff_t>(offset),
        '\n'));
    counted_ = offset;
    return line_;
  }

  static size_t offset_of(const pugi::xml_node& node) {
    return static_cast<size_t>(
        std::max<std::ptrdiff_t>(node.offset_debug(), 0));
  }

  [[noreturn]] void fail(const pugi::xml_node& node, const std::string& what) {
    fail_at(offset_of(node), what);
  }

  VocFile::Object read_object(const pugi::xml_node& node) {
    VocFile::Object object;
    object.line = line_at(offset_of(node));
    object.name = trimmed(node.child("name").child_value());
    if (object.name.empty()) {
      fail(node, "the object has no name; expected the name of its class");
    }
    const pugi::xml_node box = node.child("bndbox");
    if (!box) {
      fail(
          node,
          "the object " + printable(object.name) +
              " has no 'bndbox'; expected one with xmin, ymin, xmax and ymax");
    }
    object.xmin = number(box, "xmin");
    object.ymin = number(box, "ymin");
    object.xmax = number(box, "xmax");
    object.ymax = number(box, "ymax");
    if (const pugi::xml_node difficult = node.child("difficult")) {
      const std::string_view text = trimmed(difficult.child_value());
      if (!text.empty() && text != "0" && text != "1") {
        fail(
            difficult,
            "'difficult' is " + printable(text) + "; expected 0 or 1");
      }
      object.difficult = text == "1";
    }
    return object;
  }

  double number(const pugi::xml_node& parent, const char* name) {
    const pugi::xml_node node = parent.child(name);
    if (!node) {
      fail(
          parent,
          "the element '" + std::string(name) + "' is missing in '" +
              parent.name() + "'; expected a number");
    }
    const std::optional<double> value = parse_number(node.child_value());
    if (!value) {
      fail(
          node,
          "'" + std::string(name) + "' is " +
              printable(trimmed(node.child_value())) + "; expected a number");
    }
    return *value;
  }

  int64_t side(const pugi::xml_node& size, const char* name) {
    const double value = number(size, name);
    if (value != std::trunc(value) || !(value >= 0 && value <= kMaxSide)) {
      fail(
          size.child(name),
          "the " + std::string(name) + " is " +
              printable(trimmed(size.child(name).child_value())) +
              "; expected a number of pixels, or 0 if it is unknown");
    }
    return static_cast<int64_t>(value);
  }

  std::string_view text_;
  const std::string& path_;
  size_t counted_ = 0, line_ = 1;
};

}  // namespace

VocFile parse_voc(std::span<const uint8_t> bytes, const std::string& path) {
  const std::string_view text = as_text(bytes);
  VocReader reader(text, path);
  if (text.find('\0') != text.npos || !is_utf8(text)) {
    throw DataError(path, "is not UTF-8 text. Convert the file to UTF-8.");
  }
  // Builds and frees its tree without recursion.
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(
      bytes.data(),
      bytes.size(),
      pugi::parse_default,
      pugi::encoding_utf8);
  if (!result) {
    reader.fail_at(
        static_cast<size_t>(std::max<std::ptrdiff_t>(result.offset, 0)),
        std::string("the XML is damaged: ") + result.description());
  }
  return reader.read(document.document_element());
}

}  // namespace tern
