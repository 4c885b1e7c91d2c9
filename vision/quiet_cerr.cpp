#include "tern/vision/quiet_cerr.h"

#include <algorithm>
#include <atomic>
#include <iostream>
#include <mutex>
#include <streambuf>

namespace tern {
namespace {

thread_local std::string* kept = nullptr;

/// Stands in for the buffer of std::cerr.
class ByThread final : public std::streambuf {
 public:
  std::atomic<std::streambuf*> original = nullptr;

 protected:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    if (kept == nullptr) return original.load()->sputn(text, count);
    constexpr size_t kMost = 4096;
    const size_t room = kMost - std::min(kept->size(), kMost);
    kept->append(text, std::min(static_cast<size_t>(count), room));
    return count;
  }
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return 0;
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }
  int sync() override {
    return kept == nullptr ? original.load()->pubsync() : 0;
  }
};

// Never destroyed: another thread may be writing when the last one leaves.
ByThread& by_thread() {
  static auto* const buffer = new ByThread;
  return *buffer;
}

std::mutex mutex;
int64_t living = 0;

}  // namespace

QuietCerr::QuietCerr() {
  const std::lock_guard lock(mutex);
  ByThread& buffer = by_thread();
  if (std::cerr.rdbuf() != &buffer) {
    buffer.original = std::cerr.rdbuf();
    std::cerr.rdbuf(&buffer);
  }
  ++living;
  kept = &text_;
}

QuietCerr::~QuietCerr() {
  const std::lock_guard lock(mutex);
  kept = nullptr;
  // A program that has replaced the buffer in the meantime keeps its own.
  if (--living == 0 && std::cerr.rdbuf() == &by_thread()) {
    std::cerr.rdbuf(by_thread().original);
  }
}

}  // namespace tern
