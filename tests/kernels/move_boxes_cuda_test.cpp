#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/kernels/boxes/move_boxes.h"
#include "tern/tests/support/gpu_test.h"

namespace tern::move_boxes_cuda_test {
namespace {

class MoveBoxesCudaTest : public GpuTest {};

TEST_F(MoveBoxesCudaTest, EqualsTheCpu) {
  const int64_t images = 9, boxes = 700;
  std::vector<Matrix3> matrices;
  for (int i = 0; i < images; ++i) {
    matrices.push_back(
        Matrix3::translation(3.0 * i, -2) * Matrix3::rotation(0.2 * i) *
        Matrix3::scaling(0.9, 1.1));
    matrices.back().values[6] = 1e-3 * i;
  }
  const torch::Tensor corners = torch::rand({images, boxes, 2}) * 80;
  const torch::Tensor sizes = torch::rand({images, boxes, 2}) * 40 + 1;
  const torch::Tensor all = torch::cat({corners, corners + sizes}, 2);
  const torch::Tensor labels = torch::randint(-1, 5, {images, boxes});
  const torch::Tensor areas = sizes.prod(2);
  Tensors on_cpu, on_gpu;
  for (const bool cuda : {false, true}) {
    const auto put = [&](const torch::Tensor& tensor) {
      return cuda ? tensor.cuda() : tensor.clone();
    };
    Tensors& out = cuda ? on_gpu : on_cpu;
    out = {put(all), put(labels), put(areas), put(corners), put(labels > 0)};
    move_boxes_(out[0], out[1], out[2], matrices, 100, 100, 0.2);
    move_points_(out[3], out[4], matrices, 100, 100);
  }
  for (size_t i = 0; i < on_cpu.size(); ++i) {
    EXPECT_TRUE(torch::equal(on_cpu[i], on_gpu[i].cpu())) << i;
  }
}

}  // namespace
}  // namespace tern::move_boxes_cuda_test
