// After "Building efficient custom data loaders" of the tutorial Effective
// PyTorch: an iterable data set over a tar file. Each lane of the loader reads
// the images that are its own; without that division every image would come
// once for each lane, which the tutorial warns of and this program shows.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "../notebook.h"
#include "../options.h"
#include "../support/synthetic_digits.h"

namespace fs = std::filesystem;

constexpr tern::ImageSize kSize = 128;
using Shards = std::shared_ptr<const tern::TarShards>;

// The images of a tar file, one after the other; the target is their place.
class TarPictures final : public tern::StreamDataset {
 public:
  TarPictures(const std::string& tar, bool divides)
      : shards_(tern::TarShards::open({tar})), divides_(divides) {}

  std::unique_ptr<Pass> pass(const tern::StreamContext& c) const override {
    return divides_ ? std::make_unique<Part>(shards_, c.lane, c.lanes)
                    : std::make_unique<Part>(shards_, 0, 1);
  }

 private:
  // Every `step`th image.
  class Part final : public Pass {
   public:
    Part(Shards shards, int64_t first, int64_t step)
        : shards_(std::move(shards)), next_(first), step_(step) {}

    std::optional<tern::Batch> next() override {
      if (next_ >= shards_->size()) return std::nullopt;
      const tern::TarSample sample = shards_->sample(next_);
      const auto bytes = sample.bytes("png");
      const torch::Tensor image =
          torch::empty({1, kSize.height, kSize.width, 3}, torch::kByte);
      tern::EncodedImage(bytes, sample.describe())
          .decode(kSize, image.data_ptr<uint8_t>());
      const torch::Tensor place = torch::full({1}, next_, torch::kLong);
      skip();
      return tern::Batch{{image}, {place}};
    }

    // Lets the loader begin in the middle of an epoch without decoding.
    bool skip() override {
      const bool is_there = next_ < shards_->size();
      next_ += step_;
      return is_there;
    }

   private:
    Shards shards_;
    int64_t next_, step_;
  };

  Shards shards_;
  bool divides_;
};

// The places of the images in the order of one epoch.
std::vector<int64_t> read_all(
    const std::shared_ptr<TarPictures>& pictures,
    int64_t workers) {
  tern::StreamLoader loader(
      pictures,
      {.batch_size = 32, .lanes = 2, .workers = workers});
  std::vector<int64_t> places;
  const auto start = std::chrono::steady_clock::now();
  for (const tern::Batch& batch : loader) {
    const torch::Tensor& target = batch.targets[0];
    const auto* begin = target.const_data_ptr<int64_t>();
    places.insert(places.end(), begin, begin + target.numel());
  }
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  fmt::print(
      "{} workers: {:>6} images, {:>6.0f} a second\n",
      workers,
      places.size(),
      static_cast<double>(places.size()) / time.count());
  return places;
}

int main(int argc, char** argv) try {
  std::string folder;
  tern::examples::Options app("How fast a tar file of images is read");
  app.add_option("--data", folder, "CLASS/*.png; without it MNIST's sample");
  app.read(argc, argv);
  if (folder.empty()) {
    folder =
        tern::examples::mnist_or_digits(tern::urls::mnist_sample) / "valid";
  }
  tern::examples::Notebook note("A stream of images over several workers");
  note.text("# The data set");
  note.definition("TarPictures");
  note.text("# How it is read");
  note.definition("read_all");
  note.text("# A tar of images");
  const fs::path out = "tar_stream";
  fs::remove_all(out);
  const auto written = tern::shard_images(folder, out);
  const std::string tar = written.shards.at(0).string();

  note.text("# Divided");
  fmt::print("Every lane reads the images that are its own:\n");
  const auto divided = std::make_shared<TarPictures>(tar, true);
  const auto once = read_all(divided, 0);
  const bool is_same =
      read_all(divided, 1) == once && read_all(divided, 2) == once;
  note.text("# Not divided");
  fmt::print("Every lane reads all of them:\n");
  const auto twice = read_all(std::make_shared<TarPictures>(tar, false), 2);

  auto sorted = once;
  std::ranges::sort(sorted);
  const bool comes_once = std::ranges::adjacent_find(sorted) == sorted.end() &&
                          static_cast<int64_t>(once.size()) == written.images;
  const bool holds = is_same && comes_once && twice.size() == 2 * once.size();
  fmt::print(
      "{}\n",
      holds ? "Divided, each comes once, in an order that no number of workers "
              "changes; undivided, twice."
            : "That is not so: an image is lost, comes again or moves.");
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
