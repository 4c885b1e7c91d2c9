#include "tern/learner/report/memory_meter.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Logging.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatType;

Stat cuda_bytes(torch::Device device) {
  return c10::getDeviceAllocator(device.type())
      ->getDeviceStats(std::max<c10::DeviceIndex>(device.index(), 0))
      .allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)];
}

}  // namespace

// LibTorch reports each allocation to its profiler; this class is registered in
// place of the profiler.
class MemoryMeter::CpuCounter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(
      void*,
      int64_t size,
      size_t,
      size_t,
      c10::Device device) override {
    if (!device.is_cpu()) return;
    live += size;
    peak = std::max<int64_t>(peak, live);
  }
  bool memoryProfilingEnabled() const override { return true; }

  // LibTorch would warn on stderr about freeing blocks from before the meter,
  // whose size it does not know.
  const int log_level = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
  ~CpuCounter() override { FLAGS_caffe2_log_level = log_level; }

  std::atomic<int64_t> live = 0, peak = 0;
};

MemoryMeter::MemoryMeter(torch::Device device) : device_(device) {
  TERN_CHECK_VALUE(
      device.is_cpu() || device.is_cuda(),
      "[MemoryMeter] the device is {}; expected CPU or CUDA.",
      device.str());
  if (device.is_cuda()) {
    at::globalContext().lazyInitDevice(device.type());
    reset_peak();
    return;
  }
  cpu_ = std::make_shared<CpuCounter>();
  guard_ = std::make_unique<c10::DebugInfoGuard>(
      c10::DebugInfoKind::PROFILER_STATE,
      cpu_);
}

MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::live_bytes() const {
  return cpu_ ? cpu_->live.load() : cuda_bytes(device_).current;
}

int64_t MemoryMeter::peak_bytes() const {
  return cpu_ ? cpu_->peak.load() : cuda_bytes(device_).peak;
}

void MemoryMeter::reset_peak() {
  if (cpu_) {
    cpu_->peak = cpu_->live.load();
  } else {
    c10::getDeviceAllocator(device_.type())
        ->resetPeakStats(std::max<c10::DeviceIndex>(device_.index(), 0));
  }
}

}  // namespace tern
