#include "tern/learner/tta.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

/// While it lives, batch transforms augment though the model does not train.
class Learner::AugmentedPass {
 public:
  AugmentedPass(Learner& learner, int64_t pass) : learner_(learner) {
    learner_.augmented_pass_ = pass;
  }
  ~AugmentedPass() { learner_.augmented_pass_.reset(); }
  AugmentedPass(const AugmentedPass&) = delete;

 private:
  Learner& learner_;
};

Predictions Learner::tta(Split split) {
  return tta(split, TtaOptions{});
}

Predictions Learner::tta(Split split, const TtaOptions& options) {
  TORCH_CHECK_VALUE(
      options.n > 0 && options.beta >= 0 && options.beta <= 1,
      fmt::format(
          "[Learner::tta] n is {} and beta is {}; expected at least one pass "
          "and a weight from 0 to 1.",
          options.n,
          options.beta));
  const DataLoader& loader = data_.loader(split);
  Predictions result = get_preds(loader.in_order());
  TORCH_CHECK_VALUE(
      result.preds.defined() && result.preds.dim() <= 2,
      "[Learner::tta] the model answers for every pixel, and those of "
      "augmented images do not lie over each other, or there is no data; use "
      "get_preds.");
  const DataLoader augmented = loader.in_order(/*augments=*/true);
  torch::Tensor sum, largest;
  for (int64_t pass = 0; pass < options.n; ++pass) {
    const AugmentedPass augments(*this, pass);
    const torch::Tensor preds = get_preds(augmented).preds;
    sum = pass == 0 ? preds : sum + preds;
    largest = pass == 0 ? preds : torch::maximum(largest, preds);
  }
  result.preds = options.use_max ? torch::maximum(largest, result.preds)
                                 : torch::lerp(
                                       sum / static_cast<double>(options.n),
                                       result.preds,
                                       options.beta);
  return result;
}

}  // namespace tern
