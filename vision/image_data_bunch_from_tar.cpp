// ImageDataBunch::from_tar: an ImageDataset that reads images from tar shards.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/data/formats/text.h"
#include "tern/data/sampler.h"
#include "tern/data/shards/tar_shards.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/parallel_for.h"
#include "tern/vision/datasets/box_checks.h"
#include "tern/vision/datasets/box_json.h"
#include "tern/vision/datasets/box_targets.h"
#include "tern/vision/datasets/point_json.h"
#include "tern/vision/datasets/shard_images.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/image_data_bunch.h"

namespace tern {
namespace {

const TarMember& image_member(
    const TarSample& sample,
    const std::vector<std::string>& fields) {
  for (const std::string& field : fields) {
    if (const TarMember* const member = sample.find(field)) return *member;
  }
  throw_data_error(
      sample.describe(),
      "has no image, only {}; expected a field named {}. Create the shard with "
      "such a field, or set ImageTar::image.",
      sample.describe_fields(),
      fmt::join(fields, ", "));
}

/// Reads the images of the given samples.
class TarImages final : public ImageSource {
 public:
  TarImages(
      std::shared_ptr<const TarShards> shards,
      std::vector<int64_t> samples,
      std::vector<std::string> fields)
      : shards_(std::move(shards)),
        samples_(std::move(samples)),
        fields_(std::move(fields)) {}

  std::span<const uint8_t> read(int64_t index, ScratchBuffer& buffer)
      const override {
    const TarSample sample =
        shards_->sample(samples_.at(static_cast<size_t>(index)));
    const TarMember& member = image_member(sample, fields_);
    if (member.size > static_cast<uint64_t>(kMaxImageBytes)) {
      throw_data_error(
          sample.describe(),
          "has {} bytes, more than the limit of {} for an image. Omit it.",
          member.size,
          kMaxImageBytes);
    }
    // As when reading files, so that small images of different sizes need no
    // reallocation.
    const std::span<uint8_t> bytes(
        buffer.get(std::max<size_t>(member.size, 64 << 10)),
        member.size);
    sample.read(member, bytes);
    return bytes;
  }

  std::string version() const override {
    std::string text;
    for (const auto& shard : shards_->shards()) {
      text += shard->path().string() + " " + shard->version() + "\n";
    }
    return text;
  }

 private:
  std::shared_ptr<const TarShards> shards_;
  std::vector<int64_t> samples_;
  std::vector<std::string> fields_;
};

/// Returns the class of each sample. Throws if a sample has no image.
std::vector<int64_t> read_labels(const TarShards& shards, const ImageTar& tar) {
  constexpr int64_t kMaxClasses = 1'000'000;
  const int64_t limit =
      tar.classes.empty() ? kMaxClasses : std::ssize(tar.classes);
  std::vector<int64_t> labels(static_cast<size_t>(shards.size()));
  parallel_for(0, shards.size(), 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TarSample sample = shards.sample(i);
      image_member(sample, tar.image);
      const int64_t label = sample.integer(tar.label);
      if (label < 0 || label >= limit) {
        throw_data_error(
            sample.describe(),
            "is of class {}; expected an index from 0 to {}. Create the shard "
            "with class indices in this range, or name all classes.",
            label,
            limit - 1);
      }
      labels[i] = label;
    }
  });
  return labels;
}

std::string describe_field(const TarSample& sample, const std::string& field) {
  return fmt::format("{}, field '{}'", sample.describe(), field);
}

/// Reads the JSON of each sample. Throws if a sample has no image.
/// \param read  Parses a text; receives its place for error messages.
template <class T, class Read>
std::vector<T> read_annotations(
    const TarShards& shards,
    const ImageTar& tar,
    const std::string& field,
    const Read& read) {
  std::vector<T> annotations(static_cast<size_t>(shards.size()));
  parallel_for(0, shards.size(), 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TarSample sample = shards.sample(i);
      image_member(sample, tar.image);
      const uint64_t size = sample.member(field).size;
      const std::string where = describe_field(sample, field);
      if (size > static_cast<uint64_t>(kMaxAnnotationBytes)) {
        throw_data_error(
            where,
            "has {} bytes; expected at most {} for the annotations of an "
            "image. Omit it.",
            size,
            kMaxAnnotationBytes);
      }
      annotations[i] = read(sample.text(field), where);
    }
  });
  return annotations;
}

std::vector<std::string> classes_of(const std::vector<ImageBoxes>& images) {
  std::set<std::string> names;
  for (const ImageBoxes& image : images) {
    for (const Box& box : image.boxes) names.insert(box.label);
  }
  return {names.begin(), names.end()};
}

void check_classes(
    const TarShards& shards,
    const std::vector<ImageBoxes>& images,
    const ImageTar& tar) {
  const std::set<std::string> known(tar.classes.begin(), tar.classes.end());
  for (int64_t i = 0; i < shards.size(); ++i) {
    for (const Box& box : images[i].boxes) {
      if (known.contains(box.label)) continue;
      throw_data_error(
          describe_field(shards.sample(i), tar.boxes),
          "has a box of the class {}; expected one of the {} classes of {} or "
          "ImageTar::classes. Correct the label, or name all classes.",
          printable(box.label),
          known.size(),
          kClassListName);
    }
  }
}

/// The targets of shards: one of the lists has one entry per sample.
struct TarTargets {
  std::vector<int64_t> labels = {};
  std::vector<ImageBoxes> boxes = {};
  std::vector<std::vector<Point>> points = {};
};

TargetKind kind_of(const ImageTar& tar) {
  TORCH_CHECK_VALUE(
      tar.boxes.empty() || tar.points.empty(),
      "[ImageDataBunch::from_tar] there are a field for boxes and one for "
      "points; expected only one of them.");
  return !tar.boxes.empty()    ? TargetKind::boxes
         : !tar.points.empty() ? TargetKind::points
                               : TargetKind::category;
}

