#pragma once

#include <memory>

#include <torch/types.h>

namespace c10 {
class DebugInfoGuard;
}

namespace tern {

/// Measures the memory that LibTorch's allocator provides for tensors, in
/// bytes.
///
///   tern::MemoryMeter meter(learn.data().device);
///   learn.fit(1);
///   meter.peak_bytes();
///
/// On CUDA the meter reports the caching allocator's numbers for the whole
/// device, including earlier tensors. On a CPU the meter counts what this
/// thread allocates and frees during the meter's lifetime, including backward;
/// create it before the model to include the model. Use only one meter at a
/// time: a second CPU meter of the same thread hides allocations from the
/// first, and every CUDA meter resets the device's peak.
class MemoryMeter {
 public:
  /// \throws c10::ValueError for a device that is neither CPU nor CUDA.
  explicit MemoryMeter(torch::Device device);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  int64_t live_bytes() const;
  /// Peak since the meter was created or since `reset_peak`.
  int64_t peak_bytes() const;
  void reset_peak();

 private:
  class CpuCounter;

  torch::Device device_;
  std::shared_ptr<CpuCounter> cpu_;
  std::unique_ptr<c10::DebugInfoGuard> guard_;
};

}  // namespace tern
