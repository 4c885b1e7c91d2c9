#include "tern/learner/plots/svg.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tern/data/formats/text.h"
#include "tern/data/support/html_text.h"

namespace tern {

namespace {

// Indexed by Anchor.
constexpr std::array kAnchors = {"start", "middle", "end"};

bool is_one_of(char c, std::string_view set) {
  return set.find(c) != set.npos;
}

// Approximate width of a UTF-8 character in ems. The values follow DejaVu Sans,
// which is wider than most fonts.
double advance(std::string_view character) {
  const char c = character[0];
  const auto first = static_cast<unsigned char>(c);
  if (first >= 0xe3) return 1;     // East Asian scripts and emoji
  if (first == 0xe2) return 0.85;  // punctuation and symbols
  if (first >= 0x80) return 0.68;  // other alphabets
  if (is_one_of(c, " !'(),-./:;I[\\]fijlrt|")) return 0.39;
  if (is_one_of(c, "%&+<=>@MWmw~#")) return 0.9;
  return c >= 'A' && c <= 'Z' ? 0.72 : 0.63;
}

// Returns the first character. A byte that is not UTF-8 counts as one
// character.
std::string_view first_character(std::string_view text) {
  return text.substr(0, std::max<size_t>(1, utf8_length(text)));
}

// Replaces the middle of a text that is longer than `ems`.
std::string shortened(std::string_view text, double ems) {
  if (text_width(text, 1) <= ems) return std::string(text);
  std::string_view rest = text;
  size_t head = 0, tail = 0;
  double used = advance("…");
  for (bool is_head = true; !rest.empty(); is_head = !is_head) {
    std::string_view next = first_character(rest);
    if (!is_head) {
      size_t begin = rest.size() - 1;
      while (begin > 0 && (rest[begin] & 0xC0) == 0x80) --begin;
      next = rest.substr(begin);
    }
    used += advance(next);
    if (used > ems) break;
    (is_head ? head : tail) += next.size();
    if (is_head) {
      rest.remove_prefix(next.size());
    } else {
      rest.remove_suffix(next.size());
    }
  }
  return fmt::format(
      "{}…{}",
      text.substr(0, head),
      text.substr(text.size() - tail));
}

}  // namespace

std::string svg_text(const SvgText& text, std::string_view color) {
  if (text.text.empty()) return "";
  const std::string place =
      text.upwards ? fmt::format(
                         "transform=\"translate({:.1f} {:.1f}) rotate(-90)\"",
                         text.x,
                         text.y)
                   : fmt::format("x=\"{:.1f}\" y=\"{:.1f}\"", text.x, text.y);
  return fmt::format(
      "<text {} text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n",
      place,
      kAnchors[static_cast<size_t>(text.anchor)],
      text.size,
      color,
      html_escape(text.text));
}

std::string svg_document(
    double width,
    double height,
    std::string_view label,
    bool is_on_white,
    std::string_view elements) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\" "
      "font-family=\"sans-serif\" fill=\"none\" stroke-linejoin=\"round\" "
      "stroke-linecap=\"round\">\n{3}{4}</svg>\n",
      width,
      height,
      html_escape(label),
      is_on_white ? "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
                  : "",
      elements);
}

double text_width(std::string_view text, double size) {
  double width = 0;
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    width += advance(character);
    text.remove_prefix(character.size());
  }
  return width * size;
}

std::vector<std::string>
wrap_text(std::string_view text, double width, double size, size_t max_lines) {
  std::vector<std::string> lines;
  while (text_width(text, size) > width && lines.size() + 1 < max_lines) {
    size_t end = 0, good = 0;
    double used = 0;
    while (end < text.size()) {
      const std::string_view next = first_character(text.substr(end));
      used += advance(next) * size;
      if (used > width && end > 0) break;
      end += next.size();
      if (is_one_of(next[0], " -/,_")) good = end;
    }
    if (end == text.size()) break;  // one character that is wider than a line
    if (good > 0) end = good;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  lines.push_back(shortened(text, width / size));
  return lines;
}

}  // namespace tern
