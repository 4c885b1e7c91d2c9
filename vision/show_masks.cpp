#include "tern/vision/show_masks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "tern/vision/save_image.h"

namespace tern {

namespace {

constexpr int64_t kGap = 6;
constexpr int64_t kSmallest = 240;  // height below which images are enlarged
constexpr int kLineHeight = 26, kSwatch = 16;
constexpr uint8_t kWhite = 255;

// Kelly's colours of greatest contrast, less those near white and black.
constexpr std::array<std::array<uint8_t, 3>, 16> kColours = {
    {{0, 103, 165},
     {243, 195, 0},
     {190, 0, 50},
     {135, 86, 146},
     {243, 132, 0},
     {0, 136, 86},
     {161, 202, 241},
     {194, 178, 128},
     {230, 143, 172},
     {101, 69, 34},
     {141, 182, 0},
     {96, 78, 151},
     {246, 166, 0},
     {179, 68, 108},
     {220, 211, 0},
     {226, 88, 34}}};

torch::Tensor gap(int64_t height, int64_t width) {
  return torch::full({height, width, 3}, kWhite, torch::kByte);
}

/// [H, W, 3] kByte, `times` as high and wide.
torch::Tensor enlarged(const torch::Tensor& image, int64_t times) {
  const torch::Tensor large = torch::upsample_bilinear2d(
      image.permute({2, 0, 1}).unsqueeze(0).to(torch::kFloat),
      {image.size(0) * times, image.size(1) * times},
      /*align_corners=*/false);
  return large[0].permute({1, 2, 0}).round().to(torch::kByte);
}

/// Lays the classes' colours over an image [H, W, 3] kByte.
torch::Tensor overlay(
    const torch::Tensor& image,
    const torch::Tensor& mask,
    const torch::Tensor& colours,
    double opacity) {
  const torch::Tensor known = (mask >= 0).logical_and(mask < colours.size(0));
  const torch::Tensor colour =
      colours.index_select(0, mask.clamp(0, colours.size(0) - 1).flatten())
          .reshape(image.sizes());
  const torch::Tensor mixed =
      image.to(torch::kFloat) * (1 - opacity) + colour * opacity;
  return torch::where(known.unsqueeze(2), mixed.to(torch::kByte), image);
}

/// A swatch and a name for each class, in as many lines as `width` needs.
torch::Tensor legend(
    const std::vector<std::string>& names,
    const torch::Tensor& colours,
    int64_t width) {
  constexpr int kFont = cv::FONT_HERSHEY_DUPLEX;
  constexpr double kScale = 0.45;
  int column = kSwatch;
  for (const std::string& name : names) {
    column = std::max(
        column,
        cv::getTextSize(name, kFont, kScale, 1, nullptr).width + 3 * kSwatch);
  }
  const int columns = std::max(1, static_cast<int>(width) / column);
  const int lines = (static_cast<int>(names.size()) + columns - 1) / columns;
  torch::Tensor strip = gap(int64_t{lines} * kLineHeight + kGap, width);
  cv::Mat canvas(
      static_cast<int>(strip.size(0)),
      static_cast<int>(width),
      CV_8UC3,
      strip.data_ptr<uint8_t>());
  for (int i = 0; i < static_cast<int>(names.size()); ++i) {
    const cv::Point at(
        (i % columns) * column,
        (i / columns) * kLineHeight + static_cast<int>(kGap));
    const auto* colour = colours.const_data_ptr<uint8_t>() + 3 * i;
    cv::rectangle(
        canvas,
        {at.x, at.y, kSwatch, kSwatch},
        {double(colour[0]), double(colour[1]), double(colour[2])},
        cv::FILLED);
    cv::putText(
        canvas,
        names[i],
        {at.x + kSwatch + 6, at.y + kSwatch - 4},
        kFont,
        kScale,
        {40, 40, 40},
        1,
        cv::LINE_AA);
  }
  return strip;
}

}  // namespace

torch::Tensor mask_colours(int64_t classes) {
  torch::Tensor colours = torch::empty({classes, 3}, torch::kByte);
  auto* out = colours.data_ptr<uint8_t>();
  for (int64_t i = 0; i < classes; ++i) {
    const auto& colour = kColours[i % kColours.size()];
    // Beyond the table the same colours come darker.
    const int64_t darker = 1 + i / static_cast<int64_t>(kColours.size());
    for (int c = 0; c < 3; ++c) {
      out[3 * i + c] = static_cast<uint8_t>(colour[c] / darker);
    }
  }
  return colours;
}

void show_masks(
    Learner& learn,
    const std::filesystem::path& file,
    const ShowMasksOptions& options) {
  const Dataset& dataset = learn.data().loader(options.split).dataset();
  std::vector<int64_t> indices(static_cast<size_t>(
      std::clamp<int64_t>(options.count, 0, dataset.size())));
  std::iota(indices.begin(), indices.end(), 0);
  const Batch batch = dataset.get_batch(indices, {});
  TORCH_CHECK_VALUE(
      !indices.empty() && batch.inputs.size() == 1 &&
          batch.targets.size() == 1 && batch.targets[0].dim() == 3 &&
          batch.inputs[0].scalar_type() == torch::kByte &&
          batch.inputs[0].size(3) == 3,
      fmt::format(
          "[show_masks] count is {}, and the {} data have {} samples; expected "
          "at least one colour image with a mask.",
          options.count,
          to_string(options.split),
          dataset.size()));
  std::vector<torch::Tensor> rows;
  torch::Tensor colours;
  for (size_t i = 0; i < indices.size(); ++i) {
    const torch::Tensor sample = batch.inputs[0][static_cast<int64_t>(i)];
    const torch::Tensor scores = learn.predict(sample).probabilities;
    const int64_t times = std::max<int64_t>(1, kSmallest / sample.size(0));
    const torch::Tensor image = enlarged(sample, times);
    if (!colours.defined()) colours = mask_colours(scores.size(0));
    const auto with = [&](const torch::Tensor& mask) {
      return overlay(
          image,
          mask.repeat_interleave(times, 0).repeat_interleave(times, 1),
          colours,
          options.opacity);
    };
    const torch::Tensor between = gap(image.size(0), kGap);
    if (i > 0) rows.push_back(gap(kGap, rows[0].size(1)));
    rows.push_back(torch::cat(
        {image,
         between,
         with(batch.targets[0][static_cast<int64_t>(i)]),
         between,
         with(scores.argmax(0))},
        1));
  }
  std::vector<std::string> names = learn.data().classes;
  names.resize(std::min(names.size(), static_cast<size_t>(colours.size(0))));
  if (!names.empty()) {
    rows.push_back(legend(names, colours, rows[0].size(1)));
  }
  save_image(file, torch::cat(rows, 0));
}

}  // namespace tern
