#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// The position within a text that is placed at (x, y).
enum class Anchor { start, middle, end };

/// A line of text in an SVG.
struct SvgText {
  std::string text;
  double x = 0, y = 0;
  double size = 13;  // font size, in the SVG's units
  Anchor anchor = Anchor::start;
  bool upwards = false;  // rotated by 90 degrees, from bottom to top
};

/// Returns the text as an SVG element, or "" if it is empty.
/// \param color  In SVG's notation.
std::string svg_text(const SvgText& text, std::string_view color);

/// Returns an SVG document of these elements, in a sans-serif font.
/// \param label  Text for screen readers.
std::string svg_document(
    double width,
    double height,
    std::string_view label,
    bool is_on_white,
    std::string_view elements);

/// Estimates the width of UTF-8 text in a wide sans-serif font, in the unit of
/// `size`. Because this is an estimate, the layout of plots does not depend on
/// the machine's fonts.
double text_width(std::string_view text, double size);

/// Breaks text into lines of at most `width`: after a space, hyphen, slash,
/// comma or underscore if possible, otherwise between any two characters.
/// \param max_lines  >= 1. If the text needs more lines, the last line contains
///                   all of the rest, with "…" in place of its middle.
/// \return           At least one line.
std::vector<std::string>
wrap_text(std::string_view text, double width, double size, size_t max_lines);

/// Renders an SVG document with the fonts of the machine.
/// \return [height, width, 3] bytes, RGB.
/// \throws c10::NotImplementedError in a build without TERN_ARCHIVES.
std::vector<uint8_t>
render_svg(const std::string& svg, int64_t width, int64_t height);

}  // namespace tern
