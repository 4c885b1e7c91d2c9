#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace tern {

/// SHA-256 (FIPS 180-4) of bytes that come piece by piece.
///
///   Sha256 hash;
///   hash.update(header);
///   hash.update(body);
///   hash.hex_digest();   // "ba7816bf..."
class Sha256 {
 public:
  void update(std::span<const uint8_t> bytes);

  /// The hash of everything so far; more may follow.
  std::array<uint8_t, 32> digest() const;
  /// The same as 64 lower-case hexadecimal digits.
  std::string hex_digest() const;

 private:
  std::array<uint32_t, 8> state_{
      0x6a09e667,
      0xbb67ae85,
      0x3c6ef372,
      0xa54ff53a,
      0x510e527f,
      0x9b05688c,
      0x1f83d9ab,
      0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t size_ = 0;
};

/// Hexadecimal SHA-256 of `bytes`.
std::string sha256(std::span<const uint8_t> bytes);

/// Hexadecimal SHA-256 of a file, read in pieces.
/// \throws IoError, or DataError if it is no regular file.
std::string sha256_file(const std::filesystem::path& path);

namespace detail {

/// Takes blocks of 64 bytes into the state of a hash. The first is the
/// definition, the second the fastest on this processor.
void sha256_blocks_portable(
    uint32_t* state,
    const uint8_t* data,
    size_t blocks);
void sha256_blocks(uint32_t* state, const uint8_t* data, size_t blocks);

}  // namespace detail

}  // namespace tern
