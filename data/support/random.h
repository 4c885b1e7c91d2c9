#pragma once

#include <cstdint>

#include <ATen/core/PhiloxRNGEngine.h>

namespace tern {

/// A random number generator keyed by (seed, epoch, sample), so that a sample
/// gets the same numbers for any number of workers and after a resume. Philox
/// 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
/// 2011). Works with the `<random>` distributions; `uniform` and `below` also
/// give the same values on every platform.
class SampleRng {
 public:
  using result_type = uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT32_MAX; }

  SampleRng(uint64_t seed, int64_t epoch, int64_t sample)
      : engine_(
            seed,
            static_cast<uint64_t>(sample),
            static_cast<uint64_t>(epoch) << 32) {}

  result_type operator()() { return engine_(); }

  /// Uniform in [0, 1), with 24 bits.
  float uniform() { return static_cast<float>((*this)() >> 8) * 0x1p-24f; }
  /// Uniform in [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * uniform();
  }
  /// Uniform in 0..n-1, without bias; n must be > 0.
  uint64_t below(uint64_t n) {
    // Rejects the tail that would make small values more likely.
    const uint64_t limit = UINT64_MAX - UINT64_MAX % n;
    uint64_t value = 0;
    do {
      value = uint64_t{(*this)()} << 32;
      value |= (*this)();
    } while (value >= limit);
    return value % n;
  }

 private:
  at::philox_engine engine_;
};

/// Seeds LibTorch's generators on all devices and the C library's generator.
/// The order of the data and MixUp use `DataLoaderOptions::seed` and
/// `LearnerOptions::seed` instead. Like fastai's set_seed.
///
/// \param deterministic  Also calls `set_deterministic(true)`.
void seed_everything(uint64_t seed, bool deterministic = false);

/// If `on`, LibTorch uses only algorithms that give bit-identical results each
/// time; an operation without one throws. Slower on a GPU. Call it before the
/// first use of CUDA, since cuBLAS reads its setting then.
void set_deterministic(bool on);

}  // namespace tern
