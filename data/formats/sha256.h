#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // libcrypto's EVP_MD_CTX

namespace tern {

/// Computes SHA-256 (FIPS 180-4) incrementally.
///
///   Sha256 hash;
///   hash.update(header);
///   hash.update(body);
///   hash.hex_digest();   // "ba7816bf..."
class Sha256 {
 public:
  Sha256();
  void update(std::span<const uint8_t> bytes);

  /// Returns the hash of the data so far, as 64 lower-case hexadecimal digits;
  /// more data may follow.
  std::string hex_digest() const;

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> hash_;
};

/// True if the text is a SHA-256: 64 lower-case hexadecimal digits.
bool is_sha256(std::string_view text);

/// Returns the SHA-256 of `bytes` in hexadecimal.
std::string sha256(std::span<const uint8_t> bytes);

/// Returns the SHA-256 of a file in hexadecimal. Reads it in chunks.
/// \throws IoError, or DataError if it is not a regular file.
std::string sha256_file(const std::filesystem::path& path);

/// Returns the first digits (8 or more) of a file's SHA-256 if its name ends
/// with them after a dash, as the names of PyTorch's weight files do:
/// "f37072fd" for "resnet18-f37072fd.pth". Otherwise returns an empty string.
std::string sha256_in_name(const std::filesystem::path& path);

// ---- Lists of checksums ----

/// SHA-256 sums by file name; 64 lower-case digits each.
using Sha256Sums = std::map<std::string, std::string>;

/// Names allowed in a list: files in the folder of the list, or any paths.
enum class SumNames { files, paths };

/// Formats the list for `sha256sum -c`: "<SHA-256>  train-000000.tar". Escapes
/// backslashes and line breaks as sha256sum does.
std::string to_text(const Sha256Sums& sums);

/// Parses a list in the format of `sha256sum`.
/// \param path  For error messages.
/// \throws DataError that names the line if a line is not a checksum and a
///         name, or if its name is invalid or duplicated. A list of paths must
///         end with a line break, which shows that it is complete.
Sha256Sums parse_sha256sums(
    std::span<const uint8_t> bytes,
    const std::string& path,
    SumNames names = SumNames::files);

/// Verifies the checksum of a file.
/// \param expected  The file's SHA-256, or its first digits.
/// \throws DataError if the file's checksum differs; IoError.
void check_sha256_file(
    const std::filesystem::path& path,
    const std::string& expected);

/// Returns the name of the file with the checksum of `path`: `path`.sha256.
std::filesystem::path sum_file(const std::filesystem::path& path);

/// Returns the checksum of `path` that `path`.sha256 lists, or an empty string
/// if `path`.sha256 does not exist.
/// \throws DataError if `path`.sha256 does not list `path`; the errors of
///         `read_sha256sums`.
std::string sum_beside(const std::filesystem::path& path);

/// Reads and parses a list of checksums.
/// \throws the errors of `parse_sha256sums`; IoError.
Sha256Sums read_sha256sums(
    const std::filesystem::path& path,
    SumNames names = SumNames::files);

}  // namespace tern
