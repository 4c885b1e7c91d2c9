#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tern {

/// Memory that a thread uses again for every image, so that decoding allocates
/// nothing in steady state. A large buffer is given back when a much smaller
/// one is asked for: one huge image does not hold its memory for ever.
class ScratchBuffer {
 public:
  /// At least `size` uninitialised bytes, good until the next call.
  uint8_t* get(size_t size) {
    constexpr size_t kKept = size_t{64} << 20;
    if (size > size_ || (size_ > kKept && size < size_ / 4)) {
      bytes_.reset();
      size_ = 0;
      bytes_.reset(new uint8_t[size]);
      size_ = size;
    }
    return bytes_.get();
  }

  const uint8_t* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
};

}  // namespace tern
