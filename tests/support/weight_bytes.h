#pragma once

#include <string>

#include "tern/learner/learner.h"

namespace tern::testing_support {

/// The bytes of all weights and buffers, to compare two training runs.
inline std::string bytes_of(Learner& learn) {
  std::string bytes;
  for (const ModelTensor& t : learn.model().state()) {
    const torch::Tensor tensor = t.tensor.detach().contiguous();
    bytes.append(
        static_cast<const char*>(tensor.const_data_ptr()),
        tensor.nbytes());
  }
  return bytes;
}

}  // namespace tern::testing_support
