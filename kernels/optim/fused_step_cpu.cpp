#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <vector>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/optim/dynamic_map.h"
#include "tern/kernels/optim/fused_step_math.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

static_assert(kStepBlock % kMapBlock == 0);

// Gradients are converted and unscaled, and weights rounded, one block at a
// time. This allows one loop for all dtypes, and a block of every list stays in
// L1.

/// Returns 1 / scale if that is exact (for a power of two, as loss scales are),
/// else 0.
float exact_inverse(float scale) {
  const bool is_power_of_two =
      (std::bit_cast<uint32_t>(scale) & 0x007FFFFFU) == 0;
  const float inverse = 1 / scale;
  const bool is_normal =
      inverse >= 0x1p-126f && inverse <= 0x1p126f && scale >= 0x1p-126f;
  return is_power_of_two && is_normal ? inverse : 0;
}

TERN_CPU_LOOP void divide(float* __restrict values, int64_t size, float by) {
  for (int64_t i = 0; i < size; ++i) values[i] /= by;
}

struct Grad {
  const float* data;
  float factor;  // data times this is the unscaled gradient
};

/// Returns the gradient: in place if it is float, otherwise in `buffer`.
Grad read_grad(
    const StepTensor& tensor,
    float grad_scale,
    int64_t begin,
    int64_t size,
    float* buffer) {
  const void* grad = static_cast<const char*>(tensor.grad) +
                     begin * size_in_bytes(tensor.grad_type);
  const float inverse = exact_inverse(grad_scale);
  if (inverse != 0 && tensor.grad_type == ElementType::float32) {
    return {static_cast<const float*>(grad), inverse};
  }
  to_floats(grad, tensor.grad_type, buffer, size);
  if (inverse != 0) return {buffer, inverse};
  on_cpu_isa<divide>(buffer, size, grad_scale);
  return {buffer, 1};
}

TERN_CPU_LOOP void round_block(
    const float* __restrict values,
    uint32_t rounding_key,
    uint32_t count,
    int64_t begin,
    uint16_t* __restrict weights,
    int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    weights[i] =
        round_stochastically(values[i], rounding_key, count, begin + i);
  }
}

/// Updates a block of one tensor, which uses kStates states. A plain step,
/// without the rarer options, is compiled separately.
template <int kStates, bool kIsPlain, class Step>
TERN_CPU_LOOP void update_block(
    Step step,
    const float* __restrict grad,
    float factor,
    float* __restrict param,
    float* __restrict state0,
    float* __restrict state1,
    float* __restrict state2,
    int64_t size) {
  constexpr bool kIsSgd = std::is_same_v<Step, SgdStep>;
  if constexpr (kIsSgd) {
    step.has_momentum = kStates == 1;
    if (kIsPlain) step.is_first = step.nesterov = false;
  } else {
    step.amsgrad = kStates == 3;
  }
  if (kIsPlain) step.l2 = false;
  for (int64_t i = 0; i < size; ++i) {
    float states[kIsSgd ? 1 : 3];
    if constexpr (kStates > 0) states[0] = state0[i];
    if constexpr (kStates > 1) states[1] = state1[i];
    if constexpr (kStates > 2) states[2] = state2[i];
    update(step, grad[i] * factor, param[i], states);
    if constexpr (kStates > 0) state0[i] = states[0];
    if constexpr (kStates > 1) state1[i] = states[1];
    if constexpr (kStates > 2) state2[i] = states[2];
  }
}

template <int kStates, class Step>
auto block_with(bool is_plain) {
  return is_plain ? on_cpu_isa<update_block<kStates, true, Step>>
                  : on_cpu_isa<update_block<kStates, false, Step>>;
}

auto block_of(const SgdStep& step) {
  const bool is_plain = !step.is_first && !step.nesterov && !step.l2;
  return step.has_momentum ? block_with<1, SgdStep>(is_plain)
                           : block_with<0, SgdStep>(is_plain);
}

auto block_of(const AdamStep& step) {
  return step.amsgrad ? block_with<3, AdamStep>(!step.l2)
                      : block_with<2, AdamStep>(!step.l2);
}

