#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // libcrypto's EVP_MD_CTX

namespace tern {

/// SHA-256 (FIPS 180-4) of bytes that come piece by piece.
///
///   Sha256 hash;
///   hash.update(header);
///   hash.update(body);
///   hash.hex_digest();   // "ba7816bf..."
class Sha256 {
 public:
  Sha256();
  void update(std::span<const uint8_t> bytes);

  /// The hash of everything so far, as 64 lower-case hexadecimal digits; more
  /// may follow.
  std::string hex_digest() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* hash) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> hash_;
};

/// Whether a text is a SHA-256: 64 lower-case hexadecimal digits.
bool is_sha256(std::string_view text);

/// Hexadecimal SHA-256 of `bytes`.
std::string sha256(std::span<const uint8_t> bytes);

/// Hexadecimal SHA-256 of a file, read in pieces.
/// \throws IoError, or DataError if it is no regular file.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace tern
