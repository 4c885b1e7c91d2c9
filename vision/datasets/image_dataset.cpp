#include "tern/vision/datasets/image_dataset.h"

#include <utility>

#include "tern/data/formats/error.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/vision/datasets/image_pack.h"
#include "tern/vision/decode/sample_pixels.h"

namespace tern {
namespace {

/// Returns the buffer that this thread reuses for all images.
ScratchBuffer& thread_buffer() {
  static thread_local ScratchBuffer buffer;
  return buffer;
}

}  // namespace

ImageDataset::ImageDataset(
    TargetedImages images,
    const ImageDatasetOptions& options)
    : images_(std::move(images)),
      options_(options),
      bad_(std::make_shared<BadImageList>(options.sink)) {
  const ImageTargets* targets = images_.targets.get();
  TERN_CHECK_VALUE(
      !targets || size() == targets->size(),
      "[ImageDataset] got {} paths and {} labels; expected one label per path.",
      size(),
      targets->size());
  const double share = options_.bad_images.max_fraction;
  TERN_CHECK_VALUE(
      share >= 0 && share <= 1,
      "[ImageDataset] max_fraction of bad images is {}; expected a fraction "
      "from 0 to 1.",
      share);
  check_transforms("ImageDataset", options_.transforms.train);
  check_transforms("ImageDataset", options_.transforms.valid);
  if (options_.size) {
    size_ = *options_.size;
    check_size("ImageDataset", size_);
  } else if (size() > 0) {
    const auto bytes = encoded(0, thread_buffer());
    size_ = EncodedImage(bytes, paths().front(), options_.decode).size();
  }
}

ImageDataset::ImageDataset(
    std::vector<std::string> paths,
    const std::vector<int64_t>& labels,
    const ImageDatasetOptions& options)
    : ImageDataset(
          {std::move(paths),
           std::make_shared<TensorTargets>(torch::tensor(labels))},
          options) {}

std::span<const uint8_t> ImageDataset::encoded(
    int64_t index,
    ScratchBuffer& buffer) const {
  return source() ? source()->read(index, buffer)
                  : read_image_file(paths().at(index), buffer);
}

torch::Tensor ImageDataset::target_values() const {
  const auto* rows = dynamic_cast<const TensorTargets*>(images_.targets.get());
  return rows ? rows->values() : torch::Tensor();
}

std::shared_ptr<const ImageDataset> ImageDataset::with_pack(
    std::shared_ptr<const ImagePack> pack) const {
  TERN_CHECK_VALUE(
      pack && pack->size() == size(),
      "[ImageDataset::with_pack] the pack has {} images; expected {}, one per "
      "path.",
      pack ? pack->size() : 0,
      size());
  auto copy = std::make_shared<ImageDataset>(*this);
  copy->pack_ = std::move(pack);
  return copy;
}

std::shared_ptr<const ImageDataset> ImageDataset::with_size(
    ImageSize size) const {
  check_size("ImageDataset::with_size", size);
  auto copy = std::make_shared<ImageDataset>(*this);
  copy->options_.size = copy->size_ = size;
  return copy;
}

std::string ImageDataset::why_no_folds(const Dataset& other) const {
  if (options_.bad_images.skips) {
    return "BadImagePolicy::skip replaces a bad training image by any image of "
           "its dataset, which may be a validation image of the fold; expected "
           "BadImagePolicy::error. k_folds of a DataBlock creates a dataset "
           "per fold and supports skip";
  }
  const auto* const images = dynamic_cast<const ImageDataset*>(&other);
  if (!images) return "";
  const ImageDatasetOptions& its = images->options_;
  const bool are_alike =
      size_ == images->size_ && options_.decode == its.decode &&
      options_.transforms == its.transforms && options_.sizing == its.sizing;
  return are_alike ? ""
                   : "two of the image datasets differ in transforms, sizes or "
                     "decoding, and each fold would mix their images; expected "
                     "the same ImageDatasetOptions for both, with the "
                     "transforms of training and of validation in `transforms`";
}

void ImageDataset::write_sample(
    int64_t index,
    const BatchContext& context,
    uint8_t* slot,
    SamplePlan& plan) const {
  const std::string& path = paths().at(index);
  const Transforms& transforms =
      context.training ? options_.transforms.train : options_.transforms.valid;
  SampleRng rng = context.rng(index);
  const auto make_plan_for = [&](ImageSize image) {
    if (!options_.size && image != size_) {
      throw_data_error(
          path,
          "is {} x {} pixels (height x width), but {} is {} x {}, and images "
          "of one batch must have the same size. Set `size` to resize them "
          "all.",
          image.height,
          image.width,
          paths().front(),
          size_.height,
          size_.width);
    }
    make_plan(transforms, options_.sizing, image, size_, rng, plan);
    Warp warp = plan.warp();
    warp.antialias = !context.training;
    return warp;
  };
  if (pack_ && pack_->has(index)) {
    const PixelView image = pack_->image(index);
    const Warp warp = make_plan_for({image.height, image.width});
    plan.exif_orientation = pack_->exif_orientation(index);
    plan.original = pack_->original_size(index);
    sample_pixels(image, warp, size_, slot);
  } else {
    const auto bytes = encoded(index, thread_buffer());
    const EncodedImage image(bytes, path, options_.decode);
    image.sample(make_plan_for(image.size()), size_, slot);
    plan.exif_orientation = image.header().orientation;
  }
  plan.finish_pixels({slot, size_, options_.decode.channels});
}

bool ImageDataset::write_readable(
    int64_t index,
    const BatchContext& context,
    uint8_t* slot,
    const Tensors& targets,
    int64_t place) const {
  static thread_local SamplePlan plan;
  // A separate generator, so that replacing an image does not change other
  // random numbers.
  constexpr uint64_t kReplacementKey = 0x5b8d'0c1e'77a4'93f1;
  SampleRng rng(context.seed ^ kReplacementKey, context.epoch, index);
  for (int64_t candidate = index;;
       candidate = static_cast<int64_t>(rng.below(size()))) {
    try {
      write_sample(candidate, context, slot, plan);
      if (images_.targets) {
        images_.targets->write(candidate, plan, targets, place);
      }
      return true;
    } catch (const DataError& error) {
      const BadImagePolicy& policy = options_.bad_images;
      if (!policy.skips) throw;
      const BadImage bad = {paths()[candidate], error.what()};
      bad_->add(candidate, bad, size(), policy.max_fraction);
      // All images are bad, so none can replace this one or be evaluated.
      if (std::ssize(bad_->all()) == size()) throw;
      if (!context.training) return false;
    }
  }
}

Batch ImageDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  const int64_t count = std::ssize(indices);
  const int64_t channels = options_.decode.channels;
  torch::Tensor images =
      context.empty({count, size_.height, size_.width, channels}, torch::kByte);
  Tensors targets;
  if (images_.targets) targets = images_.targets->empty(count, size_, context);
  uint8_t* slot = images.mutable_data_ptr<uint8_t>();
  Batch batch;
  int64_t written = 0;
  for (int64_t row = 0; row < count; ++row) {
    const BatchContext of_row = context.of_row(row);
    if (write_readable(indices[row], of_row, slot, targets, written)) {
      slot += size_.height * size_.width * channels;
      ++written;
    } else {
      batch.left_out.push_back(row);
    }
  }
  batch.inputs = {images.narrow(0, 0, written)};
  for (const torch::Tensor& target : targets) {
    batch.targets.push_back(target.narrow(0, 0, written));
  }
  return batch;
}

const ImageDataset* find_images(const Dataset& data) {
  if (const auto* images = dynamic_cast<const ImageDataset*>(&data)) {
    return images;
  }
  if (const auto* part = dynamic_cast<const Subset*>(&data)) {
    return find_images(part->source());
  }
  const auto* all = dynamic_cast<const Concat*>(&data);
  return all && !all->sources().empty() ? find_images(*all->sources()[0])
                                        : nullptr;
}

}  // namespace tern
