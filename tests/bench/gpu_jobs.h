#pragma once

// Shared parts of the jobs of gpu_timed.

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
  std::string data, picture;  // safetensors: training data, learned image
  torch::Device device = torch::kCUDA;
  int64_t steps = 0;  // 0: 20, or 1 for small sizes
  int64_t seed = 1;
  bool graph = false;
  bool with_fp32 = false;  // also measures the same job in fp32
  /// A CPU is only for a rehearsal.
  bool is_small() const { return device.is_cpu(); }
  int64_t warm_up() const { return is_small() ? 1 : 5; }  // steps
};

inline void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

// ---- gpu_training.cpp ----

/// With the Learner's default optimizer, the fused AdamW; 256 images of 224 px.
Numbers resnet(const Arguments& arguments, ResNetShape shape);
/// Small nets for digits, whose steps are dominated by kernel launches.
Numbers mnist_cnn(const Arguments& arguments);
Numbers mlp(const Arguments& arguments);
/// The net and the image of examples/checkerboard.cpp.
Numbers checkerboard(const Arguments& arguments);
Numbers matting_base(const Arguments& arguments);
Numbers matting_refine(const Arguments& arguments);
/// Trains a classifier on a file of decoded images: `images` and `valid_images`
/// [N, H, W, C] kByte, `labels` and `valid_labels` [N] kLong. \return The
/// accuracy, and the loss scale at each tenth of the run.
Numbers converge(const Arguments& arguments);

}  // namespace tern::bench
