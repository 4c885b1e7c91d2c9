// Images in memory are stored as the bytes of a PNM file, so that the code that
// reads image files, packs and shards can read them too.
#include "tern/vision/datasets/images_in_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "tern/data/formats/sha256.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/decode/mat_pixels.h"

namespace tern {

namespace {

using Bytes = std::vector<uint8_t>;

/// Returns an image as the bytes of a PNM file.
/// \param pixels  Gray or RGB with 8 bits.
std::shared_ptr<const Bytes> as_pnm(const cv::Mat& pixels) {
  const bool is_gray = pixels.channels() == 1;
  const std::string header = fmt::format(
      "{}\n{} {}\n255\n",
      is_gray ? "P5" : "P6",
      pixels.cols,
      pixels.rows);
  const size_t row_bytes = pixels.cols * pixels.elemSize();
  auto bytes = std::make_shared<Bytes>(header.size() + pixels.rows * row_bytes);
  uint8_t* to = std::ranges::copy(header, bytes->data()).out;
  for (int y = 0; y < pixels.rows; ++y, to += row_bytes) {
    std::memcpy(to, pixels.ptr(y), row_bytes);
  }
  return bytes;
}

template <class Images, class Pixels>
ImageItems items_of(
    const Images& images,
    const std::vector<std::string>& names,
    const Pixels& pixels_of) {
  TERN_CHECK_VALUE(
      names.empty() || names.size() == images.size(),
      "[items_from_images] got {} images and {} names; expected one name per "
      "image, or none.",
      images.size(),
      names.size());
  std::unordered_set<std::string_view> different;
  for (const std::string& name : names) {
    TERN_CHECK_VALUE(
        different.insert(name).second,
        "[items_from_images] two images are named '{}'; expected distinct "
        "names, since a split keeps items of the same name together.",
        name);
  }
  ImageItems items;
  items.reserve(images.size());
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string where = fmt::format("items_from_images: image {}", i);
    ImageItem item{names.empty() ? fmt::format("image {}", i) : names[i]};
    item.bytes = as_pnm(pixels_of(images[i], where));
    items.push_back(std::move(item));
  }
  return items;
}

class ItemSource final : public ImageSource {
 public:
  explicit ItemSource(const ImageItems& items) {
    items_.reserve(items.size());
    for (const ImageItem& item : items) {
      items_.push_back({item.path, item.bytes});
    }
  }

  std::span<const uint8_t> read(int64_t index, ScratchBuffer& buffer)
      const override {
    const Item& item = items_.at(index);
    if (!item.bytes) return read_image_file(item.path, buffer);
    return *item.bytes;
  }

  // Hashes only the images in memory. Callers themselves compare files, by
  // path, size and modification time.
  std::string version() const override {
    std::call_once(has_version_, [&] {
      Sha256 hash;
      for (const Item& item : items_) {
        if (!item.bytes) continue;
        const std::string size = fmt::format("{} ", item.bytes->size());
        hash.update(
            {reinterpret_cast<const uint8_t*>(size.data()), size.size()});
        hash.update(*item.bytes);
      }
      version_ = hash.hex_digest();
    });
    return version_;
  }

 private:
  struct Item {
    std::string path;
    std::shared_ptr<const Bytes> bytes;
  };

  std::vector<Item> items_;
  mutable std::once_flag has_version_;
  mutable std::string version_;
};

}  // namespace

ImageItems items_from_images(
    const std::vector<cv::Mat>& images,
    const std::vector<std::string>& names) {
  const auto pixels_of = [](const cv::Mat& image, const std::string& where) {
    const cv::Mat bytes = with_8_bits(image, where);
    return with_channels(bytes, false, bytes.channels() == 1 ? 1 : 3);
  };
  return items_of(images, names, pixels_of);
}

ImageItems items_from_images(
    const torch::Tensor& images,
    const std::vector<std::string>& names) {
  TERN_CHECK_VALUE(
      images.defined() && (images.dim() == 3 || images.dim() == 4),
      "[items_from_images] images are {}; expected [N, H, W] or [N, H, W, 1 or "
      "3] kByte.",
      shapes_of({images}));
  const torch::Tensor on_cpu = images.cpu().contiguous();
  return items_of(on_cpu.unbind(), names, as_mat);
}

std::shared_ptr<const ImageSource> source_of(const ImageItems& items) {
  const bool is_any_in_memory = std::ranges::any_of(
      items,
      [](const ImageItem& item) { return item.bytes != nullptr; });
  return is_any_in_memory ? std::make_shared<ItemSource>(items) : nullptr;
}

}  // namespace tern
