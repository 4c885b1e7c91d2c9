#include "tern/data/formats/sha256sums.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/printable.h"
#include "tern/data/formats/sha256.h"

namespace tern {

namespace {

constexpr size_t kDigits = 64;
constexpr int64_t kMaxSumsBytes = int64_t{1} << 30;

std::string without_escapes(std::string_view name) {
  std::string plain;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '\\' && i + 1 < name.size()) {
      plain += name[++i] == 'n' ? '\n' : name[i];
    } else {
      plain += name[i];
    }
  }
  return plain;
}

}  // namespace

std::string to_text(const Sha256Sums& sums) {
  std::string text;
  for (const auto& [name, sum] : sums) {
    std::string escaped;
    for (const char c : name) {
      escaped += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : std::string(1, c);
    }
    text += (escaped == name ? "" : "\\") + sum + "  " + escaped + "\n";
  }
  return text;
}

Sha256Sums parse_sha256sums(
    std::span<const uint8_t> bytes,
    const std::string& path,
    SumNames names) {
  Sha256Sums sums;
  std::string_view rest(
      reinterpret_cast<const char*>(bytes.data()),
      bytes.size());
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const bool is_whole = end < rest.size() || names == SumNames::files;
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const bool is_escaped = line.starts_with('\\');
    if (is_escaped) line.remove_prefix(1);
    const std::string_view sum = line.substr(0, kDigits);
    std::string name(line.substr(std::min(kDigits + 2, line.size())));
    if (is_escaped) name = without_escapes(name);
    const bool is_named =
        names == SumNames::paths
            ? !name.empty()
            : member_name_fault(name) == nullptr && name.find('/') == name.npos;
    const bool is_good = is_whole && is_sha256(sum) && is_named &&
                         line[kDigits] == ' ' &&
                         (line[kDigits + 1] == ' ' || line[kDigits + 1] == '*');
    if (!is_good || !sums.emplace(std::move(name), sum).second) {
      throw DataError(
          path,
          "line " + std::to_string(number) +
              " is not as sha256sum writes it, or its file has come before; "
              "expected a SHA-256, two blanks and a name");
    }
  }
  return sums;
}

Sha256Sums read_sha256sums(const std::filesystem::path& path, SumNames names) {
  return parse_sha256sums(read_file(path, kMaxSumsBytes), path.string(), names);
}

}  // namespace tern
