// %% [markdown]
// # Your own dataset
//
// A custom dataset over a directory of images, which the loader's workers read
// and decode in parallel. The program prints the images per second for 0, 1 and
// 2 workers, and checks that the batches are the same for each.

// %%
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "../options.h"
#include "../support/synthetic_digits.h"

constexpr tern::ImageSize kSize = 128;

// %% [markdown]
// ## The dataset

// %%
// All images below a folder, resized to kSize. The target is the image's index.
class Pictures final : public tern::Dataset {
 public:
  explicit Pictures(const std::filesystem::path& folder) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder)) {
      const std::string suffix = entry.path().extension().string();
      if (std::ranges::count(tern::image_suffixes(), suffix)) {
        paths_.push_back(entry.path().string());
      }
    }
    std::ranges::sort(paths_);  // directory iteration has no fixed order
  }
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }

  // Several workers call this concurrently, so it must not change a member.
  tern::Batch get_batch(
      c10::ArrayRef<int64_t> indices,
      const tern::BatchContext& context) const override {
    // Reuses the memory of an earlier batch; pinned if there is a GPU.
    const torch::Tensor images = context.empty(
        {static_cast<int64_t>(indices.size()), kSize.height, kSize.width, 3},
        torch::kByte);
    uint8_t* place = images.data_ptr<uint8_t>();
    tern::ScratchBuffer buffer;
    for (const int64_t index : indices) {
      const std::string& path = paths_[index];
      tern::EncodedImage(tern::read_image_file(path, buffer), path)
          .decode(kSize, place);
      place += kSize.height * kSize.width * 3;
    }
    return {{images}, {torch::tensor(indices)}};
  }
  // Error messages name this file if decoding fails.
  std::string describe(int64_t index) const override { return paths_[index]; }

 private:
  std::vector<std::string> paths_;
};

// %%
int main(int argc, char** argv) try {
  std::string data;
  int64_t epochs = 1;
  tern::examples::Options app("Measures how fast a folder of images is read");
  app.add_option("--data", data, "folder of images; empty: MNIST's sample");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.read(argc, argv);
  if (data.empty())
    data = tern::examples::mnist_or_digits(tern::urls::mnist_sample);

  // %% [markdown]
  // ## Images per second

  // %%
  const auto pictures = std::make_shared<Pictures>(data);
  fmt::print(
      "{} images below {}, resized to {} x {}; {} cores\n",
      pictures->size(),
      data,
      kSize.height,
      kSize.width,
      std::thread::hardware_concurrency());

  std::vector<int64_t> checksums;
  for (const int64_t workers : {0, 1, 2}) {
    tern::DataLoader loader(
        pictures,
        {.batch_size = 32, .shuffle = true, .workers = workers});
    int64_t images = 0, checksum = 0;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      for (const tern::Batch& batch : loader) {
        images += batch.size();
        // Multiplied by the image count, so that the order of the batches
        // matters too.
        checksum += images * (batch.inputs[0].sum().item<int64_t>() +
                              batch.targets[0][0].item<int64_t>());
      }
    }
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    fmt::print(
        "{}: {:>6.0f} images/s, checksum {}\n",
        tern::counted(workers, "worker"),
        static_cast<double>(images) / time.count(),
        checksum);
    checksums.push_back(checksum);
  }
  const bool holds = pictures->size() > 0 && checksums[0] == checksums[1] &&
                     checksums[0] == checksums[2];
  fmt::print(
      "{}\n",
      holds ? "Any number of workers gives the same batches."
            : "There are no images, or the batches differ.");
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
