#include <cmath>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>
#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/vision/interpret/image_grid.h"

namespace tern::save_image_test {
namespace {

// Reads a file with OpenCV as [H, W, C] in RGB.
torch::Tensor read(const std::filesystem::path& file) {
  const cv::Mat image = cv::imread(file.string(), cv::IMREAD_UNCHANGED);
  const auto pixels = torch::from_blob(
                          image.data,
                          {image.rows, image.cols, image.channels()},
                          torch::kByte)
                          .clone();
  return image.channels() == 3 ? pixels.flip({2}) : pixels;
}

TEST(SaveImage, WritesBytesUnchanged) {
  const TempFolder temp;
  const auto rgb = torch::randint(256, {5, 7, 3}, torch::kByte);
  save_image(temp / "rgb.png", rgb);
  EXPECT_TRUE(torch::equal(read(temp / "rgb.png"), rgb));
  const auto gray = torch::randint(256, {5, 7}, torch::kByte);
  save_image(temp / "gray.png", gray);
  EXPECT_TRUE(torch::equal(read(temp / "gray.png").squeeze(2), gray));
}

TEST(SaveImage, ClampsFloatsToZeroToOne) {
  const TempFolder temp;
  const auto image = torch::tensor({{{-1.f, 0.f}, {0.5f, 1.f}}})
                         .expand({3, 2, 2})
                         .requires_grad_();
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kDouble}) {
    save_image(temp / "float.png", image.to(dtype));
    EXPECT_TRUE(torch::equal(
        read(temp / "float.png").select(2, 0),
        torch::tensor({{0, 0}, {128, 255}}, torch::kByte)));
  }
  save_image(temp / "plane.png", torch::ones({4, 3}));
  EXPECT_EQ(read(temp / "plane.png").size(1), 3);
}

TEST(SaveImage, RejectsInvalidImages) {
  const TempFolder temp;
  for (const auto& image :
       {torch::Tensor(),
        torch::ones({2, 4, 4}),
        torch::ones({4, 4}, torch::kLong),
        torch::ones({1, 3, 4, 4}),
        torch::ones({0, 4})}) {
    expect_error<c10::ValueError>(
        [&] { save_image(temp / "no.png", image); },
        {"no.png", "expected [H, W]"});
  }
  expect_error<c10::ValueError>(
      [&] {
        save_image(temp / "a.jpg", torch::ones({2, 2}));
      },
      {"a.jpg", "ends in .png"});
  expect_error<IoError>(
      [&] {
        save_image(temp / "none" / "a.png", torch::ones({2, 2}));
      },
      {"none/a.png"});
}

}  // namespace
}  // namespace tern::save_image_test
