#include "tern/data/formats/annotations/coco.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/json.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

using Json = nlohmann::json;

constexpr int kMaxLevels = 64;
// Doubles represent every integer up to this one.
constexpr double kMaxWhole = 9007199254740992.0;

/// A field of an image, a category or an annotation.
enum class Field {
  other,
  id,
  file_name,
  width,
  height,
  name,
  image_id,
  category_id,
  bbox,
  area,
  iscrowd,
};

struct KnownField {
  std::string_view name;
  Field field;
  bool is_required;
};

constexpr std::array kImageFields = {
    KnownField{"id", Field::id, true},
    KnownField{"file_name", Field::file_name, true},
    KnownField{"width", Field::width, false},
    KnownField{"height", Field::height, false},
};
constexpr std::array kCategoryFields = {
    KnownField{"id", Field::id, true},
    KnownField{"name", Field::name, true},
};
constexpr std::array kAnnotationFields = {
    KnownField{"id", Field::id, true},
    KnownField{"image_id", Field::image_id, true},
    KnownField{"category_id", Field::category_id, true},
    KnownField{"bbox", Field::bbox, true},
    KnownField{"area", Field::area, false},
    KnownField{"iscrowd", Field::iscrowd, false},
};

/// One of the three arrays of the file.
struct Section {
  std::string_view name;
  std::span<const KnownField> fields;
};

constexpr std::array kSections = {
    Section{"images", kImageFields},
    Section{"categories", kCategoryFields},
    Section{"annotations", kAnnotationFields},
};
constexpr size_t kImages = 0, kCategories = 1, kAnnotations = 2, kNone = 3;

/// Handles nlohmann-json's events, so that no tree of the file is built. The
/// file is an object (level 1) with arrays (level 2) of objects (level 3), one
/// field of which is an array (level 4).
class CocoReader final : public nlohmann::json_sax<Json> {
 public:
  CocoReader(std::string_view text, const std::string& path)
      : text_(text), path_(path) {}

