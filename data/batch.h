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
  /// The rows that a dataset was asked for and has left out, ascending: in
  /// evaluation, images that cannot be read, for one. N is smaller by as many.
  std::vector<int64_t> left_out = {};
  /// Of each row, the index of its sample in the dataset. A DataLoader writes
  /// them; empty in a batch from elsewhere.
  std::vector<int64_t> indices = {};

  /// N, the number of samples; 0 for a batch without inputs.
  int64_t size() const;

  /// Returns the batch on `device`. With `non_blocking`, a copy from pinned
  /// memory to a GPU is asynchronous.
  Batch to(torch::Device device, bool non_blocking = true) const;
};

/// `target` in the shape of `pred`, where they differ in dimensions of size 1.
/// \param asker  Its name, for errors.
/// \throws c10::ValueError if they differ in more.
torch::Tensor in_shape_of(
    const std::string& asker,
    const torch::Tensor& pred,
    const torch::Tensor& target);

/// Takes batches to a GPU on a stream of its own, so that they travel while
/// the GPU still computes with the batch before; from page-locked memory, as
/// the DataLoader makes it. There is memory on the GPU for as many batches as
/// the host is ahead.
class CopyStream {
 public:
  /// The batch on `device`, the CPU or a CUDA device. What is given to the
  /// device's current stream from now on waits for it there; the host does not.
  Batch to(torch::Device device, const Batch& batch);

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace tern
