#include "tern/learner/export/fp32_weights.h"

#include "tern/learner/learner.h"

namespace tern {

Fp32Weights::Fp32Weights(Learner& learn)
    : merged_(learn.model(), learn.state_dict()) {
  const StateDict exact = learn.state_dict();
  for (ModelTensor& t : learn.model().state()) {
    const torch::Tensor* const value = exact.find(t.name);
    if (value == nullptr || value->scalar_type() == t.tensor.scalar_type()) {
      continue;
    }
    kept_.emplace_back(t.tensor, t.tensor.data());
    t.tensor.set_data(value->detach());
  }
}

Fp32Weights::~Fp32Weights() {
  for (auto& [tensor, data] : kept_) tensor.set_data(data);
}

}  // namespace tern
