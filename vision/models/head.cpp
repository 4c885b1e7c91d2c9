#include "tern/vision/models/head.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tern/vision/models/conv_layer.h"

namespace tern {

torch::Tensor ConcatPoolImpl::forward(const torch::Tensor& x) {
  const torch::Tensor largest =
      std::get<0>(torch::adaptive_max_pool2d(x, {1, 1}));
  return torch::cat({largest, torch::adaptive_avg_pool2d(x, {1, 1})}, 1);
}

torch::nn::Sequential
classifier_head(int64_t features, int64_t outputs, const HeadOptions& options) {
  std::vector<int64_t> widths = {options.concat_pool ? 2 * features : features};
  widths.insert(widths.end(), options.hidden.begin(), options.hidden.end());
  widths.push_back(outputs);
  TORCH_CHECK_VALUE(
      *std::min_element(widths.begin(), widths.end()) > 0 &&
          options.dropout >= 0 && options.dropout < 1,
      fmt::format(
          "[classifier_head] the widths are {{{}}} and dropout is {}; expected "
          "positive widths and a share in [0, 1).",
          fmt::join(widths, ", "),
          options.dropout));
  torch::nn::Sequential head;
  if (options.concat_pool) {
    head->push_back(ConcatPool());
  } else {
    head->push_back(torch::nn::AdaptiveAvgPool2d(1));
  }
  head->push_back(torch::nn::Flatten());
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool is_last = i + 2 == widths.size();
    torch::nn::BatchNorm1d norm(widths[i]);
    torch::nn::init::constant_(norm->bias, 1e-3);
    head->push_back(norm);
    if (options.dropout > 0) {
      head->push_back(
          torch::nn::Dropout(is_last ? options.dropout : options.dropout / 2));
    }
    head->push_back(torch::nn::Linear(
        torch::nn::LinearOptions(widths[i], widths[i + 1]).bias(false)));
    if (!is_last) {
      head->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    }
  }
  init_kaiming(*head);
  return head;
}

}  // namespace tern