/// Returns a block's contribution to the trust ratio, two sums of squares; does
/// not change the moments. The order of summation is fixed, whatever the
/// instruction set.
template <class Step>
TERN_CPU_LOOP void measure_block(
    Step step,
    const float* __restrict grad,
    float factor,
    const float* __restrict param,
    const float* __restrict state0,
    const float* __restrict state1,
    int64_t size,
    double* sums) {
  constexpr bool kIsSgd = std::is_same_v<Step, SgdStep>;
  constexpr int64_t kLanes = 32;
  if constexpr (!kIsSgd) step.amsgrad = false;
  double param_lanes[kLanes] = {}, change_lanes[kLanes] = {};
  const auto add = [&](int64_t begin, int64_t count)
      __attribute__((always_inline)) {
    float params[kLanes] = {}, changes[kLanes] = {};
    for (int64_t lane = 0; lane < count; ++lane) {
      const int64_t i = begin + lane;
      float states[kIsSgd ? 1 : 3];
      if constexpr (!kIsSgd) {
        states[0] = state0[i];
        states[1] = state1[i];
      }
      const Measured now = measure(step, grad[i] * factor, param[i], states);
      params[lane] = now.param;
      changes[lane] = now.change;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double of_param = params[lane], of_change = changes[lane];
      param_lanes[lane] += of_param * of_param;
      change_lanes[lane] += of_change * of_change;
    }
  };
  int64_t begin = 0;
  for (; begin + kLanes <= size; begin += kLanes) add(begin, kLanes);
  if (begin < size) add(begin, size - begin);
  sums[0] = sums[1] = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sums[0] += param_lanes[lane];
    sums[1] += change_lanes[lane];
  }
}

TERN_CPU_LOOP void look_ahead_block(
    Step step,
    float* __restrict param,
    float* __restrict slow,
    int64_t size) {
  for (int64_t i = 0; i < size; ++i) look_ahead(step, param[i], slow[i]);
}

using DynamicMap = std::array<float, 256>;

const DynamicMap& dynamic_map(bool is_signed) {
  const auto make = [](bool with_signs) {
    DynamicMap map{};
    for (int32_t i = 0; i < 256; ++i) map[i] = decode_8bit(i, with_signs);
    return map;
  };
  static const DynamicMap with_signs = make(true), without = make(false);
  return is_signed ? with_signs : without;
}

TERN_CPU_LOOP void decode_codes(
    const uint8_t* __restrict codes,
    const float* __restrict map,
    float magnitude,
    float* __restrict values,
    int64_t size) {
  for (int64_t i = 0; i < size; ++i) values[i] = map[codes[i]] * magnitude;
}

TERN_CPU_LOOP uint32_t
largest_magnitude_bits(const float* values, int64_t size) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    largest = std::max(largest, magnitude_bits(values[i]));
  }
  return largest;
}

template <bool kIsSigned>
TERN_CPU_LOOP void encode_values(
    const float* __restrict values,
    float divisor,
    uint8_t* __restrict codes,
    int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    codes[i] =
        static_cast<uint8_t>(encode_8bit(values[i] / divisor, kIsSigned));
  }
}

/// Calls `f(block, values, size)` for the map blocks of a range of elements.
template <class F>
void for_each_map_block(
    void* moment,
    int64_t begin,
    float* values,
    int64_t size,
    const F& f) {
  for (int64_t at = 0; at < size; at += kMapBlock) {
    auto* const block = map_block(static_cast<uint8_t*>(moment), begin + at);
    f(block, values + at, std::min(kMapBlock, size - at));
  }
}

void decode_moment(
    void* moment,
    bool is_signed,
    int64_t begin,
    float* values,
    int64_t size) {
  const float* const map = dynamic_map(is_signed).data();
  const auto decode = [&](const uint8_t* block, float* out, int64_t count) {
    float magnitude = 0;
    std::memcpy(&magnitude, block, sizeof(magnitude));
    const uint8_t* const codes = block + sizeof(magnitude);
    on_cpu_isa<decode_codes>(codes, map, magnitude, out, count);
  };
  for_each_map_block(moment, begin, values, size, decode);
}

void encode_moment(
    void* moment,
    bool is_signed,
    int64_t begin,
    float* values,
    int64_t size) {
  const auto encode_all = is_signed ? on_cpu_isa<encode_values<true>>
                                    : on_cpu_isa<encode_values<false>>;
  const auto encode = [&](uint8_t* block, const float* in, int64_t count) {
    const float magnitude =
        magnitude_of(on_cpu_isa<largest_magnitude_bits>(in, count));
    std::memcpy(block, &magnitude, sizeof(magnitude));
    uint8_t* const codes = block + sizeof(magnitude);
    encode_all(in, divisor_8bit(magnitude), codes, count);
  };
  for_each_map_block(moment, begin, values, size, encode);
}

/// kStepBlock elements of one tensor, or fewer at its end.
template <class Tensor>
struct Block {
  const Tensor& tensor;
  int64_t begin, size;
  Grad grad;
  float* param;  // if it is float
  float* states[3] = {};
  void* weight = nullptr;
  alignas(64) float moments[3][kStepBlock];  // decoded 8-bit ones
  alignas(64) float rounded[kStepBlock];     // bfloat16 parameters