TarTargets read_targets(const TarShards& shards, const ImageTar& tar) {
  TarTargets targets;
  switch (kind_of(tar)) {
    case TargetKind::boxes:
      targets.boxes = read_annotations<ImageBoxes>(
          shards,
          tar,
          tar.boxes,
          [&](const std::string& text, const std::string& where) {
            return read_box_json(text, where, tar.annotations.clip);
          });
      if (!tar.classes.empty()) check_classes(shards, targets.boxes, tar);
      break;
    case TargetKind::points:
      targets.points = read_annotations<std::vector<Point>>(
          shards,
          tar,
          tar.points,
          read_point_json);
      break;
    default:
      targets.labels = read_labels(shards, tar);
  }
  return targets;
}

/// Returns the images of the given samples with their targets.
TargetedImages images_of(
    const std::shared_ptr<const TarShards>& shards,
    const TarTargets& targets,
    std::vector<int64_t> samples,
    const ImageTar& tar) {
  TargetedImages images;
  for (const int64_t sample : samples) {
    images.paths.push_back(shards->sample(sample).describe());
  }
  switch (kind_of(tar)) {
    case TargetKind::boxes:
      images.targets = std::make_shared<BoxTargets>(
          images.paths,
          select(targets.boxes, samples),
          tar.classes,
          tar.annotations);
      break;
    case TargetKind::points:
      images.targets = std::make_shared<PointTargets>(
          images.paths,
          select(targets.points, samples),
          tar.annotations);
      break;
    default:
      images.targets = std::make_shared<TensorTargets>(
          torch::tensor(select(targets.labels, samples)));
  }
  images.source =
      std::make_shared<TarImages>(shards, std::move(samples), tar.image);
  return images;
}

std::vector<std::string> names_up_to(const std::vector<int64_t>& labels) {
  std::vector<std::string> names;
  const int64_t last = std::ranges::max(labels);
  for (int64_t i = 0; i <= last; ++i) names.push_back(std::to_string(i));
  return names;
}

/// Returns how many of `samples` are in each shard.
/// \param samples  Sorted.
std::vector<int64_t> count_by_shard(
    const TarShards& shards,
    const std::vector<int64_t>& samples) {
  std::vector<int64_t> counts;
  int64_t end = 0;
  auto begin = samples.begin();
  for (const int64_t size : shards.shard_sizes()) {
    end += size;
    const auto next = std::lower_bound(begin, samples.end(), end);
    counts.push_back(next - begin);
    begin = next;
  }
  return counts;
}

}  // namespace

DataBunch ImageDataBunch::from_tar(
    const std::vector<std::string>& train,
    const std::vector<std::string>& valid,
    const ImageTar& tar,
    const ImageDataBunchOptions& options) {
  TORCH_CHECK_VALUE(
      !options.report_duplicates,
      "[ImageDataBunch::from_tar] report_duplicates compares files, but the "
      "images are in shards; expected false. Leave report_duplicates off.");
  TORCH_CHECK_VALUE(
      tar.shuffle_buffer == 0 || !options.balance_classes,
      "[ImageDataBunch::from_tar] balance_classes draws from all images, but "
      "shuffle_buffer is set; expected only one of them. Leave shuffle_buffer "
      "0.");
  TORCH_CHECK_VALUE(
      tar.shuffle_buffer == 0 || !options.sampler,
      "[ImageDataBunch::from_tar] there are a sampler and a shuffle_buffer, "
      "which both set the order of the training images; expected only one of "
      "them.");
  ImageTar known = tar;
  if (!known.shards.sink) known.shards.sink = options.sink;
  const TargetKind kind = kind_of(tar);
  const auto shards = TarShards::open(train, known.shards);
  if (known.classes.empty() && kind != TargetKind::points) {
    known.classes = read_class_list(
        shards->shards().front()->path().parent_path() / kClassListName);
  }
  const TarTargets targets = read_targets(*shards, known);
  if (known.classes.empty() && kind != TargetKind::points) {
    known.classes = kind == TargetKind::boxes ? classes_of(targets.boxes)
                                              : names_up_to(targets.labels);
  }

  std::vector<int64_t> train_samples;
  TargetedImages valid_images;
  if (!valid.empty()) {
    const auto valid_shards = TarShards::open(valid, known.shards);
    train_samples = SequentialSampler(shards->size()).indices(0, 0);
    valid_images = images_of(
        valid_shards,
        read_targets(*valid_shards, known),
        SequentialSampler(valid_shards->size()).indices(0, 0),
        known);
  } else {
    const double valid_pct = options.valid_pct.value_or(0.2);
    SplitIndices drawn = draw_split(shards->size(), valid_pct, options.seed);
    train_samples = std::move(drawn.train);
    valid_images = images_of(shards, targets, std::move(drawn.valid), known);
  }
  std::vector<int64_t> sizes = count_by_shard(*shards, train_samples);
  OutputInfo output{.kind = kind};
  std::vector<std::string> classes = known.classes;
  if (kind == TargetKind::points) std::swap(output.names, classes);
  DataBunch data = make_bunch(
      images_of(shards, targets, std::move(train_samples), known),
      std::move(valid_images),
      std::move(classes),
      options,
      kind == TargetKind::category ? std::nullopt : std::optional(output),
      known.annotations);
  if (tar.shuffle_buffer > 0) {
    DataLoaderOptions loading = data.train->options();
    loading.sampler =
        std::make_shared<BufferedSampler>(std::move(sizes), tar.shuffle_buffer);
    data.train =
        std::make_shared<DataLoader>(data.train->dataset_ptr(), loading);
  }
  return data;
}

}  // namespace tern
