#include "tern/callbacks/mixup.h"

#include <algorithm>

#include <torch/types.h>

namespace tern {

torch::Tensor
MixUp::mix(Tensors& inputs, const torch::Tensor& partners, SampleRng& rng) {
  const int64_t size = partners.size(0);
  torch::Tensor lambdas = torch::empty(size);
  auto* const lambda = lambdas.mutable_data_ptr<float>();
  for (int64_t i = 0; i < size; ++i) {
    const double drawn = draw_beta(rng);
    lambda[i] = static_cast<float>(std::max(drawn, 1 - drawn));
  }
  lambdas = send(lambdas, partners.device());
  for (torch::Tensor& input : inputs) {
    if (!input.is_floating_point()) continue;
    std::vector<int64_t> shape(input.dim(), 1);
    shape[0] = size;
    // From the input, whose memory format the result takes.
    input = torch::lerp(
        input,
        input.index_select(0, partners),
        (1 - lambdas).view(shape).to(input.scalar_type()));
  }
  return lambdas;
}

}  // namespace tern
