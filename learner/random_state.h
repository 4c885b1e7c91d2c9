#pragma once

#include <cstdint>

#include "tern/learner/state_dict.h"

/// The state of LibTorch's random number generators, for the CPU and every CUDA
/// device. Private to Tern.
namespace tern {

/// Returns a copy of the states, by device: "cpu", "cuda:0", ...
StateDict random_state();

/// Restores a state from `random_state`. Generators of devices that `state`
/// does not contain are not changed.
void set_random_state(const StateDict& state);

/// Reseeds all generators. The new seed is computed from the current seed, as
/// set by torch::manual_seed, and the two keys. Every run thus gets the same
/// random numbers, and different keys give different random numbers.
void seed_random_state(int64_t key, int64_t second_key);

}  // namespace tern
