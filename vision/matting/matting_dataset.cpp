#include "tern/vision/matting/matting_dataset.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tern/vision/decode.h"
#include "tern/vision/image_file.h"
#include "tern/vision/scratch_buffer.h"

namespace tern {
namespace {

/// A picture of a file, whose bytes are in a buffer of the thread's.
EncodedImage open_picture(const std::string& path, int64_t channels) {
  // Two: a foreground and its alpha are open at the same time.
  static thread_local ScratchBuffer colour, grey;
  return EncodedImage(
      read_image_file(path, channels == 1 ? grey : colour),
      path,
      {.channels = channels});
}

template <class Count>
int64_t wrapped(int64_t index, Count count) {
  return index % static_cast<int64_t>(count);
}

}  // namespace

MattingDataset::MattingDataset(
    MattingFiles files,
    MattingDatasetOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      options_.size.height > 0 && options_.size.width > 0,
      fmt::format(
          "[MattingDataset] size is {} x {}; expected a height and a width of "
          "at least 1.",
          options_.size.height,
          options_.size.width));
  check_matting_files(files_);
}

int64_t MattingDataset::size() const {
  return static_cast<int64_t>(std::max(files_.pha.size(), files_.bgr.size()));
}

void MattingDataset::write_pair(
    int64_t index,
    const BatchContext& context,
    uint8_t* fgr,
    uint8_t* pha) const {
  static thread_local SamplePlan plan;
  const int64_t pair = wrapped(index, files_.pha.size());
  const EncodedImage colours = open_picture(files_.fgr[pair], 3);
  const EncodedImage alpha = open_picture(files_.pha[pair], 1);
  const bool trains = context.training;
  SampleRng rng = context.rng(index);
  make_plan(
      trains ? options_.transforms.pair : Transforms{},
      {.resize = trains ? ResizeMethod::crop : ResizeMethod::pad,
       .padding = Padding::border},
      colours.size(),
      options_.size,
      rng,
      plan);
  Warp warp = plan.warp();
  colours.sample(warp, options_.size, fgr);
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
  // Numbers of its own, whatever happens to the pair.
  constexpr uint64_t kBackgroundKey = 0x1f0a'66d3'9be4'27c5;
  const int64_t shift = context.training ? context.epoch : 0;
  const int64_t place = wrapped(index + shift, files_.bgr.size());
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
  const auto count = static_cast<int64_t>(indices.size());
  const auto [height, width] = options_.size;
  const torch::Tensor fgr =
      context.empty({count, height, width, 3}, torch::kByte);
  const torch::Tensor bgr =
      context.empty({count, height, width, 3}, torch::kByte);
  const torch::Tensor pha = context.empty({count, height, width}, torch::kByte);
  const int64_t pixels = height * width;
  for (int64_t i = 0; i < count; ++i) {
    write_pair(
        indices[i],
        context,
        fgr.mutable_data_ptr<uint8_t>() + i * pixels * 3,
        pha.mutable_data_ptr<uint8_t>() + i * pixels);
    write_background(
        indices[i],
        context,
        bgr.mutable_data_ptr<uint8_t>() + i * pixels * 3);
  }
  return {{fgr, bgr}, {pha}};
}

std::string MattingDataset::describe(int64_t index) const {
  return files_.pha[wrapped(index, files_.pha.size())];
}

}  // namespace tern
