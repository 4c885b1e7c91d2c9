#include "tern/vision/datasets/presize.h"

#include <algorithm>
#include <functional>
#include <sys/stat.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/sha256.h"
#include "tern/kernels/check.h"
#include "tern/vision/decode/image_file.h"

namespace tern {
namespace {

namespace fs = std::filesystem;

/// Returns the key of a pack, a hash of its images and options. A pack with the
/// same key can be reused.
std::string key_of(const ImageDataset& images, ImageSize size) {
  const DecodeOptions& decode = images.options().decode;
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    hash.update(
        {reinterpret_cast<const uint8_t*>(text.data()), text.size() + 1});
  };
  add(fmt::format(
      "4 {} {} {} {} {}",
      size.height,
      size.width,
      decode.channels,
      decode.exif_orientation,
      decode.lenient));
  if (images.source() != nullptr) add(images.source()->version());
  for (const std::string& path : images.paths()) {
    struct stat status {};
    add(path);
    if (::stat(path.c_str(), &status) == 0) {
      add(fmt::format(
          "{} {}.{}",
          status.st_size,
          status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec));
    }
  }
  return hash.hex_digest();
}

void add_image(
    const ImageDataset& images,
    int64_t index,
    ImageSize size,
    ImagePackWriter& writer) {
  static thread_local ScratchBuffer file, pixels;
  const DecodeOptions& decode = images.options().decode;
  const auto bytes = images.encoded(index, file);
  const EncodedImage image(bytes, images.paths()[index], decode);
  const ImageSize own = image.size();
  ImageSize covered = proportional(own, size);
  covered.height = std::min(own.height, covered.height);  // never enlarged
  covered.width = std::min(own.width, covered.width);
  uint8_t* decoded =
      pixels.get(covered.height * covered.width * decode.channels);
  image.decode(covered, decoded);
  writer.write(
      index,
      covered.height,
      covered.width,
      decoded,
      image.header().orientation,
      own);
}

std::shared_ptr<const ImagePack> open_if_current(
    const fs::path& file,
    const std::string& key,
    const Sink& sink) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return nullptr;
  try {
    auto pack = ImagePack::open(file);
    return pack->key() == key ? pack : nullptr;
  } catch (const DataError&) {
    sink->warning(
        file.string() +
        ": this image pack is damaged or has a different version; it is "
        "created again.");
    return nullptr;
  }
}

// Replaces the dataset of each split by the result of `change`.
void change_images(
    DataBunch& data,
    const char* where,
    const std::function<
        std::shared_ptr<const ImageDataset>(const ImageDataset&, Split)>&
        change) {
  for (const auto& [split, loader] :
       {std::pair{Split::train, &data.train},
        {Split::valid, &data.valid},
        {Split::test, &data.test}}) {
    if (!*loader) continue;
    const auto* images =
        dynamic_cast<const ImageDataset*>(&(*loader)->dataset());
    TERN_CHECK_VALUE(
        images != nullptr,
        "[{}] the {} dataset is not an ImageDataset; expected an ImageDataset, "
        "such as the datasets of an ImageDataBunch.",
        where,
        to_string(split));
    *loader = std::make_shared<DataLoader>(
        change(*images, split),
        (*loader)->options());
  }
}

}  // namespace

std::shared_ptr<const ImagePack> presize_images(
    const ImageDataset& images,
    const fs::path& file,
    ImageSize size,
    const Sink& given_sink) {
  check_size("presize", size);
  const Sink sink =
      (given_sink ? given_sink : images.options().sink).or_terminal();
  const std::string key = key_of(images, size);
  if (auto pack = open_if_current(file, key, sink)) return pack;
  const int64_t channels = images.options().decode.channels;
  ImagePackWriter writer(file, images.size(), channels, key);
  BadImageList bad(sink);
  const BadImagePolicy& policy = images.options().bad_images;
  for_each_image(
      images.size(),
      [&](int64_t index) {
        try {
          add_image(images, index, size, writer);
        } catch (const DataError& error) {
          // Skips only bad images; errors of the pack itself are rethrown.
          const auto& path = images.paths()[index];
          if (!policy.skips || error.path() != path) throw;
          const BadImage image = {path, error.what()};
          bad.add(index, image, images.size(), policy.max_fraction);
        }
      },
      "presize",
      sink);
  writer.publish();
  return ImagePack::open(file);
}

DataBunch&
DataBunch::presize(const fs::path& folder, ImageSize size, const Sink& sink) {
  change_images(
      *this,
      "DataBunch::presize",
      [&](const ImageDataset& images, Split split) {
        return images.with_pack(presize_images(
            images,
            folder / fmt::format("{}.pack", to_string(split)),
            size,
            sink));
      });
  return *this;
}

void set_image_size(DataBunch& data, ImageSize size) {
  change_images(data, "set_image_size", [&](const ImageDataset& images, Split) {
    return images.with_size(size);
  });
  if (data.preprocessing) {
    data.preprocessing->height = size.height;
    data.preprocessing->width = size.width;
  }
}

}  // namespace tern