  /// `buffer` must have room for kStepBlock gradients.
  Block(
      const Tensor& of,
      float grad_scale,
      int64_t at,
      int64_t count,
      float* buffer)
      : tensor(of),
        begin(at),
        size(count),
        grad(read_grad(of, grad_scale, at, count, buffer)),
        param(of.param ? of.param + at : rounded) {
    if (tensor.weight) {
      weight = static_cast<char*>(tensor.weight) +
               begin * size_in_bytes(tensor.weight_type);
    }
    if (!tensor.param) to_floats(weight, tensor.weight_type, param, size);
    for (size_t k = 0; k < std::size(tensor.states); ++k) {
      if (!tensor.states[k]) continue;
      if (tensor.has_8bit_moments) {
        states[k] = moments[k];
        decode_moment(tensor.states[k], k == 0, begin, states[k], size);
      } else {
        states[k] = static_cast<float*>(tensor.states[k]) + begin;
      }
    }
  }

  template <class Step>
  void measure(const Step& step) const {
    on_cpu_isa<measure_block<Step>>(
        step,
        grad.data,
        grad.factor,
        param,
        states[0],
        states[1],
        size,
        tensor.sums + 2 * (begin / kStepBlock));
  }

  template <class Step>
  void update(const Step& step) const {
    block_of(step)(
        step,
        grad.data,
        grad.factor,
        param,
        states[0],
        states[1],
        states[2],
        size);
    for (size_t k = 0; k < std::size(tensor.states); ++k) {
      if (!states[k] || !tensor.has_8bit_moments) continue;
      encode_moment(tensor.states[k], k == 0, begin, states[k], size);
    }
    if (tensor.slow_weight && step.looks_ahead) {
      float* const slow = tensor.slow_weight + begin;
      const auto& common = static_cast<const tern::Step&>(step);
      on_cpu_isa<look_ahead_block>(common, param, slow, size);
    }
    if (!tensor.param) {
      auto* const bits = static_cast<uint16_t*>(weight);
      const uint32_t key = tensor.rounding_key;
      on_cpu_isa<round_block>(param, key, step.count, begin, bits, size);
    } else if (weight) {
      from_floats(param, weight, tensor.weight_type, size);
    }
  }
};

}  // namespace

template <class Tensor, class Args>
void fused_step_cpu(
    const Tensor* tensors,
    int64_t count,
    const Args& args,
    const GradStatePointers& grad_state) {
  if (grad_state.found_inf && *grad_state.found_inf != 0) return;
  const float grad_scale = grad_state.grad_scale ? *grad_state.grad_scale : 1;
  std::vector<int64_t> sizes(count);
  std::vector<decltype(make_step(args, 0.0f))> steps(count);
  for (int64_t i = 0; i < count; ++i) {
    sizes[i] = tensors[i].size;
    // Parameters nearly always have the same step count, so the powers are
    // computed once.
    const bool as_before = i > 0 && *tensors[i].step == *tensors[i - 1].step;
    steps[i] = as_before ? steps[i - 1] : make_step(args, *tensors[i].step);
  }
  const auto for_each_block = [&](const auto& f) {
    const auto blocks = [&](size_t i, int64_t begin, int64_t end) {
      alignas(64) float buffer[kStepBlock];
      for (int64_t at = begin; at < end; at += kStepBlock) {
        const int64_t size = std::min(kStepBlock, end - at);
        f(i, Block<Tensor>(tensors[i], grad_scale, at, size, buffer));
      }
    };
    parallel_elements(sizes, blocks, kStepBlock);
  };
  if (has_trust_ratio(args)) {
    for_each_block(
        [&](size_t i, const auto& block) { block.measure(steps[i]); });
    for (int64_t i = 0; i < count; ++i) {
      double param_sum = 0, change_sum = 0;
      for (int64_t b = 0; b * kStepBlock < sizes[i]; ++b) {
        param_sum += tensors[i].sums[2 * b];
        change_sum += tensors[i].sums[2 * b + 1];
      }
      trust(steps[i], args, param_sum, change_sum);
    }
  }
  for_each_block([&](size_t i, const auto& block) { block.update(steps[i]); });
  for (int64_t i = 0; i < count; ++i) *tensors[i].step += 1;
}

template void fused_step_cpu(
    const SgdTensor*,
    int64_t,
    const FusedSgdArgs&,
    const GradStatePointers&);
template void fused_step_cpu(
    const AdamTensor*,
    int64_t,
    const FusedAdamArgs&,
    const GradStatePointers&);

}  // namespace tern
