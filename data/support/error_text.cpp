#include "tern/data/support/error_text.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

namespace tern {

namespace {

// If a backend lacks an operator, LibTorch lists the backends that have it and
// where each was registered, in thousands of characters after the actual
// message.
std::string without_dispatcher_table(std::string text) {
  constexpr std::string_view kBegin = " This could be because the operator ";
  constexpr std::string_view kEntry = "registered at ";
  for (size_t begin = 0;
       (begin = text.find(kBegin, begin)) != std::string::npos;) {
    size_t end = std::min(text.find('\n', begin), text.size());
    while (end < text.size()) {
      const size_t next = std::min(text.find('\n', end + 1), text.size());
      const std::string_view line =
          std::string_view(text).substr(end + 1, next - end - 1);
      if (!line.empty() && line.find(kEntry) == line.npos) break;
      end = next;
    }
    text.erase(begin, end - begin);
  }
  return text;
}

}  // namespace

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return without_dispatcher_table(
      torch_error ? torch_error->what_without_backtrace() : error.what());
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
