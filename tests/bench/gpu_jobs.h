#pragma once

// What the jobs of gpu_timed share.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <torch/cuda.h>
#include <torch/types.h>

#include "tern/learner/model.h"

namespace tern::bench {

using Numbers = std::map<std::string, double>;

struct Arguments {
  std::string job, precision = "fp32", json;
  std::string data, picture;  // safetensors: what to learn, what was learnt
  torch::Device device = torch::kCUDA;
  int64_t steps = 20, seed = 1;
  bool graph = false;
  bool is_small() const { return device.is_cpu(); }
};

constexpr int64_t kWarmUp = 5;

inline void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

using MakeModel = std::function<Model()>;

// ---- gpu_training.cpp ----

/// With the Learner's own optimizer, the fused AdamW; 256 images of 224 px.
Numbers resnet(const Arguments& arguments, const MakeModel& make);
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
