#include "tern/learner/random_state.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include "tern/data/support/random.h"

namespace tern {

namespace {

std::vector<std::pair<std::string, at::Generator>> default_generators() {
  std::vector<std::pair<std::string, at::Generator>> generators = {
      {"cpu", at::globalContext().defaultGenerator(torch::kCPU)}};
  for (c10::DeviceIndex i = 0; i < torch::cuda::device_count(); ++i) {
    const torch::Device device(torch::kCUDA, i);
    generators.emplace_back(
        device.str(),
        at::globalContext().defaultGenerator(device));
  }
  return generators;
}

}  // namespace

StateDict random_state() {
  StateDict state;
  for (const auto& [name, generator] : default_generators()) {
    state.insert(name, generator.get_state());
  }
  return state;
}

void set_random_state(const StateDict& state) {
  for (auto& [name, generator] : default_generators()) {
    const torch::Tensor* const saved = state.find(name);
    if (saved) generator.set_state(*saved);
  }
}

void seed_random_state(int64_t key, int64_t second_key) {
  const uint64_t seed =
      at::globalContext().defaultGenerator(torch::kCPU).current_seed();
  SampleRng numbers(seed, key, second_key);
  const uint64_t high = numbers();
  torch::manual_seed((high << 32) | numbers());
}

}  // namespace tern
