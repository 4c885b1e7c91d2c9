#include "tern/vision/image_manifest.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/vision/for_each_image.h"
#include "tern/vision/image_folder.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 64;

std::vector<std::string> hashes_of(const std::vector<std::string>& paths) {
  std::vector<std::string> hashes(paths.size());
  for_each_image(
      static_cast<int64_t>(paths.size()),
      [&](int64_t index) {
        const auto i = static_cast<size_t>(index);
        hashes[i] = sha256_file(paths[i]);
      },
      "hash");
  return hashes;
}

std::string relative_to(const fs::path& folder, const std::string& path) {
  return fs::path(path).lexically_relative(folder).string();
}

// As sha256sum: a name with a backslash or a line break is written with
// escapes, which a backslash before the hash tells of.
std::string line_of(const std::string& hash, const std::string& name) {
  std::string escaped;
  for (const char c : name) {
    escaped += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return fmt::format("{}{}  {}\n", escaped == name ? "" : "\\", hash, escaped);
}

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

/// The hash of each name.
std::map<std::string, std::string> read_manifest(const fs::path& manifest) {
  const std::vector<uint8_t> bytes = read_file(manifest);
  std::string_view rest(
      reinterpret_cast<const char*>(bytes.data()),
      bytes.size());
  std::map<std::string, std::string> hashes;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const bool is_escaped = !line.empty() && line[0] == '\\';
    if (is_escaped) line.remove_prefix(1);
    const bool is_whole =
        end != std::string_view::npos && line.size() > kDigits + 2 &&
        line.find_first_not_of("0123456789abcdef") == kDigits &&
        line[kDigits] == ' ' &&
        (line[kDigits + 1] == ' ' || line[kDigits + 1] == '*');
    if (!is_whole) {
      throw DataError(
          manifest.string(),
          fmt::format(
              "line {} is no SHA-256 and a file's name; expected what "
              "write_image_manifest or sha256sum writes. Write it anew.",
              number));
    }
    const std::string_view name = line.substr(kDigits + 2);
    hashes[is_escaped ? without_escapes(name) : std::string(name)] =
        std::string(line.substr(0, kDigits));
  }
  return hashes;
}

}  // namespace

int64_t write_image_manifest(const fs::path& folder, const fs::path& manifest) {
  const std::vector<std::string> paths = find_image_files(folder);
  const std::vector<std::string> hashes = hashes_of(paths);
  AtomicFile file(manifest);
  for (size_t i = 0; i < paths.size(); ++i) {
    file.write(line_of(hashes[i], relative_to(folder, paths[i])));
  }
  file.commit();
  return static_cast<int64_t>(paths.size());
}

std::vector<BadImage> check_image_manifest(
    const fs::path& folder,
    const fs::path& manifest) {
  std::map<std::string, std::string> expected = read_manifest(manifest);
  const std::vector<std::string> paths = find_image_files(folder);
  const std::vector<std::string> hashes = hashes_of(paths);
  std::vector<BadImage> bad;
  for (size_t i = 0; i < paths.size(); ++i) {
    const auto listed = expected.find(relative_to(folder, paths[i]));
    if (listed == expected.end()) {
      bad.push_back({paths[i], "is not in the manifest"});
      continue;
    }
    if (listed->second != hashes[i]) {
      bad.push_back(
          {paths[i], "has other bytes than when the manifest was written"});
    }
    expected.erase(listed);
  }
  for (const auto& [name, hash] : expected) {
    bad.push_back({(folder / name).string(), "is missing"});
  }
  std::sort(bad.begin(), bad.end(), [](const auto& a, const auto& b) {
    return a.path < b.path;
  });
  return bad;
}

}  // namespace tern
