// From image files to a batch, on one thread: compared with only decoding the
// same files, from a pack, and a whole augmented batch compared with LibTorch's
// tensor operations. `TERN_CLOTHING` names a folder CLASS/*.jpg; without it,
// photos are generated. Exit code 1 if a goal is missed.
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/file_io.h"
#include "tern/tests/bench/measure.h"
#include "tern/tests/vision/transforms/render_reference.h"
#include "tern/vision/datasets/image_folder.h"
#include "tern/vision/datasets/presize.h"
#include "tern/vision/decode/decoders.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/decode/sample_pixels.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"

namespace {

using namespace tern;  // NOLINT: a program
namespace fs = std::filesystem;

constexpr int64_t kBatch = 64, kImages = 512;
constexpr ImageSize kSize{128, 128};

/// About the size of a photo of 400 x 533: 26 kB.
void make_photos(const fs::path& folder) {
  make_folders(folder);
  cv::RNG rng(1);
  for (int i = 0; i < 64; ++i) {
    cv::Mat coarse(67, 50, CV_8UC3), image;
    rng.fill(coarse, cv::RNG::UNIFORM, 0, 256);
    cv::resize(coarse, image, {400, 533}, 0, 0, cv::INTER_CUBIC);
    cv::imwrite(
        (folder / fmt::format("{}.jpg", i)).string(),
        image,
        {cv::IMWRITE_JPEG_QUALITY, 85});
  }
}

std::vector<std::string> photos(const fs::path& scratch) {
  const char* folder = std::getenv("TERN_CLOTHING");
  if (folder == nullptr) {
    make_photos(scratch / "photos");
  }
  const auto found =
      find_image_files(folder ? fs::path(folder) : scratch / "photos");
  std::vector<std::string> paths;
  for (int64_t i = 0; i < kImages; ++i) {
    paths.push_back(found[static_cast<size_t>(i) * 7919 % found.size()]);
  }
  return paths;
}

/// Decodes each file completely, at the scale that its random crop allows.
void decode_bare(const ImageDataset& images, const BatchContext& context) {
  static ScratchBuffer file, pixels;
  SamplePlan plan;
  for (int64_t i = 0; i < images.size(); ++i) {
    const std::string& path = images.paths()[static_cast<size_t>(i)];
    const auto bytes = read_image_file(path, file);
    const EncodedImage image(bytes, path);
    const ImageSize size = image.stored_size();
    SampleRng rng = context.rng(i);
    make_plan(images.options().transforms.train, {}, size, kSize, rng, plan);
    const ImageSize factors = shrink_factors(plan.warp().matrix, kSize);
    const auto denominator =
        static_cast<int>(std::bit_floor(static_cast<uint64_t>(
            std::min({factors.height, factors.width, int64_t{8}}))));
    const ImageSize scaled = jpeg_scaled_size(size, denominator);
    decode_jpeg_region(
        image,
        denominator,
        {0, 0, scaled.height, scaled.width},
        pixels);
  }
}

void make_batches(const ImageDataset& images, const BatchContext& context) {
  std::vector<int64_t> indices(kBatch);
  for (int64_t first = 0; first < images.size(); first += kBatch) {
    std::iota(indices.begin(), indices.end(), first);
    images.get_batch(indices, context);
  }
}

std::string rate(double seconds) {
  return fmt::format("{:.0f}/s", static_cast<double>(kImages) / seconds);
}

/// Reads each file at the smallest size that covers the batch's, as evaluation
/// does.
void resize_files(const ImageDataset& images, bool antialias) {
  static ScratchBuffer file;
  std::vector<uint8_t> pixels(3 * kSize.height * kSize.width);
  for (const std::string& path : images.paths()) {
    const EncodedImage image(read_image_file(path, file), path);
    const auto [down, across] = pixels_per_pixel(image.size(), kSize);
    const double least = std::min(down, across);
    image.sample(
        {.matrix = Matrix3::scaling(least, least), .antialias = antialias},
        kSize,
        pixels.data());
  }
}

void resize_pixels(const torch::Tensor& image, bool antialias) {
  std::vector<uint8_t> pixels(3 * kSize.height * kSize.width);
  const auto* data = image.const_data_ptr<uint8_t>();
  const ImageSize size = {image.size(0), image.size(1)};
  const auto [down, across] = pixels_per_pixel(size, kSize);
  for (int i = 0; i < 100; ++i) {
    sample_pixels(
        view_of(data, size, 3, data + image.numel()),
        {.matrix = Matrix3::scaling(across, down), .antialias = antialias},
        kSize,
        pixels.data());
  }
}

/// Cost of Pillow's antialiasing compared with averaging by integer factors.
bool antialiasing(const ImageDataset& images) {
  const auto files = bench::measure(
      [&] { resize_files(images, true); },
      [&] { resize_files(images, false); },
      7);
  bool good = bench::report(
      "resize_128_antialiased_vs_averaged",
      rate(files.ours),
      rate(files.theirs),
      files.ratio,
      0.6);
  const torch::Tensor image = torch::randint(256, {533, 400, 3}, torch::kByte);
  const auto pixels = bench::measure(
      [&] { resize_pixels(image, true); },
      [&] { resize_pixels(image, false); },
      7);
  good &= bench::report_times(
      "resize_pixels_128_antialiased_vs_averaged",
      pixels,
      1);
  return good;
}

bool augmentation() {
  const torch::Tensor images =
      torch::randint(256, {kBatch, 224, 224, 3}, torch::kByte);
  std::vector<SamplePlan> plans(kBatch);
  for (size_t i = 0; i < plans.size(); ++i) {
    SampleRng rng(1, 0, static_cast<int64_t>(i));
    make_plan(
        get_transforms().train,
        {.resize = ResizeMethod::none},
        {224, 224},
        {224, 224},
        rng,
        plans[i]);
  }
  const auto m = bench::measure(
      [&] { render_on_cpu(images, plans); },
      [&] { testing_support::render_with_tensors(images, plans); },
      11);
  return bench::report_times("augment_64_at_224_vs_tensors", m, 1);
}

}  // namespace

int main(int argc, char** argv) {
  bench::read_arguments(argc, argv);
  const fs::path scratch =
      fs::temp_directory_path() / fmt::format("tern-vision-bench-{}", getpid());
  const ImageDataset images(
      photos(scratch),
      std::vector<int64_t>(kImages),
      {.size = kSize, .transforms = {{random_resized_crop(), flip_lr()}, {}}});
  BufferPool pool;
  BatchContext context{.seed = 1, .training = true, .buffers = &pool};

  bool good = true;
  const auto m = bench::measure(
      [&] { make_batches(images, context); },
      [&] { decode_bare(images, context); },
      7);
  good &= bench::report(
      "crop_flip_128_vs_bare_decode",
      rate(m.ours),
      rate(m.theirs),
      m.ratio,
      0.85);

  const auto packed =
      images.with_pack(presize_images(images, scratch / "a.pack", {160, 160}));
  make_batches(*packed, context);
  const double seconds =
      bench::seconds([&] { make_batches(*packed, context); });
  // The goal is for two threads.
  constexpr double kGoal = 10000;
  const double per_second = static_cast<double>(kImages) / seconds;
  good &= bench::report(
      "crop_flip_128_from_pack_a_thread",
      rate(seconds),
      fmt::format("{}/s", kGoal),
      per_second / kGoal,
      1);
  good &= antialiasing(images);
  good &= augmentation();
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  return good ? 0 : 1;
}
