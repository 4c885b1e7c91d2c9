#pragma once

#include <array>
#include <cstdint>

namespace tern {

/// Random numbers that depend on nothing but their key: (seed, epoch, sample).
/// However many workers there are, and wherever a run is resumed, a sample gets
/// the same numbers. Philox 4x32-10 (Salmon et al., "Parallel random numbers:
/// as easy as 1, 2, 3", SC 2011); usable with the `<random>` distributions,
/// though `uniform` and `below` give the same values on every platform.
class SampleRng {
 public:
  using result_type = uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT32_MAX; }

  SampleRng(uint64_t seed, int64_t epoch, int64_t sample);

  result_type operator()();

  /// Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>((*this)() >> 8) * 0x1p-24f; }
  /// Uniform in [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * uniform();
  }
  /// Uniform in 0..n-1, without bias. n must be > 0.
  uint64_t below(uint64_t n);

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace tern
