#include "tern/data/support/error_text.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace tern {

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error ? torch_error->what_without_backtrace() : error.what();
}

std::string reason_of(const std::exception& error) {
  std::string reason = message_of(error);
  reason.resize(std::min(reason.find('\n'), reason.size()));
  if (reason.ends_with('.')) reason.pop_back();
  return reason;
}

std::string shapes_of(at::TensorList tensors) {
  std::vector<std::string> texts;
  for (const torch::Tensor& tensor : tensors) {
    texts.push_back(
        tensor.defined() ? fmt::format(
                               "[{}] {}",
                               fmt::join(tensor.sizes(), ", "),
                               c10::toString(tensor.scalar_type()))
                         : "undefined");
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace tern
