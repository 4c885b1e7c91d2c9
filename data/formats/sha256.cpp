#include "tern/data/formats/sha256.h"

#include <array>
#include <new>
#include <openssl/evp.h>
#include <vector>

#include "tern/data/formats/file_io.h"

namespace tern {

namespace {

// libcrypto's functions fail for want of memory alone.
void check(int result) {
  if (result != 1) throw std::bad_alloc();
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* hash) const {
  EVP_MD_CTX_free(hash);
}

Sha256::Sha256() : hash_(EVP_MD_CTX_new()) {
  check(hash_ && EVP_DigestInit_ex(hash_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(std::span<const uint8_t> bytes) {
  check(EVP_DigestUpdate(hash_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::hex_digest() const {
  constexpr char kDigits[] = "0123456789abcdef";
  Sha256 copy;  // the end of a hash is the end of its context
  std::array<uint8_t, 32> digest{};
  check(EVP_MD_CTX_copy_ex(copy.hash_.get(), hash_.get()));
  check(EVP_DigestFinal_ex(copy.hash_.get(), digest.data(), nullptr));
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
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
  while (const size_t n = read_up_to(file, buffer, path)) {
    hash.update(std::span(buffer).first(n));
  }
  return hash.hex_digest();
}

}  // namespace tern
