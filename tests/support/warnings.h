#pragma once

#include <string>
#include <vector>

#include <c10/util/Exception.h>

namespace tern::test {

/// Collects LibTorch's warnings of this thread during its lifetime.
class Warnings : c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    texts_.push_back(warning.msg());
  }

  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace tern::test
