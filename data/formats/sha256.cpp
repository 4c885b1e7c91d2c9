#include "tern/data/formats/sha256.h"

#include <algorithm>
#include <array>
#include <new>
#include <openssl/evp.h>
#include <utility>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

// libcrypto's functions fail only when out of memory.
void check(int result) {
  if (result != 1) throw std::bad_alloc();
}

constexpr size_t kHashDigits = 64;
constexpr int64_t kMaxSumsBytes = int64_t{1} << 30;

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
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

}  // namespace

Sha256::Sha256() : hash_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  check(hash_ && EVP_DigestInit_ex(hash_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(std::span<const uint8_t> bytes) {
  check(EVP_DigestUpdate(hash_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::hex_digest() const {
  Sha256 copy;  // finishing a hash ends its context
  std::array<uint8_t, 32> digest{};
  check(EVP_MD_CTX_copy_ex(copy.hash_.get(), hash_.get()));
  check(EVP_DigestFinal_ex(copy.hash_.get(), digest.data(), nullptr));
  return hex_digits(as_text(digest));
}

bool is_sha256(std::string_view text) {
  return text.size() == kHashDigits && is_hex(text);
}

std::string sha256_in_name(const std::filesystem::path& path) {
  constexpr size_t kLeastDigits = 8;
  const std::string stem = path.stem().string();
  const size_t dash = stem.rfind('-');
  if (dash == stem.npos) return "";
  const std::string digits = stem.substr(dash + 1);
  const bool is_hash = digits.size() >= kLeastDigits &&
                       digits.size() <= kHashDigits && is_hex(digits);
  return is_hash ? digits : "";
}

std::string sha256(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

std::string sha256_file(const std::filesystem::path& path) {
  const FileHandle file = open_regular_file(path);
  std::vector<uint8_t> buffer(size_t{1} << 18);
  Sha256 hash;
  uint64_t at = 0;
  while (const size_t n = read_up_to(file, buffer, path, at)) {
    hash.update(std::span(buffer).first(n));
    at += n;
  }
  return hash.hex_digest();
}

void check_sha256_file(
    const std::filesystem::path& path,
    const std::string& expected) {
  const std::string found = sha256_file(path);
  if (found.starts_with(expected)) return;
  throw DataError(
      path,
      "has the SHA-256 " + found + "; expected " + expected +
          ". The file is damaged or not the expected one. Download or save it "
          "again.");
}

std::string to_text(const Sha256Sums& sums) {
  std::string text;
  for (const auto& [name, sum] : sums) {
    std::string escaped;
    for (const char c : name) {
      escaped += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : std::string(1, c);
    }
    if (escaped != name) text += '\\';
    text.append(sum).append("  ").append(escaped) += '\n';
  }
  return text;
}

Sha256Sums parse_sha256sums(
    std::span<const uint8_t> bytes,
    const std::string& path,
    SumNames names) {
  Sha256Sums sums;
  std::string_view rest = as_text(bytes);
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const bool is_whole = end < rest.size() || names == SumNames::files;
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const bool is_escaped = line.starts_with('\\');
    if (is_escaped) line.remove_prefix(1);
    const std::string_view sum = line.substr(0, kHashDigits);
    std::string name(line.substr(std::min(kHashDigits + 2, line.size())));
    if (is_escaped) name = without_escapes(name);
    const bool is_named =
        names == SumNames::paths
            ? !name.empty()
            : member_name_fault(name) == nullptr && name.find('/') == name.npos;
    const bool is_good =
        is_whole && is_sha256(sum) && is_named && line[kHashDigits] == ' ' &&
        (line[kHashDigits + 1] == ' ' || line[kHashDigits + 1] == '*');
    if (!is_good || !sums.emplace(std::move(name), sum).second) {
      throw DataError(
          path,
          "line " + std::to_string(number) +
              " is not in the format of sha256sum, or repeats a file; expected "
              "a SHA-256, two spaces and a name.");
    }
  }
  return sums;
}

std::filesystem::path sum_file(const std::filesystem::path& path) {
  return path.string() + ".sha256";
}

std::string sum_beside(const std::filesystem::path& path) {
  const std::filesystem::path list = sum_file(path);
  std::error_code error;
  if (!std::filesystem::exists(list, error)) return "";
  const Sha256Sums sums = read_sha256sums(list);
  const auto sum = sums.find(path.filename().string());
  if (sum != sums.end()) return sum->second;
  throw DataError(
      list,
      "has no checksum for " + printable(path.filename().string()) +
          "; expected one. Create the list again with sha256sum, or remove "
          "it.");
}

Sha256Sums read_sha256sums(const std::filesystem::path& path, SumNames names) {
  return parse_sha256sums(read_file(path, kMaxSumsBytes), path.string(), names);
}

}  // namespace tern
