#include "tern/vision/decode/image_file.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {

std::span<const uint8_t> read_image_file(
    const std::string& path,
    ScratchBuffer& buffer,
    int64_t max_bytes) {
  const FileHandle file = open_regular_file(path);
  const int64_t size = file_size(file, path);
  if (size > max_bytes) {
    throw DataError(
        path,
        "has " + std::to_string(size) + " bytes, more than the limit of " +
            std::to_string(max_bytes) +
            " for an image. Remove the file, or raise max_bytes if you trust "
            "it.");
  }
  // At least 64 KiB, so that small images of different sizes need no
  // reallocation.
  const std::span<uint8_t> bytes(
      buffer.get(static_cast<size_t>(std::max<int64_t>(size, 64 << 10))),
      static_cast<size_t>(size));
  if (read_up_to(file, bytes, path) < bytes.size()) {
    throw DataError(
        path,
        "was truncated while it was read. Try again when no other program "
        "writes to it.");
  }
  return bytes;
}

void for_each_image(
    int64_t count,
    const std::function<void(int64_t index)>& action,
    const char* task,
    const Sink& given_sink,
    int64_t workers) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Sink sink = given_sink.or_terminal();
  std::atomic<int64_t> next = 0, done = 0;
  std::atomic<bool> stop = false;
  std::exception_ptr error;
  std::mutex error_mutex, line_mutex;
  Clock::time_point last_line = begin;
  // Draws the progress line a few times a second.
  const auto show = [&](int64_t finished) {
    const std::unique_lock lock(line_mutex, std::try_to_lock);
    if (!lock) return;
    const Clock::time_point now = Clock::now();
    const bool is_due = now - last_line >= std::chrono::milliseconds(200);
    if (!is_due && finished != count) return;
    last_line = now;
    const double seconds = std::chrono::duration<double>(now - begin).count();
    sink->progress(
        {.batch = finished,
         .batches = count,
         .smooth_loss = std::numeric_limits<double>::quiet_NaN(),
         .seconds = seconds,
         .eta_seconds = seconds * static_cast<double>(count - finished) /
                        static_cast<double>(finished),
         .task = task});
  };
  const auto work = [&] {
    for (int64_t index = next++; index < count && !stop; index = next++) {
      try {
        action(index);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        stop = true;
      }
      show(++done);
    }
  };
  {
    const int64_t cores =
        std::max<int64_t>(1, std::thread::hardware_concurrency());
    const int64_t threads = std::min(workers > 0 ? workers : cores, count);
    std::vector<std::jthread> pool;
    for (int64_t i = 1; i < threads; ++i) pool.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tern
