#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tern/kernels/float_lanes.h"

namespace tern {

/// An activation that a convolution applies to its results.
struct ConvActivation {
  enum class Kind { none, clamp, sigmoid, silu, hardsigmoid, hardswish };

  Kind kind = Kind::none;
  float low = 0, high = 0;  // of a clamp

  /// \param name  oneDNN's name: "none", "relu", "hardtanh", "sigmoid",
  ///              "swish", "hardsigmoid" or "hardswish".
  /// \param low, high  Bounds of "hardtanh".
  /// \return      Unset for other activations.
  static std::optional<ConvActivation>
  from(std::string_view name, double low, double high);
};

/// Limits to [low, high]; NaN stays NaN.
TERN_CPU_LOOP void clamp_lanes(Floats& x, float low, float high) {
  Floats bound;
  fill_floats(low, bound);
  x = x < low ? bound : x;
  fill_floats(high, bound);
  x = x > high ? bound : x;
}

/// e^x for x from -87 to 88.3, with a relative error of at most 2e-7. Infinite
/// if x is larger, e^-87 if it is smaller. NaN stays NaN.
TERN_CPU_LOOP void exp_lanes(Floats& x) {
  using Words = uint32_t __attribute__((vector_size(64)));
  // Adding 1.5 * 2^23 rounds to a whole number, in the lowest bits.
  constexpr float kRounding = 0x1.8p23F;
  // e^89 becomes 1.4 * 2^128, and this power's bits are those of infinity.
  clamp_lanes(x, -87, 89);
  const Floats shifted = x * 1.44269504F + kRounding;
  const Floats whole = shifted - kRounding;
  // x - whole * ln(2), with ln(2) in two parts.
  const Floats rest = x - whole * 0.693359375F + whole * 2.12194440e-4F;
  Floats power = rest * 1.9875691500e-4F + 1.3981999507e-3F;
  power = power * rest + 8.3334519073e-3F;
  power = power * rest + 4.1665795894e-2F;
  power = power * rest + 1.6666665459e-1F;
  power = power * rest + 5.0000001201e-1F;
  power = power * rest * rest + rest + 1.0F;
  Words bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23U) + 0x3F800000U;  // 2^whole
  Floats scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  x = power * scale;
}

/// 1 / (1 + e^-x)
TERN_CPU_LOOP void sigmoid_lanes(Floats& x) {
  x = -x;
  exp_lanes(x);
  x = 1.0F / (1.0F + x);
}

/// (x + 3) / 6, limited to [0, 1]
TERN_CPU_LOOP void hardsigmoid_lanes(Floats& x) {
  x += 3.0F;
  clamp_lanes(x, 0, 6);
  x *= 1.0F / 6;
}

/// x / (1 + e^-x), NaN for minus infinity like ATen's
TERN_CPU_LOOP void silu_lanes(Floats& x) {
  Floats power = -x;
  exp_lanes(power);
  x /= 1.0F + power;
}

/// x * hardsigmoid(x)
TERN_CPU_LOOP void hardswish_lanes(Floats& x) {
  Floats factor = x;
  hardsigmoid_lanes(factor);
  x *= factor;
}

template <void (*kFunction)(Floats&)>
TERN_CPU_LOOP void map_lanes(float* values, int64_t size) {
  for (int64_t i = 0; i < size; i += kLanes) {
    Floats x;
    load_floats(values + i, x);
    kFunction(x);
    store_floats(x, values + i);
  }
}

/// Applies an activation to `size` values, a multiple of sixteen.
TERN_CPU_LOOP void
activate(const ConvActivation& activation, float* values, int64_t size) {
  switch (activation.kind) {
    case ConvActivation::Kind::none:
      break;
    case ConvActivation::Kind::clamp:
      for (int64_t i = 0; i < size; i += kLanes) {
        Floats x;
        load_floats(values + i, x);
        clamp_lanes(x, activation.low, activation.high);
        store_floats(x, values + i);
      }
      break;
    case ConvActivation::Kind::sigmoid:
      map_lanes<sigmoid_lanes>(values, size);
      break;
    case ConvActivation::Kind::silu:
      map_lanes<silu_lanes>(values, size);
      break;
    case ConvActivation::Kind::hardsigmoid:
      map_lanes<hardsigmoid_lanes>(values, size);
      break;
    case ConvActivation::Kind::hardswish:
      map_lanes<hardswish_lanes>(values, size);
      break;
  }
}

}  // namespace tern
