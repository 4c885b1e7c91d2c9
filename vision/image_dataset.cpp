#include "tern/vision/image_dataset.h"

#include <utility>

#include <fmt/format.h>

#include "tern/data/formats/error.h"
#include "tern/vision/image_file.h"
#include "tern/vision/scratch_buffer.h"

namespace tern {
namespace {

/// The file's bytes, in memory that the thread uses again.
std::span<const uint8_t> read_into_thread_buffer(const std::string& path) {
  static thread_local ScratchBuffer buffer;
  return read_image_file(path, buffer);
}

}  // namespace

ImageDataset::ImageDataset(
    std::vector<std::string> paths,
    std::vector<int64_t> labels,
    const ImageDatasetOptions& options)
    : paths_(std::move(paths)), labels_(std::move(labels)), options_(options) {
  TORCH_CHECK_VALUE(
      paths_.size() == labels_.size(),
      fmt::format(
          "[ImageDataset] there are {} paths and {} labels; expected one label "
          "for each path.",
          paths_.size(),
          labels_.size()));
  if (options_.size) {
    size_ = *options_.size;
    TORCH_CHECK_VALUE(
        size_.height > 0 && size_.width > 0 &&
            size_.height <= kMaxPixels / size_.width,
        fmt::format(
            "[ImageDataset] size is {} x {}; expected a height and a width of "
            "at least 1 and at most {} pixels in all.",
            size_.height,
            size_.width,
            kMaxPixels));
  } else if (!paths_.empty()) {
    const std::string& first = paths_.front();
    size_ = EncodedImage(read_into_thread_buffer(first), first, options_.decode)
                .size();
  }
}

Batch ImageDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t channels = options_.decode.channels;
  torch::Tensor images =
      context.empty({count, size_.height, size_.width, channels}, torch::kByte);
  torch::Tensor targets = context.empty({count}, torch::kLong);
  uint8_t* slot = images.mutable_data_ptr<uint8_t>();
  int64_t* target = targets.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    const std::string& path = paths_.at(index);
    const EncodedImage image(
        read_into_thread_buffer(path),
        path,
        options_.decode);
    if (!options_.size && image.size() != size_) {
      throw DataError(
          path,
          fmt::format(
              "is {} x {} pixels (height x width), but {} is {} x {}, and "
              "images of one batch must be of equal size. Set `size` to resize "
              "them all.",
              image.size().height,
              image.size().width,
              paths_.front(),
              size_.height,
              size_.width));
    }
    image.decode(size_, slot);
    slot += size_.height * size_.width * channels;
    *target++ = labels_[index];
  }
  return {{images}, {targets}};
}

std::string ImageDataset::describe(int64_t index) const {
  return paths_.at(index);
}

}  // namespace tern
