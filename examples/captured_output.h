#pragma once

#include <cstdio>
#include <string>

namespace tern::examples {

/// Collects what the program prints to stdout, until it ends; passes it on.
class CapturedOutput {
 public:
  CapturedOutput();
  ~CapturedOutput();
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  /// What was printed since the last call.
  std::string take();

 private:
  std::FILE* file_;
  int terminal_ = -1;  // what stdout was
};

}  // namespace tern::examples
