#include "captured_output.h"

#include <array>
#include <unistd.h>

namespace tern::examples {

CapturedOutput::CapturedOutput() : file_(std::tmpfile()) {
  std::fflush(stdout);
  if (file_ == nullptr) return;  // no room for it: the page does without
  terminal_ = dup(STDOUT_FILENO);
  dup2(fileno(file_), STDOUT_FILENO);
}

CapturedOutput::~CapturedOutput() {
  if (file_ == nullptr) return;
  take();
  dup2(terminal_, STDOUT_FILENO);
  close(terminal_);
  std::fclose(file_);
}

std::string CapturedOutput::take() {
  std::string text;
  if (file_ == nullptr) return text;
  std::fflush(stdout);
  // stdout and file_ share their place in the file: back, and read to its end.
  lseek(STDOUT_FILENO, 0, SEEK_SET);
  std::array<char, 4096> bytes{};
  for (ssize_t n = 0;
       (n = read(STDOUT_FILENO, bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<size_t>(n));
  }
  lseek(STDOUT_FILENO, 0, SEEK_SET);
  if (ftruncate(STDOUT_FILENO, 0) != 0) text += "(an output was lost)\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(terminal_, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return text;
}

}  // namespace tern::examples
