#pragma once

#include <string>

namespace tern {

/// While it lives, what this thread writes to std::cerr is kept instead: OpenCV
/// tells the terminal of every image that it cannot decode, and its log level
/// silences only a part of that. Other threads' words pass.
class QuietCerr {
 public:
  QuietCerr();
  ~QuietCerr();
  QuietCerr(const QuietCerr&) = delete;

  /// What was written, at most 4096 bytes.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace tern
