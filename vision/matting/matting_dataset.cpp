#include "tern/vision/matting/matting_dataset.h"

#include <map>
#include <utility>

#include <torch/types.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"
#include "tern/data/support/error_text.h"
#include "tern/vision/datasets/image_folder.h"
#include "tern/vision/datasets/image_items.h"
#include "tern/vision/decode/decode.h"
#include "tern/vision/decode/image_file.h"
#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/pixels.h"

namespace tern {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> pictures_in(const fs::path& folder, const char* what) {
  std::vector<std::string> paths = find_image_files(folder);
  if (paths.empty()) {
    throw_data_error(folder.string(), "has no image; expected {} in it.", what);
  }
  return paths;
}

/// Paths of the images in a folder by their relative name without suffix: "a/b"
/// for folder/a/b.png.
using PicturesByName = std::map<std::string, std::string>;

PicturesByName named_pictures_in(const fs::path& folder, const char* what) {
  PicturesByName pictures;
  for (std::string& path : pictures_in(folder, what)) {
    const std::string name =
        fs::path(path).lexically_relative(folder).replace_extension().string();
    const auto [at, is_new] = pictures.emplace(name, path);
    if (!is_new) {
      throw_data_error(
          path,
          "has the name of {}; expected image names that differ in more than "
          "the suffix. Rename or remove one.",
          at->second);
    }
  }
  return pictures;
}

void check_partners(
    const PicturesByName& pictures,
    const PicturesByName& others,
    const fs::path& other_folder) {
  for (const auto& [name, path] : pictures) {
    if (others.contains(name)) continue;
    throw_data_error(
        path,
        "has no counterpart in {}: there are {} images here and {} there. "
        "Expected two of each name, such as pha/1.png and fgr/1.jpg; add the "
        "missing one or remove this one.",
        other_folder.string(),
        pictures.size(),
        others.size());
  }
}

/// Reads the header from the start of a file, or from the whole file if the
/// start is too short.
ImageHeader header_of(const std::string& path) {
  constexpr size_t kStart = 64 << 10;
  const FileHandle file = open_regular_file(path);
  std::vector<uint8_t> bytes(kStart);
  bytes.resize(read_up_to(file, bytes, path));
  try {
    return read_image_header(bytes, path);
  } catch (const DataError&) {
    if (bytes.size() < kStart) throw;
    return read_image_header(read_file(path), path);
  }
}

bool has_colors(const std::string& path) {
  const torch::Tensor image = read_image(path);
  const torch::Tensor first = image.slice(2, 0, 1);
  return !torch::equal(image, first.expand_as(image));
}

void check_pair(const std::string& pha, const std::string& fgr) {
  const ImageHeader header = header_of(pha), photo = header_of(fgr);
  const ImageSize alpha = upright_size(header);
  const ImageSize colors = upright_size(photo);
  if (alpha != colors) {
    throw_data_error(
        pha,
        "is an alpha of {} x {} pixels (height x width), but the "
        "foreground {} has {} x {}; expected equal sizes.",
        alpha.height,
        alpha.width,
        fgr,
        colors.height,
        colors.width);
  }
  if (may_be_turned(photo.orientation, colors, header.orientation, alpha)) {
    throw_data_error(
        pha,
        "is the alpha of {}, which has the EXIF orientation {}, and it is "
        "unknown whether it was drawn on the stored or on the upright image; "
        "expected orientation 1. Save the foreground upright.",
        fgr,
        photo.orientation);
  }
  if (header.channels != 1 && header.channels != 2 && has_colors(pha)) {
    throw DataError(
        pha,
        "has colors; expected a gray alpha image, white where the foreground "
        "is opaque. Check whether pha and fgr are swapped.");
  }
}

/// Opens an image file in a buffer of this thread.
EncodedImage open_picture(const std::string& path, int64_t channels) {
  // Two buffers, because a foreground and its alpha are open at the same time.
  static thread_local ScratchBuffer color, gray;
  return EncodedImage(
      read_image_file(path, channels == 1 ? gray : color),
      path,
      {.channels = channels});
}

}  // namespace

MattingFiles find_matting_files(
    const fs::path& pairs,
    const fs::path& backgrounds) {
  const auto pha = named_pictures_in(pairs / "pha", "gray alpha images");
  const auto fgr = named_pictures_in(pairs / "fgr", "photos of foregrounds");
  check_partners(pha, fgr, pairs / "fgr");
  check_partners(fgr, pha, pairs / "pha");
  MattingFiles files;
  files.bgr = pictures_in(backgrounds, "photos of backgrounds");
  for (const auto& [name, path] : pha) {
    files.pha.push_back(path);
    files.fgr.push_back(fgr.at(name));
  }
  return files;
}

void check_matting_files(const MattingFiles& files) {
  if (files.pha.size() != files.fgr.size() || files.pha.empty() ||
      files.bgr.empty()) {
    throw_data_error(
        "",
        "[MattingDataset] got {} alphas, {} foregrounds and {} backgrounds; "
        "expected the same number of alphas and foregrounds, and at least one "
        "of each.",
        files.pha.size(),
        files.fgr.size(),
        files.bgr.size());
  }
  for_each_image(
      std::ssize(files.pha),
      [&](int64_t i) { check_pair(files.pha[i], files.fgr[i]); },
      "check");
}

