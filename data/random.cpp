#include "tern/data/random.h"

namespace tern {

namespace {

std::array<uint32_t, 4> philox(
    std::array<uint32_t, 4> counter,
    std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0],
        static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1],
        static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

}  // namespace

// The counter's first word counts blocks; an epoch has 32 bits.
SampleRng::SampleRng(uint64_t seed, int64_t epoch, int64_t sample)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{
          0,
          static_cast<uint32_t>(epoch),
          static_cast<uint32_t>(sample),
          static_cast<uint32_t>(static_cast<uint64_t>(sample) >> 32)} {}

SampleRng::result_type SampleRng::operator()() {
  if (used_ == 4) {
    block_ = philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

uint64_t SampleRng::below(uint64_t n) {
  // Rejects the tail that would make small values likelier.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % n;
  uint64_t value = 0;
  do {
    value = uint64_t{(*this)()} << 32;
    value |= (*this)();
  } while (value >= limit);
  return value % n;
}

}  // namespace tern
