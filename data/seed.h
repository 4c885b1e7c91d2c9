#pragma once

#include <cstdint>

namespace tern {

/// Seeds LibTorch's generators on all devices and the C library's. The order of
/// the data and MixUp have keys of their own: `DataLoaderOptions::seed` and
/// `LearnerOptions::seed`. As fastai's set_seed.
///
/// \param deterministic  Also `set_deterministic(true)`.
void seed_everything(uint64_t seed, bool deterministic = false);

/// Whether LibTorch takes only algorithms that give the same bits each time;
/// an operation that has none then throws. Costs speed on a GPU. Call it before
/// the first use of CUDA, for cuBLAS reads its setting then.
void set_deterministic(bool on);

}  // namespace tern
