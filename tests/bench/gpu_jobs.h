#pragma once

// What the jobs of gpu_timed share.

#include <cstdint>
#include <map>
#include <string>

#include <torch/cuda.h>
#include <torch/types.h>

#include "tern/vision/models/cnn/resnet.h"

namespace tern::bench {

using Numbers = std::map<std::string, double>;

struct Arguments {
  std::string job, precision = "fp32", json;
  std::string data, picture;  // safetensors: what to learn, what was learnt
  torch::Device device = torch::kCUDA;
  int64_t steps = 0;  // 0: 20, or 1 where sizes are small
  int64_t seed = 1;
  bool graph = false;
  bool with_fp32 = false;  // also measures the same job in fp32
  /// A CPU only rehearses a job.
  bool is_small() const { return device.is_cpu(); }
  int64_t warm_up() const { return is_small() ? 1 : 5; }  // steps
};

inline void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

// ---- gpu_training.cpp ----

/// With the Learner's own optimizer, the fused AdamW; 256 images of 224 px.
Numbers resnet(const Arguments& arguments, ResNetShape shape);
/// Nets for digits, whose steps are launches rather than work.
Numbers mnist_cnn(const Arguments& arguments);
Numbers mlp(const Arguments& arguments);
/// The net and the picture of examples/checkerboard.cpp.
Numbers checkerboard(const Arguments& arguments);
Numbers matting_base(const Arguments& arguments);
Numbers matting_refine(const Arguments& arguments);
/// Learns a classifier from a file of decoded images: `images` and
/// `valid_images` [N, H, W, C] kByte, `labels` and `valid_labels` [N] kLong.
/// \return The accuracy, and the loss scale at each tenth of the way.
Numbers converge(const Arguments& arguments);

}  // namespace tern::bench
