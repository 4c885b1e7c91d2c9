#pragma once

// Data and Learners small enough to train in a test.

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/data/data_bunch.h"
#include "tern/learner/learner.h"

namespace tern::testing_support {

/// Two clusters of points, [N, 2] kFloat, separated by the sign of x + y.
inline std::shared_ptr<Dataset> points(int64_t size, uint64_t seed = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  const torch::Tensor x = torch::randn({size, 2}, generator);
  const torch::Tensor y = (x.sum(1) > 0).to(torch::kLong);
  return std::make_shared<TensorDataset>(Tensors{x}, Tensors{y});
}

inline DataBunch point_data(
    int64_t train = 256,
    int64_t valid = 100,
    DataLoaderOptions options = {.batch_size = 32, .workers = 0}) {
  DataBunch data = DataBunch::create(
      points(train, 1),
      valid ? points(valid, 2) : nullptr,
      options);
  data.device = torch::kCPU;
  data.classes = {"below", "above"};
  return data;
}

/// Linear, BatchNorm, ReLU, Linear; the same weights for the same seed.
inline torch::nn::Sequential point_net(uint64_t seed = 7) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(
      torch::nn::Linear(2, 16),
      torch::nn::BatchNorm1d(16),
      torch::nn::ReLU(),
      torch::nn::Linear(16, 2));
}

/// The same without BatchNorm, which makes the results of a batch differ from
/// the results of its parts.
inline torch::nn::Sequential plain_net(uint64_t seed = 7) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(
      torch::nn::Linear(2, 16),
      torch::nn::Tanh(),
      torch::nn::Linear(16, 2));
}

/// Stores all output.
class MemorySink final : public SinkImpl {
 public:
  void line(const std::string& text) override { lines.push_back(text); }
  void warning(const std::string& text) override { warnings.push_back(text); }
  void progress(const Progress& p) override { progresses.push_back(p); }
  std::optional<int64_t> columns() const override { return width; }

  std::vector<std::string> lines, warnings;
  std::vector<Progress> progresses;
  std::optional<int64_t> width;  // unset: unlimited
};

inline LearnerOptions quiet(LearnerOptions options = {}) {
  if (!options.sink) options.sink = silent();
  return options;
}

/// Makes the loss infinite for backward in the training batches with these
/// numbers.
inline std::shared_ptr<Callback> overflow_at(std::set<int64_t> iterations) {
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_backward_begin =
          [iterations](Learner& l) {
            if (iterations.count(l.state().iteration)) {
              l.state().loss_grad =
                  l.state().loss_grad * std::numeric_limits<float>::infinity();
            }
          },
      .order = callback_order::kMixedPrecision + 1});
}

/// Copies of all parameters, in order.
inline Tensors parameters_of(Learner& learn) {
  Tensors copies;
  for (const ModelTensor& p : learn.model().parameters()) {
    copies.push_back(p.tensor.detach().clone());
  }
  return copies;
}

inline bool all_equal(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].scalar_type() != b[i].scalar_type()) return false;
    if (!torch::equal(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace tern::testing_support
