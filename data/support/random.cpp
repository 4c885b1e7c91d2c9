#include "tern/data/support/random.h"

#include <cstdlib>

#include <ATen/Context.h>
#include <torch/utils.h>

namespace tern {

void seed_everything(uint64_t seed, bool deterministic) {
  torch::manual_seed(seed);
  std::srand(static_cast<unsigned>(seed));
  if (deterministic) set_deterministic(true);
}

void set_deterministic(bool on) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(on, /*warn_only=*/false);
  context.setDeterministicCuDNN(on);
  if (!on) return;
  context.setBenchmarkCuDNN(false);
  // cuBLAS needs this for reproducible results, unless the user has set it.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

}  // namespace tern
