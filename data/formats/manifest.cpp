#include "tern/data/formats/manifest.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"

namespace tern {

namespace {

constexpr std::string_view kMagic = "tern-checkpoint ";
constexpr int64_t kVersion = 1;
constexpr size_t kMaxBytes = 1 << 20;

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Takes the text before `end` off the front of `rest`.
std::optional<std::string_view> take(std::string_view& rest, char end) {
  const size_t at = rest.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view taken = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  return taken;
}

bool take_word(std::string_view& rest, std::string_view word) {
  if (!rest.starts_with(word)) return false;
  rest.remove_prefix(word.size());
  return true;
}

// Digits alone: no sign, no blank, no leading zero.
std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const bool is_plain = !text.empty() && text[0] >= '0' && text[0] <= '9' &&
                        (text.size() == 1 || text[0] != '0');
  if (error != std::errc() || at != end || !is_plain) return std::nullopt;
  return value;
}

bool is_run(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
         });
}

bool is_file_name(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && text.size() <= 255 &&
         std::none_of(text.begin(), text.end(), [](char c) {
           return c == '/' || c == '\0';
         });
}

bool parse_file(std::string_view line, Manifest& manifest) {
  const auto hash = take(line, ' ');
  const auto size = take(line, ' ');
  const auto bytes = size ? number(*size) : std::nullopt;
  if (!hash || !is_sha256(*hash) || !bytes || !is_file_name(line)) return false;
  const bool is_twice = std::any_of(
      manifest.files.begin(),
      manifest.files.end(),
      [&](const Manifest::File& file) { return file.name == line; });
  manifest.files.push_back({std::string(line), *bytes, std::string(*hash)});
  return !is_twice;
}

// Everything between the first line and the last.
bool parse_body(std::string_view body, Manifest& manifest) {
  if (!take_word(body, "run ")) return false;
  const auto run = take(body, '\n');
  if (!run || !is_run(*run) || !take_word(body, "step ")) return false;
  const auto step_text = take(body, '\n');
  const auto step = step_text ? number(*step_text) : std::nullopt;
  if (!step) return false;
  manifest.run = *run;
  manifest.step = *step;
  while (!body.empty()) {
    if (!take_word(body, "file ")) return false;
    const auto line = take(body, '\n');
    if (!line || !parse_file(*line, manifest)) return false;
  }
  return true;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  std::string text(kMagic);
  text += std::to_string(kVersion) + "\nrun " + manifest.run + "\nstep " +
          std::to_string(manifest.step) + "\n";
  for (const Manifest::File& file : manifest.files) {
    text += "file " + file.sha256 + " " + std::to_string(file.size) + " " +
            file.name + "\n";
  }
  return text + "end " + sha256(as_bytes(text)) + "\n";
}

Manifest parse_manifest(
    std::span<const uint8_t> bytes,
    const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& reason) -> DataError {
    return DataError(path.string(), reason);
  };
  std::string_view text(
      reinterpret_cast<const char*>(bytes.data()),
      bytes.size());
  const std::string_view whole = text;
  if (text.size() > kMaxBytes || !take_word(text, kMagic)) {
    throw refuse("this is no checkpoint's manifest");
  }
  const auto version_text = take(text, '\n');
  const auto version = version_text ? number(*version_text) : std::nullopt;
  if (!version) throw refuse("the manifest is cut off or damaged");
  if (*version != kVersion) {
    throw refuse(
        "the checkpoint has format " + std::to_string(*version) +
        ", this program reads format " + std::to_string(kVersion) +
        "; use the version of Tern that wrote it");
  }
  constexpr std::string_view kEnd = "end ";
  constexpr size_t kEndLine = kEnd.size() + 64 + 1;
  const size_t body = whole.size() - text.size();
  if (whole.size() < body + kEndLine || whole.back() != '\n' ||
      !whole.substr(whole.size() - kEndLine).starts_with(kEnd)) {
    throw refuse("the manifest is cut off");
  }
  const std::string_view guarded = whole.substr(0, whole.size() - kEndLine);
  const std::string_view hash = whole.substr(guarded.size() + kEnd.size(), 64);
  if (sha256(as_bytes(guarded)) != hash) {
    throw refuse("the manifest is damaged: its checksum does not fit");
  }
  Manifest manifest;
  if (!parse_body(guarded.substr(body), manifest)) {
    throw refuse("the manifest's lines are not those of a checkpoint");
  }
  return manifest;
}

}  // namespace tern
