#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/types.h>

namespace tern {

using Tensors = std::vector<torch::Tensor>;

/// One batch of samples.
struct Batch {
  /// inputs[0]: [N, ...]. Images leave the loader as [N, H, W, C] kByte or as
  /// [N, C, H, W] kFloat.
  Tensors inputs;
  Tensors targets;
  /// Rows that the dataset left out, in ascending order, such as unreadable
  /// images in evaluation. N does not count them.
  std::vector<int64_t> left_out = {};
  /// For each row, the index of its sample in the dataset. Set by a DataLoader;
  /// empty in other batches.
  std::vector<int64_t> indices = {};

  /// Returns N, the number of samples; 0 for a batch without inputs.
  int64_t size() const;

  /// Returns the batch on `device`. With `non_blocking`, a copy from pinned
  /// memory to a GPU is asynchronous.
  Batch to(torch::Device device, bool non_blocking = true) const;
};

/// Returns `target` in the shape of `pred`, if they differ only in dimensions
/// of size 1.
/// \param asker  Name of the caller, for errors.
/// \throws c10::ValueError if the shapes differ in any other way.
torch::Tensor in_shape_of(
    const std::string& asker,
    const torch::Tensor& pred,
    const torch::Tensor& target);

/// Copies batches to a GPU on its own stream, so that a copy overlaps with the
/// computation on the previous batch. Needs page-locked memory, which the
/// DataLoader provides. GPU memory contains one additional batch for each step
/// that the host is ahead of the GPU.
class CopyStream {
 public:
  /// Returns the batch on `device`, the CPU or a CUDA device. Work that is
  /// queued on the device's current stream from now on waits for the copy; the
  /// host does not.
  Batch to(torch::Device device, const Batch& batch);

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace tern
