#include "tern/tools/blas.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/vision/decode/decode.h"

namespace tern::blas_test {
namespace {

// Links OpenCV, and with it a reference BLAS, as every program of tern::vision.
TEST(Blas, IsLibTorchsOwnBesideOpenCV) {
  ASSERT_NE(reinterpret_cast<void*>(&read_image), nullptr);
  const std::string library = tools::blas_library();
  EXPECT_EQ(
      std::filesystem::path(library).filename().string(),
      "libtorch_cpu.so")
      << "sgemm_ comes from " << library
      << "; name LibTorch before OpenCV when this program is linked";
}

}  // namespace
}  // namespace tern::blas_test
