#pragma once

#include <cstdint>

#include "tern/learner/state_dict.h"

/// The state of LibTorch's random number generators, of the CPU and of every
/// CUDA device. Private to Tern.
namespace tern {

/// Returns a copy, by device: "cpu", "cuda:0", ...
StateDict random_state();

/// Puts back what `random_state` returned; devices that it does not have keep
/// their numbers.
void set_random_state(const StateDict& state);

/// Gives all generators new numbers, which follow from the seed that they have
/// now, as set by torch::manual_seed, and from two keys: the same in each run,
/// others for other keys.
void seed_random_state(int64_t key, int64_t second_key);

}  // namespace tern