std::pair<MattingFiles, MattingFiles> split_matting_files(
    const MattingFiles& files,
    double valid_pct,
    uint64_t seed) {
  const auto pairs = draw_split(std::ssize(files.pha), valid_pct, seed);
  const auto bgr = draw_split(std::ssize(files.bgr), valid_pct, seed);
  const auto side = [&](const auto& of_pairs, const auto& of_backgrounds) {
    return MattingFiles{
        .pha = select(files.pha, of_pairs),
        .fgr = select(files.fgr, of_pairs),
        .bgr = select(files.bgr, of_backgrounds)};
  };
  return {side(pairs.train, bgr.train), side(pairs.valid, bgr.valid)};
}

MattingTransforms matting_transforms(Range pair_scale, Range background_scale) {
  const auto with = [](Range scale) {
    return Transforms{
        random_affine(
            {.degrees = {-5, 5},
             .translate = 0.1f,
             .scale = scale,
             .shear = {-5, 5}}),
        flip_lr(),
        box_blur(5, 0.1f),
        sharpen(0.1f),
        // Scales mid-gray by 0.85 to 1.15.
        brightness({0.425f, 0.575f}, 1),
        contrast({0.85f, 1.15f}, 1),
        saturation(0.15f, 1),
        hue(0.05f, 1)};
  };
  return {with(pair_scale), with(background_scale)};
}

MattingDataset::MattingDataset(
    MattingFiles files,
    MattingDatasetOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  check_size("MattingDataset", options_.size);
  check_transforms("MattingDataset", options_.transforms.pair);
  check_transforms("MattingDataset", options_.transforms.background);
  check_matting_files(files_);
}

std::string MattingDataset::why_no_folds(const Dataset& /*other*/) const {
  return "a MattingDataset repeats the shorter of its lists of files, so "
         "different folds would share foregrounds or backgrounds; expected a "
         "dataset that does not repeat files. Divide the files, and create a "
         "dataset for each fold";
}

void MattingDataset::write_pair(
    int64_t index,
    const BatchContext& context,
    uint8_t* fgr,
    uint8_t* pha) const {
  static thread_local SamplePlan plan;
  const int64_t pair = index % std::ssize(files_.pha);
  const EncodedImage colors = open_picture(files_.fgr[pair], 3);
  const EncodedImage alpha = open_picture(files_.pha[pair], 1);
  const bool trains = context.training;
  SampleRng rng = context.rng(index);
  make_plan(
      trains ? options_.transforms.pair : Transforms{},
      {.resize = trains ? ResizeMethod::crop : ResizeMethod::pad,
       .padding = Padding::border},
      colors.size(),
      options_.size,
      rng,
      plan);
  Warp warp = plan.warp();
  colors.sample(warp, options_.size, fgr);
  warp.padding = Padding::zeros;
  alpha.sample(warp, options_.size, pha);
  plan.finish_pixels({fgr, options_.size, 3});
  for (const auto& change : plan.pixel_functions) {
    change({pha, options_.size, 1});
  }
}

void MattingDataset::write_background(
    int64_t index,
    const BatchContext& context,
    uint8_t* bgr) const {
  static thread_local SamplePlan plan;
  // Separate random numbers, independent of the pair's random numbers.
  constexpr uint64_t kBackgroundKey = 0x1f0a'66d3'9be4'27c5;
  const int64_t shift = context.training ? context.epoch : 0;
  const int64_t place = (index + shift) % std::ssize(files_.bgr);
  const EncodedImage image = open_picture(files_.bgr[place], 3);
  SampleRng rng(context.seed ^ kBackgroundKey, context.epoch, index);
  make_plan(
      context.training ? options_.transforms.background : Transforms{},
      {.resize = ResizeMethod::crop, .padding = Padding::reflection},
      image.size(),
      options_.size,
      rng,
      plan);
  image.sample(plan.warp(), options_.size, bgr);
  plan.finish_pixels({bgr, options_.size, 3});
}

Batch MattingDataset::get_batch(
    c10::ArrayRef<int64_t> indices,
    const BatchContext& context) const {
  const int64_t count = std::ssize(indices);
  const auto [height, width] = options_.size;
  const std::vector<int64_t> shape = {count, height, width, 3};
  const torch::Tensor fgr = context.empty(shape, torch::kByte);
  const torch::Tensor bgr = context.empty(shape, torch::kByte);
  const torch::Tensor pha = context.empty({count, height, width}, torch::kByte);
  auto* fgr_out = fgr.mutable_data_ptr<uint8_t>();
  auto* bgr_out = bgr.mutable_data_ptr<uint8_t>();
  auto* pha_out = pha.mutable_data_ptr<uint8_t>();
  const int64_t pixels = height * width;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i * pixels;
    const BatchContext of_row = context.of_row(i);
    write_pair(indices[i], of_row, fgr_out + 3 * first, pha_out + first);
    write_background(indices[i], of_row, bgr_out + 3 * first);
  }
  return {{fgr, bgr}, {pha}};
}

}  // namespace tern
