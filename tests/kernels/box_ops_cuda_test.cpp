#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/boxes/box_ops.h"
#include "tern/tests/support/gpu_test.h"

namespace tern::test::box_ops_cuda_test {
namespace {

class BoxOpsCudaTest : public GpuTest {};

TEST_F(BoxOpsCudaTest, NmsKeepsTheSameBoxesAsOnTheCpu) {
  torch::manual_seed(5);
  for (const int64_t count : {0, 1, 64, 65, 1000, 5000}) {
    for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf}) {
      const torch::Tensor corners = torch::rand({count, 2}) * 300;
      const torch::Tensor boxes =
          torch::cat({corners, corners + torch::rand({count, 2}) * 90}, 1)
              .to(type);
      // Some scores are equal.
      const torch::Tensor scores =
          (torch::rand({count}) * 500).round().to(type);
      const torch::Tensor classes = torch::randint(0, 4, {count});
      const torch::Tensor kept = batched_nms(
          boxes.to(torch::kCUDA),
          scores.to(torch::kCUDA),
          classes.to(torch::kCUDA),
          0.5);
      EXPECT_TRUE(kept.cpu().equal(batched_nms(boxes, scores, classes, 0.5)))
          << count;
      EXPECT_TRUE(nms(boxes.to(torch::kCUDA), scores.to(torch::kCUDA), 0.5)
                      .cpu()
                      .equal(nms(boxes, scores, 0.5)))
          << count;
    }
  }
}

}  // namespace
}  // namespace tern::test::box_ops_cuda_test