  CocoFile take() {
    for (size_t i = 0; i < kSections.size(); ++i) {
      if (!is_seen_[i]) {
        throw DataError(
            path_,
            "has no key '" + std::string(kSections[i].name) +
                "'; expected a COCO instances file with the keys 'images', "
                "'annotations' and 'categories'.");
      }
    }
    return std::move(file_);
  }

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override {
    if (field_ == Field::iscrowd && levels_ == 3) {
      return set_crowd(value ? 1 : 0);
    }
    return scalar(value ? "true" : "false");
  }
  bool number_integer(number_integer_t value) override { return whole(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      return number(static_cast<double>(value));
    }
    return whole(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    if (value == std::trunc(value) && std::abs(value) <= kMaxWhole) {
      return whole(static_cast<int64_t>(value));
    }
    return number(value);
  }
  bool string(string_t& value) override {
    if (levels_ == 3 && field_ == Field::file_name) {
      file_.images.back().file_name = std::move(value);
      return true;
    }
    if (levels_ == 3 && field_ == Field::name) {
      file_.categories.back().name = std::move(value);
      return true;
    }
    return is_skipped() || scalar("the text " + printable(value));
  }
  bool binary(binary_t&) override { return true; }  // JSON has no binary values

  bool start_object(size_t) override {
    open();
    if (levels_ == 1) return true;
    if (levels_ == 3 && section_ != kNone) return begin_item();
    return is_skipped_at(levels_ - 1) || unexpected("an object", levels_ - 1);
  }
  bool end_object() override {
    if (levels_ == 3 && section_ != kNone) end_item();
    --levels_;
    return true;
  }
  bool start_array(size_t) override {
    open();
    if (levels_ == 2) return true;
    if (levels_ == 4 && section_ != kNone && field_ == Field::bbox) {
      bbox_size_ = 0;
      return true;
    }
    return is_skipped_at(levels_ - 1) || unexpected("an array", levels_ - 1);
  }
  bool end_array() override {
    if (levels_ == 4 && section_ != kNone && field_ == Field::bbox &&
        bbox_size_ != 4) {
      fail(
          "has " + std::to_string(bbox_size_) +
          " numbers in 'bbox'; expected four: left edge, top edge, width and "
          "height");
    }
    if (levels_ == 2) section_ = kNone;
    --levels_;
    return true;
  }
  bool key(string_t& name) override {
    if (levels_ == 1) {
      section_ = kNone;
      for (size_t i = 0; i < kSections.size(); ++i) {
        if (kSections[i].name != name) continue;
        if (is_seen_[i]) fail("has the key '" + name + "' twice");
        section_ = i;
        next_item_ = 0;
        is_seen_[i] = true;
      }
    } else if (levels_ == 3 && section_ != kNone) {
      set_field(name);
    }
    return true;
  }

  bool parse_error(
      size_t position,
      const std::string&,
      const nlohmann::detail::exception& error) override {
    const size_t at = std::min(position == 0 ? 0 : position - 1, text_.size());
    const auto line = 1 + std::count(text_.begin(), text_.begin() + at, '\n');
    std::string where = "is damaged at byte " + std::to_string(at) + " (line " +
                        std::to_string(line) + place() + "): ";
    if (at == text_.size()) {
      where += "the JSON ends too early. Is the file truncated?";
    } else if (error.id == 406) {
      where += "the number is larger than a double can hold.";
    } else if (static_cast<unsigned char>(text_[at]) >= 0x80) {
      where += "the text is not UTF-8.";
    } else {
      const char byte = text_[at];
      where +=
          "expected other JSON than " + printable(std::string_view(&byte, 1)) +
          (byte == 'N' || byte == 'I'
               ? "; NaN and Infinity, which Python writes, are not valid JSON."
               : ".");
    }
    throw DataError(path_, where + " Correct the file, or download it again.");
  }

 private:
  /// Returns the position of the reader: " of annotations[12]".
  std::string place() const {
    if (section_ == kNone) return "";
    std::string text = ", in " + std::string(kSections[section_].name);
    if (levels_ >= 3) text += "[" + std::to_string(item_) + "]";
    return text;
  }

  [[noreturn]] void fail(const std::string& what) const {
    std::string item;
    if (section_ != kNone && levels_ >= 3) {
      item = std::string(kSections[section_].name) + "[" +
             std::to_string(item_) + "]";
      if (has_id_) item += " (id " + std::to_string(id_) + ")";
      item += " ";
    }
    throw DataError(path_, item + what + ". Correct the file.");
  }

  void open() {
    if (++levels_ > kMaxLevels) {
      throw DataError(
          path_,
          "has more than 64 levels of objects and arrays; expected a COCO "
          "instances file.");
    }
  }

  bool has(Field field) const {
    return (fields_ & 1u << static_cast<int>(field)) != 0;
  }

  bool begin_item() {
    item_ = next_item_++;
    fields_ = 0;
    has_id_ = false;
    field_ = Field::other;
    if (section_ == kImages) file_.images.emplace_back();
    if (section_ == kCategories) file_.categories.emplace_back();
    if (section_ == kAnnotations) file_.annotations.emplace_back();
    return true;
  }

  void end_item() {
    for (const KnownField& known : kSections[section_].fields) {
      if (known.is_required && !has(known.field)) {
        fail(
            "has no '" + std::string(known.name) +
            "'; expected this key, as in a COCO instances file");
      }
    }
    field_ = Field::other;
  }

  void set_field(const std::string& name) {
    field_ = Field::other;
    for (const KnownField& known : kSections[section_].fields) {
      if (known.name != name) continue;
      if (has(known.field)) fail("has '" + name + "' twice");
      field_ = known.field;
      fields_ |= 1u << static_cast<int>(field_);
    }
  }

  /// True if nothing at this level is needed.
  bool is_skipped_at(int levels) const {
    if (levels == 0) return false;
    if (section_ == kNone) return true;
    if (levels <= 2) return false;
    return levels == 3 ? field_ == Field::other : field_ != Field::bbox;
  }
  bool is_skipped() const { return is_skipped_at(levels_); }

  /// Handles a value that is neither a number nor an expected string.
  bool scalar(const std::string& shown) {
    return is_skipped() || unexpected(shown, levels_);
  }

  bool unexpected(const std::string& shown, int levels) {
    if (levels == 0) {
      throw DataError(
          path_,
          "is JSON of " + shown +
              "; expected an object with the keys 'images', 'annotations' and "
              "'categories', as in a COCO instances file.");
    }
    if (levels <= 2) {
      throw DataError(
          path_,
          "has " + shown + " in '" + std::string(kSections[section_].name) +
              "'; expected an array of objects. Correct the file.");
    }
    std::string_view name = "bbox";
    for (const KnownField& known : kSections[section_].fields) {
      if (known.field == field_) name = known.name;
    }
    const bool is_text = field_ == Field::file_name || field_ == Field::name;
    const bool is_real = field_ == Field::bbox || field_ == Field::area;
    fail(
        "has " + shown + " in '" + std::string(name) + "'; expected " +
        (is_text                         ? "a string"
         : levels == 3 && name == "bbox" ? "an array of four numbers"
         : is_real                       ? "a number"
                                         : "a whole number"));
  }

  bool whole(int64_t value) {
    if (is_skipped()) return true;
    if (levels_ != 3) return number(static_cast<double>(value));
    switch (field_) {
      case Field::id:
        id_ = value;
        has_id_ = true;
        if (section_ == kImages) file_.images.back().id = value;
        if (section_ == kCategories) file_.categories.back().id = value;
        if (section_ == kAnnotations) file_.annotations.back().id = value;
        return true;
      case Field::width:
        file_.images.back().width = value;
        return true;
      case Field::height:
        file_.images.back().height = value;
        return true;
      case Field::image_id:
        file_.annotations.back().image_id = value;
        return true;
      case Field::category_id:
        file_.annotations.back().category_id = value;
        return true;
      case Field::iscrowd:
        return set_crowd(value);
      default:
        return number(static_cast<double>(value));
    }
  }

  bool set_crowd(int64_t value) {
    if (value != 0 && value != 1) {
      fail("has " + std::to_string(value) + " in 'iscrowd'; expected 0 or 1");
    }
    file_.annotations.back().crowd = value == 1;
    return true;
  }

  bool number(double value) {
    if (is_skipped()) return true;
    if (levels_ == 3 && field_ == Field::area) {
      file_.annotations.back().area = value;
      return true;
    }
    if (levels_ == 4 && field_ == Field::bbox) {
      if (bbox_size_ < 4) file_.annotations.back().bbox[bbox_size_] = value;
      ++bbox_size_;
      return true;
    }
    return unexpected(json_number(value), levels_);
  }

  std::string_view text_;
  const std::string& path_;
  CocoFile file_;
  std::array<bool, 3> is_seen_ = {};
  int levels_ = 0;          // open objects and arrays
  size_t section_ = kNone;  // of the current array
  size_t item_ = 0, next_item_ = 0;
  Field field_ = Field::other;
  unsigned fields_ = 0;  // fields of the item found so far
  bool has_id_ = false;
  int64_t id_ = 0;
  size_t bbox_size_ = 0;
};

}  // namespace

CocoFile parse_coco(std::span<const uint8_t> bytes, const std::string& path) {
  std::string_view text = as_text(bytes);
  // nlohmann-json would treat a zero byte as the end of the text.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    throw DataError(
        path,
        "has a zero byte at byte " + std::to_string(zero) +
            "; expected JSON. Download the file again.");
  }
  if (text.find_first_not_of(" \t\r\n") == text.npos) {
    throw DataError(path, "is empty; expected a COCO instances file.");
  }
  CocoReader reader(text, path);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace tern
