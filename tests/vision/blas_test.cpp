#include "tern/tools/blas.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/vision/decode/decode.h"

namespace tern::blas_test {
namespace {

// Links OpenCV, and with it a reference BLAS, like every program that uses
// tern::vision.
TEST(Blas, UsesLibTorchsBlasWhenLinkedWithOpenCV) {
  ASSERT_NE(reinterpret_cast<void*>(&read_image), nullptr);
  EXPECT_TRUE(tools::has_blas_of_libtorch())
      << "sgemm_ comes from " << tools::blas_library()
      << "; link LibTorch before OpenCV";
}

}  // namespace
}  // namespace tern::blas_test
