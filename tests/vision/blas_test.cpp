#include "tern/tools/blas.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/vision/decode/decode.h"

namespace tern::blas_test {
namespace {

// Links OpenCV, and with it a reference BLAS, as every program of tern::vision.
TEST(Blas, IsLibTorchsOwnBesideOpenCV) {
  ASSERT_NE(reinterpret_cast<void*>(&read_image), nullptr);
  const std::string library = tools::blas_library();
  EXPECT_TRUE(tools::is_libtorchs(library))
      << "sgemm_ comes from " << library
      << "; name LibTorch before OpenCV when this program is linked";
}

}  // namespace
}  // namespace tern::blas_test
