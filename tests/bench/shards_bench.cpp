// Tar shards on a warm cache: reading their bytes, in GB/s, and batches of
// photos compared with the same photos from a folder, decoded by two workers.
// `TERN_CLOTHING` names a folder CLASS/*.jpg; without it, random photos are
// generated. Exit code 1 if a goal is missed.
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/data/formats/archives/tar_write.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/shards/tar_shards.h"
#include "tern/tests/bench/measure.h"
#include "tern/vision/datasets/shard_images.h"
#include "tern/vision/image_data_bunch.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/get_transforms.h"

namespace {

using namespace tern;  // NOLINT: a program
namespace fs = std::filesystem;

// About the size of a photo of 400 x 533: 26 kB.
void make_photos(const fs::path& folder) {
  cv::RNG rng(1);
  for (int i = 0; i < 512; ++i) {
    cv::Mat coarse(67, 50, CV_8UC3), image;
    rng.fill(coarse, cv::RNG::UNIFORM, 0, 256);
    cv::resize(coarse, image, {400, 533}, 0, 0, cv::INTER_CUBIC);
    const fs::path kind = folder / (i % 2 == 0 ? "a" : "b");
    make_folders(kind);
    cv::imwrite(
        (kind / fmt::format("{}.jpg", i)).string(),
        image,
        {cv::IMWRITE_JPEG_QUALITY, 85});
  }
}

void load(const DataBunch& data) {
  auto batches = data.train->epoch(0);
  while (batches.next()) {
  }
}

// Reads all bytes of all samples in order, into reused memory.
int64_t read_bytes(const TarShards& shards) {
  static std::vector<uint8_t> buffer(1 << 20);
  int64_t total = 0;
  for (int64_t i = 0; i < shards.size(); ++i) {
    const TarSample sample = shards.sample(i);
    for (const TarMember& member : sample.members()) {
      buffer.resize(std::max<size_t>(buffer.size(), member.size));
      sample.read(member, std::span(buffer).first(member.size));
      total += static_cast<int64_t>(member.size);
    }
  }
  return total;
}

bool measure_reading(const fs::path& scratch) {
  constexpr int kSamples = 2000, kBytes = 100'000;
  TarWriter tar(scratch / "bytes.tar");
  const std::string bytes(kBytes, 'x');
  for (int i = 0; i < kSamples; ++i) {
    tar.add(fmt::format("{:06}.jpg", i), bytes);
    tar.add(fmt::format("{:06}.cls", i), "1");
  }
  tar.finish();
  const auto shards = TarShards::open({(scratch / "bytes.tar").string()});
  std::vector<double> speeds;
  for (int round = 0; round < 11; ++round) {
    int64_t total = 0;
    const double time = bench::seconds([&] { total = read_bytes(*shards); });
    speeds.push_back(static_cast<double>(total) / time / 1e9);
  }
  const double speed = bench::median(speeds);
  return bench::report(
      "tar bytes, 100 KB a sample",
      fmt::format("{:.2f} GB/s", speed),
      "1 GB/s",
      speed,
      1);
}

bool measure_loading(const fs::path& scratch) {
  const char* given = std::getenv("TERN_CLOTHING");
  const fs::path folder = given ? fs::path(given) : scratch / "photos";
  if (given == nullptr) make_photos(folder);
  shard_images(folder, scratch / "shards", {.max_samples = 256});
  const ImageDataBunchOptions options = {
      .valid_pct = 0.01,
      .size = ImageSize{128, 128},
      .transforms = {{random_resized_crop(), flip_lr()}, {center_crop()}},
      .workers = 2};
  std::vector<std::string> shards;
  for (const auto& entry : fs::directory_iterator(scratch / "shards")) {
    if (entry.path().extension() == ".tar") {
      shards.push_back(entry.path().string());
    }
  }
  const DataBunch from_folder = ImageDataBunch::from_folder(folder, options);
  const DataBunch from_tar = ImageDataBunch::from_tar(shards, {}, {}, options);
  const bench::Measured all = bench::measure(
      [&] { load(from_tar); },
      [&] { load(from_folder); },
      /*rounds=*/15);
  return bench::report_times("epoch, shards : folder", all, 0.95);
}

}  // namespace

int main(int argc, char** argv) {
  bench::read_arguments(argc, argv);
  const fs::path scratch =
      fs::temp_directory_path() / fmt::format("tern-shards-{}", getpid());
  make_folders(scratch);
  const bool reads = measure_reading(scratch);
  const bool loads = measure_loading(scratch);
  fs::remove_all(scratch);
  return reads && loads ? 0 : 1;
}
