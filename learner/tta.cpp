#include "tern/learner/tta.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

// While it lives, batch transforms augment though the model does not train.
class AugmentedPass {
 public:
  AugmentedPass(LearnerParts& l, int64_t pass) : l_(l) {
    l_.augmented_pass = pass;
  }
  ~AugmentedPass() { l_.augmented_pass.reset(); }
  AugmentedPass(const AugmentedPass&) = delete;

 private:
  LearnerParts& l_;
};

}  // namespace

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
  const DataLoader& loader = parts_->data.loader(split);
  Predictions result = get_preds(loader.in_order());
  TORCH_CHECK_VALUE(
      result.preds.defined() && result.preds.dim() <= 2,
      "[Learner::tta] the model answers for every pixel, and those of "
      "augmented images do not lie over each other, or there is no data; use "
      "get_preds.");
  const DataLoader augmented = loader.in_order(/*augments=*/true);
  torch::Tensor sum, largest;
  for (int64_t pass = 0; pass < options.n; ++pass) {
    const AugmentedPass augments(*parts_, pass);
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
