// %% [markdown]
// # A stream of images
//
// An iterable dataset over tar files, based on "Building efficient custom data
// loaders" in the tutorial Effective PyTorch. In the tutorial each worker must
// read its own part of the stream; otherwise every image would be returned once
// per worker. Here only one worker at a time reads the stream while all of them
// decode in parallel, so the stream does not have to be divided.

// %%
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "../options.h"
#include "../support/synthetic_digits.h"

namespace fs = std::filesystem;

constexpr tern::ImageSize kSize = 64;

// %% [markdown]
// ## The stream

// %%
// Yields the encoded images of tar files with their classes. Opens each file,
// and downloads it first if it is a URL, only after the previous one has ended.
class TarImages final : public tern::StreamDataset {
 public:
  explicit TarImages(std::vector<std::string> tars) : tars_(std::move(tars)) {}

  std::unique_ptr<Pass> pass(const tern::BatchContext&) const override {
    return std::make_unique<OnePass>(tars_);
  }

 private:
  class OnePass final : public Pass {
   public:
    explicit OnePass(std::vector<std::string> tars) : tars_(std::move(tars)) {}

    std::optional<tern::Batch> next() override {
      if (!find_next()) return std::nullopt;
      const tern::TarSample sample = tar_->sample(place_++);
      return tern::Batch{{sample.tensor("png")}, {sample.tensor("cls")}};
    }

    // Lets training resume in the middle of an epoch without reading the images
    // before it.
    bool skip() override { return find_next() && ++place_ > 0; }

   private:
    bool find_next() {
      while (!tar_ || place_ == tar_->size()) {
        if (opened_ == tars_.size()) return false;
        tar_ = tern::TarShards::open({tars_[opened_++]});
        place_ = 0;
      }
      return true;
    }

    std::vector<std::string> tars_;
    std::shared_ptr<const tern::TarShards> tar_;
    size_t opened_ = 0;
    int64_t place_ = 0;
  };

  std::vector<std::string> tars_;
};

// %% [markdown]
// ## Decoding a sample

// %%
// Several workers call this concurrently.
tern::Batch
decode(const tern::Batch& sample, const tern::BatchContext&, tern::SampleRng) {
  const torch::Tensor& bytes = sample.inputs[0];
  const torch::Tensor image =
      torch::empty({1, kSize.height, kSize.width, 3}, torch::kByte);
  tern::EncodedImage(
      {bytes.const_data_ptr<uint8_t>(), static_cast<size_t>(bytes.numel())},
      "an image of the stream")
      .decode(kSize, image.data_ptr<uint8_t>());
  return {{image}, sample.targets};
}

// Returns all images of one epoch, in order.
torch::Tensor read_all(
    const std::shared_ptr<const tern::Dataset>& images,
    int64_t workers) {
  tern::DataLoader loader(images, {.batch_size = 32, .workers = workers});
  tern::Tensors batches;
  const auto start = std::chrono::steady_clock::now();
  for (const tern::Batch& batch : loader) {
    batches.push_back(batch.inputs[0].clone());
  }
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  fmt::print(
      "{}: {:>6} images, {:>6.0f} a second\n",
      tern::counted(workers, "worker"),
      images->size(),
      static_cast<double>(images->size()) / time.count());
  return torch::cat(batches);
}

// %%
int main(int argc, char** argv) try {
  std::string folder;
  tern::examples::Options app("Trains on a stream of images from tar files");
  app.add_option(
      "--data",
      folder,
      "folder of CLASS/*.png; empty: MNIST's sample");
  app.read(argc, argv);
  if (folder.empty()) {
    folder =
        tern::examples::mnist_or_digits(tern::urls::mnist_sample) / "valid";
  }

  // %% [markdown]
  // ## A tar file of images

  // %%
  const fs::path out = "tar_stream";
  fs::remove_all(out);
  const auto written = tern::shard_images(folder, out);
  const std::vector<std::string> tars(
      written.shards.begin(),
      written.shards.end());

  // %% [markdown]
  // ## The same images for any number of workers

  // %%
  const auto stream = std::make_shared<TarImages>(tars);
  const auto images =
      std::make_shared<tern::StreamEpochs>(stream, written.images, decode);
  const torch::Tensor expected = read_all(images, 0);
  const bool is_same = torch::equal(read_all(images, 1), expected) &&
                       torch::equal(read_all(images, 2), expected);
  fmt::print("{}\n", is_same ? "They are the same." : "They differ.");

  // %% [markdown]
  // ## Training on the stream
  //
  // The sampler shuffles the stream in a buffer of 1000 images.

  // %%
  tern::seed_everything(0);
  auto data = tern::DataBunch::create(
      images,
      images,
      {.sampler = std::make_shared<tern::BufferedSampler>(
           std::vector<int64_t>{written.images},
           1000)});
  data.classes = written.classes;
  data.batch_transforms = {
      tern::normalize({0.5, 0.5, 0.5}, {0.25, 0.25, 0.25})};
  const auto classes = static_cast<int64_t>(written.classes.size());
  auto learn = tern::Learner(
      data,
      tern::simple_cnn({3, 16, 16, classes}),
      {.metrics = {tern::accuracy()}});
  learn.fit_one_cycle(8, {.max_lr = 1e-2});
  const double accuracy = learn.validate()["accuracy"];
  fmt::print("accuracy {:.3f} on the images that it saw\n", accuracy);
  return is_same && accuracy > 0.9 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
